"""Search spaces of attention: every choice makes a layer, and failed trials are reported."""

import itertools

import keras
import numpy as np
import pytest

from keras_attention import BahdanauAttention

keras_tuner = pytest.importorskip("keras_tuner", reason="keras-tuner is not installed")

from keras_attention.tuning import (  # noqa: E402
    MECHANISMS,
    UNNORMALISED,
    AttentionHyperModel,
    attention_space,
    completed_trials,
)


def hyperparameters(**values):
    hp = keras_tuner.HyperParameters()
    for name, value in values.items():
        hp.Fixed(f"attention_{name}", value)
    return hp


def test_the_default():
    hp = keras_tuner.HyperParameters()
    layer = attention_space(hp)
    assert isinstance(layer, BahdanauAttention)
    config = layer.get_config()
    assert (config["units"], config["normalizer"], config["dropout"]) == (32, "softmax", 0.0)
    # The hyperparameter of another mechanism is not active.
    names = {"mechanism", "units", "normalizer", "dropout"}
    assert set(hp.values) == {f"attention_{name}" for name in names}


@pytest.mark.parametrize("name", MECHANISMS)
def test_every_choice_reaches_the_layer(name):
    """And no hyperparameter is searched that the layer does not take."""
    chosen = {"units": 64, "normalizer": "sparsemax", "dropout": 0.2, "score_mode": "concat"}
    absent = [x for x in chosen if x == "normalizer" and name in UNNORMALISED]
    absent += ["score_mode"] * (name != "luong")
    hp = keras_tuner.HyperParameters()
    hp.values = {f"attention_{x}": value for x, value in chosen.items()}
    layer = attention_space(hp, mechanisms=[name])
    assert type(layer) is MECHANISMS[name]
    searched = {x.name.removeprefix("attention_") for x in hp.space} - {"mechanism"}
    assert searched == chosen.keys() - absent
    config = layer.get_config()
    assert {x: config[x] for x in searched} == {x: chosen[x] for x in searched}
    arrays = [np.ones((2, 3, 5)), np.ones((2, 7, 5))]
    if name == "pooling":
        assert layer(arrays[1]).shape == (2, 5)
    else:
        assert layer(*arrays).shape == (2, 3, 64 if name == "luong" else 5)


def test_lists_are_searched_and_values_are_not():
    hp = keras_tuner.HyperParameters()
    options = {"alignment": ["local-p", "global"], "half_width": 3, "units": None, "dropout": 0.1}
    layer = attention_space(hp, mechanisms=["luong"], **options, normalizer=["sparsemax"])
    config = layer.get_config()
    expected = {**options, "alignment": "local-p", "normalizer": "sparsemax"}
    assert {name: config[name] for name in expected} == expected
    searched = {"mechanism", "alignment", "score_mode", "normalizer"}
    assert {x.name for x in hp.space} == {f"attention_{name}" for name in searched}
    layer = attention_space(hp, "other", weight_norm=[True, False], use_bias=[False, True])
    assert (layer.weight_norm, layer.use_bias) == (True, False)


def trials(folder, hypermodel, count, **options):
    """Hyperparameters that a search draws, those that are active."""
    tuner = make_tuner(folder, hypermodel, trials=count, **options)
    for number in range(count):
        hp = tuner.oracle.create_trial(f"{number}").hyperparameters
        yield {x.name: hp.get(x.name) for x in hp.space if hp.is_active(x)}


def test_the_search_knows_the_whole_space(tmp_path):
    """Every hyperparameter is sampled, and only where the layer takes it."""
    hypermodel = AttentionHyperModel(build, mechanisms=["bahdanau", "luong", "gmm"])
    found = {}
    for values in trials(tmp_path, hypermodel, 200):
        chosen = values["attention_mechanism"]
        for name, value in values.items():
            found.setdefault((chosen, name.removeprefix("attention_")), set()).add(value)
    common = {"mechanism", "rate", "units", "dropout"}
    own = {"bahdanau": {"normalizer"}, "gmm": set(), "luong": {"normalizer", "score_mode"}}
    for chosen, names in own.items():
        assert {name for one, name in found if one == chosen} == common | names
        assert found[chosen, "units"] == {32, 64, 128, 256}
        assert found[chosen, "dropout"] == {0, 0.2, 0.4}
    assert found["luong", "score_mode"] == {"general", "concat"}


def test_a_search_keeps_what_is_declared_before(tmp_path):
    """Whether all mechanisms take it or only some."""
    hp = hyperparameters(score_mode="dot", units=48)
    hp.Choice("attention_dropout", [0.3, 0.5])
    found = list(trials(tmp_path, AttentionHyperModel(build), 30, hyperparameters=hp))
    assert {x["attention_units"] for x in found} == {48}
    assert {x["attention_dropout"] for x in found} == {0.3, 0.5}
    assert {x["attention_score_mode"] for x in found} == {"dot"}
    assert {x["attention_mechanism"] for x in found} == {"bahdanau", "luong"}
    hp.values["attention_mechanism"] = "luong"
    layer = attention_space(hp)
    assert (layer.score_mode, layer.units, layer.dropout) == ("dot", 48, 0.3)


def test_two_layers_of_one_model():
    hp = keras_tuner.HyperParameters()
    first, second = attention_space(hp, "first"), attention_space(hp, "second")
    assert {name.split("_")[0] for name in hp.values} == {"first", "second"}
    assert first is not second


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mechanisms": ["bahdanu"]}, "mechanisms.*bahdanu"),
        ({"mechanisms": []}, "`mechanisms` must be a list of at least one of bahdanau, luong"),
        ({"mechanisms": "luong"}, r"received 'luong'. Write mechanisms=\['luong'\]"),
        ({"score_mode": ["general", "dott"]}, "attention_space: `score_mode` must .*'dott'"),
        ({"score_mode": "dott"}, "attention_space: `score_mode` must .*'dott'"),
        ({"score_mode": "location"}, "`max_length` must .*received None"),
        ({"scores": ["dot"]}, "`scores` must be an argument of one of bahdanau, luong"),
        ({"mechanisms": ["gmm"], "normalizer": "softmax"}, "`normalizer` must be an argument of"),
        ({"units": (32, 2**62)}, "`units` must be a positive integer, at most 1048576"),
        ({"units": []}, r"`units` must be a value or a list of at least one; received \[\]"),
        ({"dropout": [0.1, 1.0]}, r"`dropout` must be a number in \[0, 1\); received 1.0"),
    ],
)
def test_bad_spaces(options, message):
    """Whichever is chosen first, and before a search begins."""
    for make in (attention_space, lambda _, **options: AttentionHyperModel(build, **options)):
        with pytest.raises(ValueError, match=message):
            make(keras_tuner.HyperParameters(), **options)


def test_a_build_that_is_no_function():
    with pytest.raises(ValueError, match=r"build\(hp, attention\); received 3, 3 is not"):
        AttentionHyperModel(3)


def build(hp, attention):
    query, value = keras.Input((3, 4)), keras.Input((5, 4))
    outputs = keras.layers.Dense(1)(attention(query, value))
    model = keras.Model([query, value], outputs)
    # Eager steps, because a graph takes longer to trace than eight samples take to train.
    model.compile(keras.optimizers.SGD(hp.Float("rate", 0.01, 0.1)), "mse", run_eagerly=True)
    return model


DATA = [np.ones((8, 3, 4)), np.ones((8, 5, 4))], np.ones((8, 3, 1))


def make_tuner(folder, hypermodel, trials=4, **options):
    tuner = keras_tuner.RandomSearch(
        hypermodel,
        "val_loss",
        max_trials=trials,
        seed=3,
        directory=folder,
        project_name="search",
        max_consecutive_failed_trials=9,
        **options,
    )
    return tuner


@pytest.mark.slow
def test_a_search(tmp_path):
    hypermodel = AttentionHyperModel(build, units=[4, 8], prefix="read")
    tuner = make_tuner(tmp_path, hypermodel)
    tuner.search(*DATA, validation_data=DATA, verbose=0)
    trials = completed_trials(tuner)
    assert len(trials) == 4
    assert all(a.score <= b.score for a, b in itertools.pairwise(trials))
    assert {"read_mechanism", "rate"} <= set(trials[0].hyperparameters.values)
    # The same search reads its trials from the folder.
    again = completed_trials(make_tuner(tmp_path, hypermodel))
    assert [x.trial_id for x in again] == [x.trial_id for x in trials]


def test_failed_trials_are_not_hidden(tmp_path):
    def fail(hp, attention):
        if hp.Float("rate", 0.01, 0.1) > 0.05:
            raise ArithmeticError("the rate is too large")
        return build(hp, attention)

    tuner = make_tuner(tmp_path, AttentionHyperModel(fail, units=[4, 8]))
    tuner.search(*DATA, validation_data=DATA, verbose=0)
    with pytest.raises(RuntimeError, match=r"of 4 trials did not complete") as caught:
        completed_trials(tuner)
    assert "FAILED, ArithmeticError: the rate is too large" in str(caught.value)
    with pytest.warns(RuntimeWarning, match="of 4 trials did not complete:\n.*the rate is too"):
        trials = completed_trials(tuner, failed="warn")
    assert 1 <= len(trials) <= 3
    assert {trial.status for trial in trials} == {"COMPLETED"}
    with pytest.raises(ValueError, match=r"failed.*'ignore'"):
        completed_trials(tuner, failed="ignore")


@pytest.mark.slow
def test_three_failures_in_a_row_end_a_search(tmp_path):
    """As docs/howto/tune.md says of keras-tuner's default."""
    failures = None  # the tuner itself builds models to explore the space

    def fail(hp, attention):
        if failures is None:
            return build(hp, attention)
        failures.append(hp)
        raise ArithmeticError("wrong")

    options = {"max_trials": 9, "directory": tmp_path}
    tuner = keras_tuner.RandomSearch(AttentionHyperModel(fail), "val_loss", **options)
    failures = []
    with pytest.raises(RuntimeError, match="consecutive failures exceeded the limit of 3"):
        tuner.search(*DATA, validation_data=DATA, verbose=0)
    assert len(failures) == 3


# NumPy warns when keras-tuner reads the history of such a training.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:All-NaN axis encountered")
def test_a_training_that_diverges(tmp_path):
    def diverge(hp, attention):
        model = build(hp, attention)
        model.compile("sgd", lambda _, x: keras.ops.sum(x) * float("nan"), run_eagerly=True)
        return model

    tuner = make_tuner(tmp_path, AttentionHyperModel(diverge), trials=1)
    tuner.search(*DATA, validation_data=DATA, verbose=0)
    for failed in ("raise", "warn"):
        with pytest.raises(RuntimeError, match="its objective was not a number, which a training"):
            completed_trials(tuner, failed=failed)


def test_a_search_without_trials(tmp_path):
    with pytest.raises(RuntimeError, match="There are no trials"):
        completed_trials(make_tuner(tmp_path, AttentionHyperModel(build)))


def test_hp_must_be_hyperparameters():
    for given in (None, keras_tuner.HyperParameters, {"units": 64}):
        with pytest.raises(ValueError, match=r"`hp` must be keras_tuner.HyperParameters; received"):
            attention_space(given)


def test_a_build_of_one_argument():
    with pytest.raises(ValueError, match=r"build\(hp, attention\); .*too many positional"):
        AttentionHyperModel(lambda hp: None)


@pytest.mark.parametrize("given", ["False", 1, None])
def test_tunable_is_true_or_false(given):
    with pytest.raises(ValueError, match="`tunable` must be True or False"):
        AttentionHyperModel(build, tunable=given)


def test_tuner_must_be_a_tuner():
    with pytest.raises(ValueError, match=r"`tuner` must be a keras_tuner.Tuner; received"):
        completed_trials(AttentionHyperModel(build))
