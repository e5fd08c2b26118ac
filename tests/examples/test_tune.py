"""The search of an attention: it ends, resumes, and hides no failure."""

import keras
import numpy as np
import pytest

import keras_attention

pytest.importorskip("keras_tuner", reason="keras-tuner is not installed")
import keras_tuner

from examples.common.dates import make_pairs
from examples.tuning import __main__ as command
from examples.tuning import model as translator

SMALL = ["--searches", "bayesian", "--trials", "2", "--epochs", "2", "--pairs", "64", "--output"]


def test_data():
    [(source, target)] = translator.load_data([50], seed=1)
    [(written, iso)] = make_pairs([50], seed=1)
    assert (source.shape, target.shape) == ((50, 40), (50, 11))
    read, aim = (
        ["".join(translator.CHARACTERS[n - 1] for n in row if n) for row in ids]
        for ids in (source, target)
    )
    assert read == [text.lower() for text in written]
    assert aim == [text + "$" for text in iso]


def weights_of(values):
    hp = keras_tuner.HyperParameters()
    hp.values = values
    model = translator.build(hp, seed=0)
    return model.get_weights(), command.describe(hp)


@pytest.mark.slow
def test_a_model_is_the_same_whatever_was_built_before():
    values = {"units": 32, "learning_rate": 0.00123456, "attention_mechanism": "bahdanau"}
    (first, _), (between, _), (again, line) = (
        weights_of({**values, "units": units}) for units in (32, 64, 32)
    )
    assert [x.shape for x in between] != [x.shape for x in first]
    for x, y in zip(again, first, strict=True):
        np.testing.assert_array_equal(x, y)
    # The options of the other mechanism are left out.
    assert {"units 32", "attention_units 32", "learning_rate 0.001235"} < set(line.split(", "))
    assert "attention_score_mode" not in line


def test_more_pairs_than_days_are_refused(capsys):
    with pytest.raises(SystemExit) as error:
        command.parse(["--pairs", "100000"])
    assert error.value.code == 2
    assert "--pairs: must be in [1, 71550)" in capsys.readouterr().err


@pytest.mark.slow
def test_a_search_that_is_stopped_resumes(tmp_path, monkeypatch, capsys):
    """Training is replaced: large models win, and the second trial stops the first run."""
    fits = []

    def fit(model, *_, callbacks=(), **__):
        fits.append(model)
        if len(fits) == 2:
            raise KeyboardInterrupt
        history = keras.callbacks.History()
        called = keras.callbacks.CallbackList([*callbacks, history], model=model)
        called.on_train_begin()
        called.on_epoch_end(0, {"val_accuracy": 1 - 100 / model.count_params()})
        called.on_train_end()
        return history

    def evaluate(model, *_, **__):
        return {"accuracy": 1 - 100 / model.count_params(), "right_dates": 0.0}

    monkeypatch.setattr(keras_attention.Seq2Seq, "fit", fit)
    monkeypatch.setattr(keras_attention.Seq2Seq, "evaluate", evaluate)
    options = [*SMALL, str(tmp_path)]
    with pytest.raises(KeyboardInterrupt):
        command.main(options)
    capsys.readouterr()
    for trained in (1, 0):  # the second trial, and then none
        before = len(fits)
        command.main(options)
        assert len(fits) - before - 2 == trained
        printed = capsys.readouterr().out
        assert "bayesian, 2 trials, all completed" in printed
        assert "is ahead by" in printed
    with pytest.raises(SystemExit, match="other settings"):
        command.main([*options, "--seed", "5"])


@pytest.mark.slow
def test_a_trial_that_fails_stops_the_search_with_its_cause(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise ArithmeticError("no luck")

    monkeypatch.setattr(keras_attention.Seq2Seq, "fit", fail)
    with pytest.raises(RuntimeError, match="no luck"):
        command.main([*SMALL, str(tmp_path)])
