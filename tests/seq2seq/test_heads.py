"""What all heads have in common, and the readout against loops."""

import json

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.seq2seq import HardAttention, PointerGenerator, Readout
from tests import helpers
from tests.backends import XLA, dtypes
from tests.helpers import DTYPES, assert_close, normal, numpy, randomize, refusals, weight_arrays

B, T, TK, H, D, E, U, V = 2, 3, 4, 5, 3, 7, 11, 6
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
FLOATS = {"output": (T, H), "inputs": (T, E), "context": (T, D), "memory": (TK, D)}
IDS = {"tokens": (B, T), "targets": (B, T), "source": (B, TK)}


def arrays(dtype="float32"):
    floats = {name: normal(n, B, *FLOATS[name], dtype=dtype) for n, name in enumerate(FLOATS)}
    floats |= {"weights": np.full((B, T, TK), 1 / TK)}
    made = {name: x.astype(dtype) for name, x in floats.items()}
    made["memory_mask"] = np.arange(TK) < [[TK], [2]]
    rng = np.random.default_rng(1)
    return made | {name: rng.integers(1, V, size).astype("int32") for name, size in IDS.items()}


def model_of(head):
    """A functional model of the head, whose sizes of batch and steps are not known."""
    given = {name: x for name, x in arrays().items() if name in ("output", *head.reads)}
    inputs = {}
    for name, x in given.items():
        shape = (None, None) if name == "weights" else (None, *x.shape[2:])
        inputs[name] = keras.Input(shape, dtype=x.dtype.name, name=name)
    rest = {name: x for name, x in inputs.items() if name != "output"}
    return randomize(keras.Model(inputs, head(inputs["output"], **rest))), given


@every_head
def test_a_config_and_a_file_make_the_same(kind, options, reloaded):
    head = kind(**options)
    assert {name: head.get_config()[name] for name in options} == options
    text = json.dumps(keras.saving.serialize_keras_object(head))
    twin = keras.saving.deserialize_keras_object(json.loads(text))
    assert json.dumps(keras.saving.serialize_keras_object(twin)) == text
    model, given = model_of(twin)
    assert model.output_shape == (None, None, V)
    expected = numpy(model(given))
    assert expected.shape == (B, T, V)
    assert np.array_equal(numpy(reloaded(model)(given)), expected)


@pytest.mark.slow
@every_head
@pytest.mark.parametrize("mode", ["int8", "int4"])
@pytest.mark.each_value
@pytest.mark.filterwarnings("ignore:.*does not have a `quantize` method")
def test_a_quantised_model_is_saved(kind, options, mode, reloaded):
    model, given = model_of(kind(**options))
    head = next(layer for layer in model.layers if isinstance(layer, kind))
    model.quantize(mode)
    again = reloaded(model)
    for one in (head, again.get_layer(head.name)):
        assert one.logits.quantization_mode == mode
    assert np.array_equal(numpy(again(given)), numpy(model(given)))


@every_head
@pytest.mark.parametrize("dtype", ["float32", "mixed_float16"])
@pytest.mark.parametrize("jit", [False, True] if XLA else [False], ids=["graph", "jit"][: 1 + XLA])
@pytest.mark.each_value
def test_training(kind, options, dtype, jit):
    model, given = model_of(kind(**options, dtype=dtype))
    before = [numpy(x) for x in model.trainable_variables]
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, jit_compile=jit)
    model.fit(given, given.get("targets", arrays()["targets"]), verbose=0)
    after = [numpy(x) for x in model.trainable_variables]
    assert all(np.isfinite(x).all() for x in after)
    assert all((x != y).any() for x, y in zip(before, after, strict=True))
    # Logarithms have full precision.
    expected = "float16" if kind is Readout and dtype == "mixed_float16" else "float32"
    assert dtypes(model(given)) == [expected]


FORMS = {
    "plain": {"vocabulary_size": V},
    "linear": {"vocabulary_size": V, "activation": None},
    "maxout": {"vocabulary_size": V, "activation": "maxout"},
    "tied": {},
}
every_form = pytest.mark.parametrize("options", FORMS.values(), ids=FORMS)


def built(options=FORMS["tied"], **more):
    layer = Readout(U, **options, **more)
    layer.build((None, None, H), (None, None, E))
    return randomize(layer)


def paper(layer, output, inputs, weights):
    """The logits of every step, or the hidden layer without weights for logits."""
    kernel, bias, *last = weights
    found = np.zeros((B, T, last[0].shape[1] if last else U))
    for b, i in np.ndindex(B, T):
        hidden = np.concatenate([output[b, i], inputs[b, i]]) @ kernel + bias
        if layer.activation == "maxout":
            hidden = np.array([max(hidden[2 * n : 2 * n + 2]) for n in range(len(hidden) // 2)])
        elif layer.activation is not None:
            hidden = getattr(np, layer.activation)(hidden)
        found[b, i] = hidden @ last[0] + last[1] if last else hidden
    return found


def tensors(dtype="float64"):
    return [arrays(dtype)[name] for name in ("output", "inputs")]


@every_form
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_readout_equals_the_paper(options, dtype):
    layer = built(options, dtype=dtype)
    inputs = [normal([1, n], B, T, size, dtype=dtype) / 2 for n, size in enumerate((H, E))]
    output, read = (ops.cast(x, dtype) for x in inputs)
    found = layer(output, inputs=read)
    assert dtypes(found) == [dtype]
    assert layer.tied == ("vocabulary_size" not in options)
    expected = paper(layer, *inputs, weight_arrays(layer))
    assert_close(found, expected, dtype, before=1)
    assert_close(layer(output[:, 1], inputs=read[:, 1]), expected[:, 1], dtype, before=1)


@every_form
@pytest.mark.parametrize("jit", [False, True], ids=["eager", "jit"])
@pytest.mark.each_value
def test_gradients_of_a_readout(options, jit):
    layer = built(options, dtype="float64")
    oracle = lambda inputs, weights: [paper(layer, *inputs, weights)]  # noqa: E731
    helpers.assert_gradients(layer, lambda x, y: [layer(x, inputs=y)], tensors(), oracle, jit=jit)


def test_dropout_of_a_readout_is_for_training():
    layer, (output, inputs) = built(dropout=0.5, seed=3), tensors("float32")
    quiet = numpy(built()(output, inputs=inputs))
    assert_close(layer(output, inputs=inputs), quiet, "float32")
    loud = numpy(layer(output, inputs=inputs, training=True))
    dropped = loud == 0
    assert dropped.any()
    assert not dropped.all()
    assert_close(loud[~dropped], 2 * quiet[~dropped], "float32")


OUTPUT, INPUTS = tensors("float32")
FLOATING = "`inputs` must be floating-point"
test_mistakes = refusals(
    (lambda: Readout(3, vocabulary_size=0),
     "`vocabulary_size`", "a positive integer", "received 0"),
    (lambda: Readout(3, activation="max"), "activation", "max"),
    (lambda: Readout(3, dropout=1), "`dropout`", "[0, 1)", "received 1"),
    (lambda: Readout(3)(OUTPUT), FLOATING, "received None. Call head(output, inputs=...)"),
    (lambda: built()(OUTPUT, inputs=INPUTS[:, 0]), FLOATING + ", of shape", "of shape (2, 7)"),
    (lambda: built()(OUTPUT, inputs=INPUTS[:1]), "`output` has batch size 2", "of shape (1, 3, 7)"),
)  # fmt: skip
