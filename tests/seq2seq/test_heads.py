"""What all heads have in common: configuration, symbols, saving, training, mixed precision."""

import json

import keras
import numpy as np
import pytest

from keras_attention.seq2seq import HardAttention, PointerGenerator, Readout
from tests.backends import XLA, dtypes
from tests.helpers import normal, numpy, randomize

B, T, TK, H, D, E, V = 2, 3, 4, 5, 3, 7, 6
CASES = {
    "readout": (Readout, {"units": 5, "vocabulary_size": V, "activation": "relu"}
                | {"dropout": 0.2, "seed": 3}),
    "pointer": (PointerGenerator, {"vocabulary_size": V - 2, "max_extra": 2, "units": 3}
                | {"unknown_token": 0}),
    "hard": (HardAttention, {"vocabulary_size": V, "units": 5}),
    "hard, monotonic": (HardAttention, {"vocabulary_size": V, "units": 5, "monotonic": True}),
    "hard, reinforce": (HardAttention, {"vocabulary_size": V, "units": 5, "seed": 3}
                        | {"estimator": "reinforce", "entropy_weight": 0.1, "pad_token": 1}),
}  # fmt: skip
every_head = pytest.mark.parametrize(("kind", "options"), CASES.values(), ids=CASES)
READ = {"inputs": (T, E), "context": (T, D), "memory": (TK, D)}
WEIGHTS = np.full((B, T, TK), 1 / TK, "float32")
IDS = {"tokens": (B, T), "targets": (B, T), "source": (B, TK)}


def arrays(output=(T, H)):
    made = {name: normal(n, B, *size, dtype="float32") for n, (name, size) in
            enumerate({"output": output, **READ}.items())}  # fmt: skip
    made = {name: x.astype("float32") for name, x in made.items()} | {"weights": WEIGHTS}
    made["memory_mask"] = np.arange(TK) < [[TK], [2]]
    rng = np.random.default_rng(1)
    return made | {name: rng.integers(1, V, size).astype("int32") for name, size in IDS.items()}


def model_of(head):
    """A functional model of the head, whose sizes of batch and steps are not known."""
    given = {name: x for name, x in arrays().items() if name in ("output", *head.reads)}
    steps = {name: (None,) * (2 if name == "weights" else 1) for name in given}
    inputs = {
        name: keras.Input((*steps[name], *x.shape[2:][: x.ndim - 1 - len(steps[name])]),
                          dtype=x.dtype.name, name=name)
        for name, x in given.items()
    }  # fmt: skip
    rest = {name: x for name, x in inputs.items() if name != "output"}
    return randomize(keras.Model(inputs, head(inputs["output"], **rest))), given


@every_head
def test_config(kind, options):
    head = kind(**options)
    assert {name: head.get_config()[name] for name in options} == options
    text = json.dumps(keras.saving.serialize_keras_object(head))
    twin = keras.saving.deserialize_keras_object(json.loads(text))
    assert type(twin) is kind
    assert json.dumps(keras.saving.serialize_keras_object(twin)) == text


@every_head
def test_a_saved_model_returns_the_same(kind, options, tmp_path):
    model, given = model_of(kind(**options))
    assert model.output_shape == (None, None, V)
    model.save(tmp_path / "model.keras")
    expected = numpy(model(given))
    assert expected.shape == (B, T, V)
    assert np.array_equal(numpy(keras.saving.load_model(tmp_path / "model.keras")(given)), expected)


@pytest.mark.slow
@every_head
@pytest.mark.parametrize("mode", ["int8", "int4"])
@pytest.mark.each_value
@pytest.mark.filterwarnings("ignore:.*does not have a `quantize` method")
def test_a_quantised_model_is_saved(kind, options, mode, tmp_path):
    model, given = model_of(kind(**options))
    head = next(layer for layer in model.layers if isinstance(layer, kind))
    model.quantize(mode)
    assert head.logits.quantization_mode == mode
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.get_layer(head.name).logits.quantization_mode == mode
    assert np.array_equal(numpy(again(given)), numpy(model(given)))


@every_head
@pytest.mark.parametrize("dtype", ["float32", "mixed_float16"])
@pytest.mark.parametrize("jit", [False, True] if XLA else [False], ids=["graph", "jit"][: 1 + XLA])
@pytest.mark.each_value
def test_training(kind, options, dtype, jit):
    model, given = model_of(kind(**options, dtype=dtype))
    before = [numpy(x) for x in model.trainable_variables]
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                  jit_compile=jit)  # fmt: skip
    model.fit(given, given.get("targets", arrays()["targets"]), verbose=0)
    after = [numpy(x) for x in model.trainable_variables]
    assert all(np.isfinite(x).all() for x in after)
    assert all((x != y).any() for x, y in zip(before, after, strict=True))


@every_head
def test_logarithms_have_full_precision(kind, options):
    head, given = kind(**options, dtype="mixed_bfloat16"), arrays()
    output = given.pop("output")
    found = head(output, **{name: given[name] for name in head.reads})
    assert dtypes(found) == ["bfloat16" if kind is Readout else "float32"]
