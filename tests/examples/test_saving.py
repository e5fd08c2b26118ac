"""A model file holds the model that was saved. Otherwise the run ends."""

import json
import subprocess

import keras
import numpy as np
import pytest
import tensorflow as tf

from examples.common import run_saved_model, saving

INPUTS = np.random.default_rng(0).normal(size=(3, 5)).astype("float32")


def make_model(scale=1.0):
    x = keras.Input((5,))
    heads = [keras.layers.Dense(n, kernel_initializer="ones")(x) for n in (2, 7)]
    # Only the last output changes, so all outputs must be compared.
    return keras.Model(x, {"a": heads[0], "b": [keras.layers.Rescaling(scale)(heads[1])]})


def test_a_model_is_written_and_read_again(tmp_path, capsys):
    model, path = make_model(), tmp_path / "model.keras"
    path.write_text("an old one")
    found = saving.write_model(model, path, INPUTS)
    assert capsys.readouterr().out == f"\n{path}: difference after reloading 0\n"
    assert [file.name for file in tmp_path.iterdir()] == ["model.keras"]
    again = keras.saving.load_model(path).predict_on_batch(INPUTS)
    for outputs in (found, model.predict_on_batch(INPUTS)):
        keras.tree.map_structure(np.testing.assert_array_equal, outputs, again)


@pytest.mark.parametrize("scale", [1 + 1e-4, np.nan])
def test_a_file_that_differs_is_noticed(scale, tmp_path, monkeypatch):
    monkeypatch.setattr(keras.saving, "load_model", lambda path: make_model(scale))
    with pytest.raises(SystemExit, match=r"model\.keras differs by .* from the model that was"):
        saving.write_model(make_model(), tmp_path / "model.keras", INPUTS)


def test_a_file_with_another_weight_is_noticed(tmp_path, monkeypatch):
    """The smallest change of a weight counts, although no prediction shows it."""

    def changed(path):
        model = make_model()
        model.weights[0].assign(np.nextafter(model.weights[0].numpy(), 2))
        return model

    monkeypatch.setattr(keras.saving, "load_model", changed)
    with pytest.raises(SystemExit, match=r"model\.keras has other weights than the model that was"):
        saving.write_model(make_model(), tmp_path / "model.keras", INPUTS)


REPLY = {"texts": ["a", "b"], "scores": [0.25, 0.5], "absent": ["keras"]}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, None),
        ({"texts": ["a", "c"]}, r"\['a', 'c'\], expected \['a', 'b'\]"),
        ({"scores": [0.25, 0.5001]}, "by 0.0001"),
        ({"scores": [0.25, np.nan]}, "by nan"),
    ],
)
def test_a_saved_model_that_differs_is_noticed(changes, problem, tmp_path, monkeypatch, capsys):
    reply = subprocess.CompletedProcess((), 0, json.dumps({**REPLY, **changes}))
    monkeypatch.setattr(subprocess, "run", lambda *_, **options: reply)
    expected = {"texts": ["a", "b"], "scores": np.array([0.25, 0.5])}
    if problem:
        with pytest.raises(SystemExit, match=f"differs in a new process.*{problem}"):
            saving.check_saved_model(tmp_path, {"source": ["x"]}, expected)
    else:
        assert saving.check_saved_model(tmp_path, {"source": ["x"]}, expected) == REPLY
        assert "texts and scores equal, numbers within 0; the process" in capsys.readouterr().out


class Joiner(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec((None,), tf.string, x) for x in ("one", "two")])
    def __call__(self, one, two):
        return {"texts": one + two}


@pytest.fixture(scope="module")
def joiner(tmp_path_factory):
    path, module = str(tmp_path_factory.mktemp("joiner")), Joiner()
    tf.saved_model.save(module, path, {"serving_default": module.__call__})
    return path


def ask(path, inputs, monkeypatch):
    """What the program does with inputs, in a process that has keras."""
    for name in ("forbid_keras", "load_text_operations"):
        monkeypatch.setattr(run_saved_model, name, lambda: None)
    run_saved_model.main(path, inputs)


def test_a_saved_model_answers(joiner, monkeypatch, capsys):
    ask(joiner, '{"one": ["a", "b"], "two": ["c", "d"]}', monkeypatch)
    assert '"texts": ["ac", "bd"]' in capsys.readouterr().out


@pytest.mark.parametrize(
    "inputs",
    [
        '["a"]',
        '{"one": ["a"], "two": ["b"], "three": ["c"]}',
        '{"one": ["a"], "two": ["b", "c"]}',
        '{"one": [1], "two": [2]}',
    ],
)
def test_inputs_that_do_not_fit_are_refused(inputs, joiner, monkeypatch):
    with pytest.raises(SystemExit, match="a list for each of one, two") as refused:
        ask(joiner, inputs, monkeypatch)
    assert str(refused.value).endswith(f"received {inputs}")


def test_what_is_no_model_or_no_json_is_refused(joiner, tmp_path, monkeypatch):
    with pytest.raises(SystemExit, match="is no SavedModel: it has no file"):
        ask(tmp_path, "{}", monkeypatch)
    for text in ("a", "[" * 100_000):
        with pytest.raises(SystemExit, match="the inputs are not JSON"):
            ask(joiner, text, monkeypatch)
