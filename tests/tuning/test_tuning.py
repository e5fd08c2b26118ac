"""Search spaces of attention: every choice makes a layer, and failed trials are reported."""

import keras
import numpy as np
import pytest

from keras_attention import BahdanauAttention

keras_tuner = pytest.importorskip("keras_tuner", reason="keras-tuner is not installed")

from keras_attention import tuning  # noqa: E402
from keras_attention.tuning import attention_space, completed_trials  # noqa: E402


@pytest.mark.parametrize("name", tuning.MECHANISMS)
def test_every_choice_reaches_the_layer(name):
    """And no hyperparameter is searched that the layer does not take."""
    chosen = {"units": 64, "normalizer": "sparsemax", "dropout": 0.2, "score_mode": "concat"}
    absent = [x for x in chosen if (x, name) in tuning.UNUSED]
    absent += ["score_mode"] * (name != "luong")
    hp = keras_tuner.HyperParameters()
    hp.values = {f"attention_{x}": value for x, value in chosen.items()}
    layer = attention_space(hp, mechanisms=[name])
    assert type(layer) is tuning.MECHANISMS[name]
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
    layer = attention_space(hp)  # the default
    assert (type(layer), layer.units, layer.dropout) == (BahdanauAttention, 32, 0.0)
    # The hyperparameter of another mechanism is not active.
    assert set(hp.values) == {
        f"attention_{name}" for name in ("mechanism", "units", "normalizer", "dropout")
    }
    hp = keras_tuner.HyperParameters()
    options = {"alignment": ["local-p", "global"], "half_width": 3, "units": None, "dropout": 0.1}
    layer = attention_space(hp, mechanisms=["luong"], **options, normalizer=["sparsemax"])
    config = layer.get_config()
    expected = {**options, "alignment": "local-p", "normalizer": "sparsemax"}
    assert {name: config[name] for name in expected} == expected
    searched = {"mechanism", "alignment", "score_mode", "normalizer"}
    assert {x.name for x in hp.space} == {f"attention_{name}" for name in searched}
    hp.Choice("other_use_bias", [True, False])
    layer = attention_space(hp, "other", weight_norm=[True], use_bias=[False, True], name="read")
    assert (layer.weight_norm, layer.use_bias, layer.name) == (True, True, "read")


def build(hp, **options):
    query, value = keras.Input((3, 4)), keras.Input((5, 4))
    outputs = keras.layers.Dense(1)(attention_space(hp, **options)(query, value))
    model = keras.Model([query, value], outputs)
    model.compile(keras.optimizers.SGD(hp.Float("rate", 0.01, 0.1)), "mse")
    return model


def drawn(folder, build, count, **options):
    options |= {"directory": folder, "seed": 3, "max_trials": count}
    tuner = keras_tuner.RandomSearch(build, "val_loss", **options)
    for number in range(count):
        hp = tuner.oracle.create_trial(f"{number}").hyperparameters
        yield {x.name: hp.get(x.name) for x in hp.space if hp.is_active(x)}


def test_the_search_knows_the_whole_space(tmp_path):
    """Every hyperparameter is sampled, and only where the layer takes it."""

    def three(hp):
        return build(hp, mechanisms=["bahdanau", "luong", "gmm"])

    found = {}
    for values in drawn(tmp_path, three, 200):
        chosen = found.setdefault(values.pop("attention_mechanism"), {})
        for name, value in values.items():
            chosen.setdefault(name.removeprefix("attention_"), set()).add(value)
    own = {"bahdanau": {"normalizer"}, "gmm": set(), "luong": {"normalizer", "score_mode"}}
    for chosen, names in own.items():
        assert found[chosen].keys() == {"rate", "units", "dropout"} | names
        assert found[chosen]["units"] == {32, 64, 128, 256}
        assert found[chosen]["dropout"] == {0, 0.2, 0.4}
    assert found["luong"]["score_mode"] == {"general", "concat"}


def test_a_search_keeps_what_is_declared_before(tmp_path):
    """Whether all mechanisms take it or only some."""
    hp = keras_tuner.HyperParameters()
    hp.Fixed("attention_score_mode", "dot")
    hp.Fixed("attention_units", 48)
    hp.Choice("attention_dropout", [0.3, 0.5])
    found = list(drawn(tmp_path, build, 30, hyperparameters=hp))
    expected = {"units": {48}, "dropout": {0.3, 0.5}, "score_mode": {"dot"}}
    expected["mechanism"] = {"bahdanau", "luong"}
    assert {name: {x[f"attention_{name}"] for x in found} for name in expected} == expected
    hp.values["attention_mechanism"] = "luong"
    layer = attention_space(hp)
    assert (layer.score_mode, layer.units, layer.dropout) == ("dot", 48, 0.3)


@pytest.mark.parametrize(("options", "message"), [
    ({"mechanisms": ["bahdanu"]}, "mechanisms.*bahdanu"),
    ({"score_mode": ["general", "dott"]}, "attention_space: `score_mode` must .*'dott'"),
    ({"score_mode": "dott"}, "attention_space: `score_mode` must .*'dott'"),
    ({"scores": ["dot"]}, "Unrecognized .*'scores'"),
    ({"mechanisms": ["gmm"], "normalizer": ["sparsemax"]},
     "`normalizer` must be one of 'softmax'; received 'sparsemax'"),
    ({"units": []}, r"`units` must be .*received \[\]"),
])  # fmt: skip
def test_bad_spaces(options, message):
    """Whichever is chosen first, and before a search begins."""
    with pytest.raises(ValueError, match=message):
        attention_space(keras_tuner.HyperParameters(), **options)


# NumPy warns when keras-tuner reads an objective that is not a number.
@pytest.mark.filterwarnings("ignore:All-NaN axis encountered")
def test_failed_trials_are_not_hidden(tmp_path):
    """Each is named, and no other. docs/howto/tune.md says when a search raises by itself."""

    class Tuner(keras_tuner.GridSearch):  # its trials train no model
        wrong = (1,)

        def run_trial(self, trial, **options):
            number = trial.hyperparameters.Int("number", 0, 4)
            if number in self.wrong:
                raise ArithmeticError("wrong")
            return float("nan") if number == 3 else number

    tuner = Tuner(directory=tmp_path)
    assert completed_trials(tuner) == []
    tuner.search(verbose=0)
    with pytest.raises(RuntimeError, match="2 of 5 trials failed") as caught:
        completed_trials(tuner)
    _, first, second = str(caught.value).splitlines()
    assert first == "  0001: ArithmeticError: wrong"
    assert second.startswith("  0003: no error, but its objective was not a number")
    tuner = Tuner(directory=tmp_path, project_name="three")
    tuner.wrong = (0, 1, 2)
    with pytest.raises(RuntimeError, match="consecutive failures exceeded the limit of 3"):
        tuner.search(verbose=0)
    assert len(tuner.oracle.trials) == 3
