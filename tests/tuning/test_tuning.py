"""Search spaces of attention: every choice makes a layer, and failed trials are reported."""

import itertools

import keras
import numpy as np
import pytest

from keras_attention import AttentionPooling, BahdanauAttention, LuongAttention

keras_tuner = pytest.importorskip("keras_tuner", reason="keras-tuner is not installed")

from keras_attention.tuning import (  # noqa: E402
    OTHERS,
    AttentionHyperModel,
    attention_space,
    completed_trials,
)

RECURRENT = [name for name in OTHERS if name not in ("bahdanau", "pooling")]

ALL_ALIGNMENTS = ("global", "local-m", "local-p")


def hyperparameters(**values):
    hp = keras_tuner.HyperParameters()
    for name, value in values.items():
        hp.Fixed(f"attention_{name}", value)
    return hp


def test_the_default():
    layer = attention_space(keras_tuner.HyperParameters())
    assert isinstance(layer, BahdanauAttention)
    config = layer.get_config()
    assert config["units"] == 32
    assert (config["weight_norm"], config["use_bias"], config["dropout"]) == (False, False, 0.0)


@pytest.mark.parametrize("alignment", ["global", "local-m", "local-p"])
@pytest.mark.parametrize("score", ["dot", "general", "concat", "location"])
@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.each_value
def test_every_choice_of_luong(score, alignment, vector):
    chosen = {"mechanism": "luong", "score_mode": score, "alignment": alignment, "vector": vector}
    hp = hyperparameters(
        **chosen, half_width=3, vector_units=64, normalizer="sparsemax", dropout=0.2
    )
    scores = ("dot", "general", "concat", "location")
    layer = attention_space(hp, scores=scores, alignments=ALL_ALIGNMENTS, max_length=17)
    assert isinstance(layer, LuongAttention)
    config = layer.get_config()
    assert (config["score_mode"], config["alignment"]) == (score, alignment)
    assert config["units"] == (64 if vector else None)
    assert config["half_width"] == (10 if alignment == "global" else 3)
    assert config["max_length"] == (17 if score == "location" else None)
    assert (config["normalizer"], config["dropout"]) == ("sparsemax", 0.2)
    assert layer(np.ones((2, 3, 5)), np.ones((2, 7, 5))).shape == (2, 3, 64 if vector else 5)


@pytest.mark.parametrize("name", RECURRENT)
def test_every_attention_with_a_state(name):
    layer, arguments = OTHERS[name]
    first, last = ({x: values[n] for x, values in arguments.items()} for n in (0, -1))
    for chosen in (first, last):
        own = {f"{name}_{x}": value for x, value in {"units": 64, **chosen}.items()}
        hp = hyperparameters(mechanism=name, **own, normalizer="entmax15")
        made = attention_space(hp, mechanisms=["bahdanau", *RECURRENT])
        assert type(made) is layer
        config = made.get_config()
        assert {x: config[x] for x in chosen} == chosen
        normalized = name not in ("gmm", "monotonic", "stepwise")
        assert config["units"] == 64
        assert config["normalizer"] == ("entmax15" if normalized else "softmax")
        assert made(np.ones((2, 3, 5)), np.ones((2, 7, 5))).shape == (2, 3, 5)
    hp = keras_tuner.HyperParameters()
    config = attention_space(hp, mechanisms=[name]).get_config()
    assert {x: config[x] for x in first} == first


def test_a_pooling():
    chosen = {"gated": False, "temperature": 0.3, "normalizer": "normalized_sigmoid", "units": 64}
    hp = hyperparameters(mechanism="pooling", **{f"pooling_{x}": y for x, y in chosen.items()})
    layer = attention_space(hp, mechanisms=["pooling"])
    assert isinstance(layer, AttentionPooling)
    config = layer.get_config()
    assert {name: config[name] for name in chosen} == chosen
    assert layer(np.ones((2, 7, 5))).shape == (2, 5)
    config = attention_space(keras_tuner.HyperParameters(), mechanisms=["pooling"]).get_config()
    assert (config["gated"], config["temperature"], config["normalizer"]) == (True, 1.0, "softmax")


def test_hyperparameters_of_other_choices_are_not_active():
    hp = keras_tuner.HyperParameters()
    attention_space(hp, "a")
    names = {"mechanism", "normalizer", "dropout", "units", "weight_norm", "use_bias"}
    assert set(hp.values) == {f"a_{name}" for name in names}
    hp = keras_tuner.HyperParameters()
    hp.Fixed("a_mechanism", "luong")
    attention_space(hp, "a")
    assert {"a_score_mode", "a_alignment", "a_vector"} <= set(hp.values)
    assert not {"a_half_width", "a_vector_units", "a_units"} & set(hp.values)


def test_unchosen_scopes_are_entered():
    """Otherwise keras-tuner would find them only by chance."""
    hp = keras_tuner.HyperParameters()
    hp.values = {"attention_mechanism": "luong", "attention_alignment": "global"}
    attention_space(hp)
    seen = {tuple(condition.name for condition in scope) for scope in hp.inactive_scopes}
    inner = [("attention_mechanism", f"attention_{name}") for name in ("alignment", "vector")]
    assert seen == {("attention_mechanism",), *inner}


def test_the_search_knows_the_whole_space(tmp_path):
    """Every scope is known and sampled, not only those that the defaults choose."""
    tuner = make_tuner(tmp_path, AttentionHyperModel(build), trials=200)
    names = {hp.name for hp in tuner.oracle.get_space().space}
    inner = {"units", "weight_norm", "use_bias", "score_mode", "alignment", "half_width", "vector"}
    common = {"mechanism", "normalizer", "dropout", "vector_units"}
    assert names == {"rate", *(f"attention_{name}" for name in inner | common)}
    found = {name: set() for name in names}
    for number in range(200):
        trial = tuner.oracle.create_trial(f"{number}")
        for name in trial.hyperparameters.values:
            if trial.hyperparameters.is_active(name):
                found[name].add(trial.hyperparameters.get(name))
    assert found["attention_half_width"] == set(range(2, 11))
    assert found["attention_vector_units"] == found["attention_units"] == {32, 64, 128, 256}
    assert found["attention_alignment"] == {"global", "local-p"}
    assert found["attention_dropout"] == {0, 0.1, 0.2, 0.3, 0.4, 0.5}


@pytest.mark.parametrize(
    ("most", "expected"),
    [(0.3, [0, 0.1, 0.2, 0.3]), (0.05, [0, 0.05]), (0.25, [0, 0.1, 0.2, 0.25])],
)
def test_rates_of_dropout(most, expected):
    hp = keras_tuner.HyperParameters()
    attention_space(hp, most_dropout=most)
    (dropout,) = [x for x in hp.space if x.name == "attention_dropout"]
    assert list(dropout.values) == expected
    hp = keras_tuner.HyperParameters()
    attention_space(hp, most_dropout=0)
    assert "attention_dropout" not in hp.values


def test_two_layers_of_one_model():
    hp = keras_tuner.HyperParameters()
    first, second = attention_space(hp, "first"), attention_space(hp, "second")
    assert {name.split("_")[0] for name in hp.values} == {"first", "second"}
    assert first is not second


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mechanisms": ["bahdanu"]}, "mechanisms.*bahdanu"),
        ({"mechanisms": []}, "`mechanisms` must be a list of at least one of luong, bahdanau"),
        ({"mechanisms": "luong"}, "`mechanisms` must be a list .*received 'luong'"),
        ({"scores": ["cosine"]}, "scores.*cosine"),
        ({"alignments": ["local"]}, "alignments.*local"),
        ({"units": (64, 32)}, r"`units\[1\]` must be an integer from 64 to 1048576; received 32 "),
        ({"half_widths": (0, 3)}, r"`half_widths\[0\]` must be a positive integer, .*received 0 "),
        (
            {"half_widths": (1.5, 3)},
            r"`half_widths\[0\]` must be a positive .*received 1.5 ",
        ),
        ({"units": 64}, r"`units` must be two integers, \(smallest, largest\); received 64"),
        ({"scores": ["location"], "max_length": -3}, "max_length.*positive integer"),
        (
            {"scores": ["location"]},
            "`max_length` must .*received None.*needs it",
        ),
        ({"most_dropout": 1.0}, r"most_dropout` must be a number in \[0, 1\); received 1.0"),
        ({"prefix": ""}, "`prefix` must be a string"),
        ({"most_dropout": "x"}, r"most_dropout` must be a number"),
    ],
)
def test_bad_spaces(options, message):
    with pytest.raises(ValueError, match=message):
        attention_space(keras_tuner.HyperParameters(), **options)


def test_scores_of_a_mechanism_that_is_not_searched():
    hp = keras_tuner.HyperParameters()
    layer = attention_space(hp, mechanisms=["bahdanau"], scores=["location"])
    assert type(layer).__name__ == "BahdanauAttention"


def test_a_build_that_is_no_function():
    with pytest.raises(ValueError, match=r"build\(hp, attention\); received 3, 3 is not"):
        AttentionHyperModel(3)
    with pytest.raises(ValueError, match=r"`\*\*space` must be one of 'prefix', .*received 'unit'"):
        AttentionHyperModel(build, unit=(3, 4))


def build(hp, attention):
    query, value = keras.Input((3, 4)), keras.Input((5, 4))
    outputs = keras.layers.Dense(1)(attention(query, value))
    model = keras.Model([query, value], outputs)
    # Eager steps, because a graph takes longer to trace than eight samples take to train.
    model.compile(keras.optimizers.SGD(hp.Float("rate", 0.01, 0.1)), "mse", run_eagerly=True)
    return model


DATA = [np.ones((8, 3, 4)), np.ones((8, 5, 4))], np.ones((8, 3, 1))


def make_tuner(folder, hypermodel, trials=4):
    tuner = keras_tuner.RandomSearch(
        hypermodel,
        "val_loss",
        max_trials=trials,
        seed=3,
        directory=folder,
        project_name="search",
        max_consecutive_failed_trials=9,
    )
    return tuner


@pytest.mark.slow
def test_a_search(tmp_path):
    hypermodel = AttentionHyperModel(build, units=(4, 8), prefix="read")
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
        if hp.Float("rate", 0.01, 0.1) > 0.02:
            raise ArithmeticError("the rate is too large")
        return build(hp, attention)

    tuner = make_tuner(tmp_path, AttentionHyperModel(fail, units=(4, 8)))
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


def test_local_m_is_not_searched_unless_asked_for():
    """local-m needs a position at each decoding step, which the other choices refuse."""
    for alignments, expected in ((None, {"global", "local-p"}), (ALL_ALIGNMENTS, ALL_ALIGNMENTS)):
        hp = hyperparameters(mechanism="luong")
        attention_space(hp, **({} if alignments is None else {"alignments": list(alignments)}))
        (chosen,) = (x for x in hp.space if x.name == "attention_alignment")
        assert set(chosen.values) == set(expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"units": (32, 2**62)}, r"`units\[1\]` must be an integer from 32 to 1048576"),
        (
            {"half_widths": (2, 2**25)},
            r"`half_widths\[1\]` must be an integer from 2 to 16777216",
        ),
        ({"scores": ["location"], "max_length": 2**62}, "max_length.*at most 16777216"),
        ({"scores": "dot"}, r"`scores` must be a list of .*received 'dot'. Write scores=\['dot'\]"),
    ],
)
def test_spaces_of_newcomers(options, message):
    with pytest.raises(ValueError, match=message):
        attention_space(keras_tuner.HyperParameters(), **options)


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
