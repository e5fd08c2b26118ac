"""Mechanisms with their oracles, comparisons, gradients and errors, for all tests."""

import inspect
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import keras
import ml_dtypes
import numpy as np
import pytest

from keras_attention import (
    BahdanauAttention,
    CoverageAttention,
    DynamicConvolutionAttention,
    ForwardAttention,
    GMMAttention,
    LocationSensitiveAttention,
    LuongAttention,
    MonotonicAttention,
    MultiHead,
    StepwiseMonotonicAttention,
)
from tests import oracles, recurrent_oracles
from tests.backends import compiled, dtypes, gradients_by, tensor
from tests.past_weights import PastWeightsAttention

# For half precision relative, the distance from one to the next number; otherwise absolute.
TOLERANCES = {"float64": 1e-12, "float32": 2e-6, "bfloat16": 2**-7, "float16": 2**-10}
HALVES = "bfloat16", "float16"
DTYPES = list(TOLERANCES)
B, TQ, TK, DQ, DK, DV = 2, 3, 7, 5, 11, 13


def numpy(x):
    """An array NumPy can calculate with: float64 or boolean."""
    x = keras.ops.convert_to_tensor(x)
    return keras.ops.convert_to_numpy(x if x.dtype == "bool" else keras.ops.cast(x, "float64"))


def rounded(x, dtype):
    dtype = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    return np.asarray(x).astype(dtype).astype("float64")


def normal(seed, *shape, dtype="float64"):
    return rounded(np.random.default_rng(seed).normal(size=shape), dtype)


def selected(x, mask, axis):
    shape = x.shape
    x = keras.ops.reshape(x, (*shape[:axis], mask.size, *shape[axis + mask.ndim :]))
    return keras.ops.take(x, np.flatnonzero(mask), axis=axis)


def lengths_mask(lengths, steps):
    return np.arange(steps) < np.array(lengths)[:, None]


def wait_for(happened, seconds=120):
    deadline = time.monotonic() + seconds
    while not happened() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert happened()


def tolerance(expected, dtype="float64", times=1, before=0.5):
    """The tolerances of `numpy.testing.assert_allclose` for numbers of a dtype or dtype policy.

    In half precision the last operation errs by up to one unit in the last place of each number,
    because some processors cut a product where others round it. Those before it err by up to
    `before` units of the largest number: half a unit after the four or so of a layer.
    `times` multiplies the other tolerances.
    """
    dtype = dtype.removeprefix("mixed_")
    limit = TOLERANCES[dtype]
    if dtype in HALVES:
        return {"rtol": limit, "atol": before * limit * np.abs(expected).max(initial=0)}
    return {"rtol": 0, "atol": times * limit}


def assert_close(actual, expected, dtype="float64", **options):
    actual, expected = numpy(actual), np.asarray(expected)
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, **tolerance(expected, dtype, **options))


def assert_all_close(actual, expected, dtype="float64", **options):
    for x, y in zip(actual, expected, strict=True):
        assert_close(x, numpy(y), dtype, **options)


def randomize(layer, seed=0, scale=0.5):
    """Gives every weight, zeros and ones included, a random value that its dtype holds."""
    for n, weight in enumerate(layer.trainable_weights):
        weight.assign(rounded(scale * normal([seed, n], *weight.shape), weight.dtype))
    return layer


def weight_arrays(layer):
    return [numpy(weight) for weight in layer.trainable_weights]


def weight_name(weight):
    """The name of a weight; those of a chunk have the names of others."""
    return "chunk_" * ("chunk_attention/" in weight.path) + weight.name


ORACLES = {
    BahdanauAttention: oracles.bahdanau,
    LuongAttention: oracles.luong,
    PastWeightsAttention: oracles.past_weights,
    CoverageAttention: recurrent_oracles.coverage,
    DynamicConvolutionAttention: recurrent_oracles.dynamic_convolution,
    ForwardAttention: recurrent_oracles.forward,
    GMMAttention: recurrent_oracles.gmm,
    LocationSensitiveAttention: recurrent_oracles.location_sensitive,
    MonotonicAttention: recurrent_oracles.monotonic,
    StepwiseMonotonicAttention: recurrent_oracles.stepwise_monotonic,
}


class AnyCell(keras.layers.GRUCell):
    def call(self, *args, **kwargs):
        return super().call(*args, **kwargs)


@dataclass(frozen=True)
class Mechanism:
    """A configuration of an attention layer, and the oracle of the same equation."""

    layer: type
    options: dict = field(default_factory=dict)
    oracle: Callable | None = field(default=None, kw_only=True)

    @property
    def dk(self):
        return DQ if self.options.get("score_mode") == "dot" else DK

    def make(self, **kwargs):
        return self.layer(**self.options, **kwargs)

    def built(self, dq=DQ, dk=None, dv=DV, seed=0, **kwargs):
        layer = self.make(**kwargs)
        layer.build((None, None, dq), (None, None, dv), (None, None, dk or self.dk))
        return randomize(layer, seed)

    def row(self, layer, weights=None):
        oracle = self.oracle or ORACLES[self.layer]
        known = inspect.signature(oracle).parameters
        options = {k: v for k, v in self.options.items() if k in known}
        names = [weight_name(weight) for weight in layer.trainable_weights]
        return oracle(dict(zip(names, weights or weight_arrays(layer), strict=True)), **options)

    def tensors(self, dtype="float64", seed=1):
        return (
            normal([seed, 0], B, TQ, DQ, dtype=dtype),
            normal([seed, 1], B, TK, DV, dtype=dtype),
            normal([seed, 2], B, TK, self.dk, dtype=dtype),
        )


@dataclass(frozen=True)
class Heads(Mechanism):
    """Several heads, each of which is the mechanism."""

    count: int = 3

    def make(self, **kwargs):
        return MultiHead(super().make(**kwargs), self.count)

    def row(self, layer, weights=None):
        value_kernel, output_kernel, *others = weights or weight_arrays(layer)
        size = len(others) // self.count
        own = [others[n * size : (n + 1) * size] for n in range(self.count)]
        rows = [super(Heads, self).row(*pair) for pair in zip(layer.heads, own, strict=True)]
        return oracles.multi_head(rows, value_kernel, output_kernel)


def with_units(layer, **options):
    return Mechanism(layer, {"units": 17, **options})


BAHDANAU = {
    "plain": with_units(BahdanauAttention),
    "bias": with_units(BahdanauAttention, use_bias=True),
    "normalized": with_units(BahdanauAttention, weight_norm=True),
    "sparse": with_units(
        BahdanauAttention, use_bias=True, weight_norm=True, normalizer="sparsemax"
    ),
}
LAST = {"cumulative": False, "normalizer": "entmax15"}
RECURRENT = {
    "location": with_units(LocationSensitiveAttention, filters=3, kernel_size=5),
    "location, last": with_units(LocationSensitiveAttention, filters=3, kernel_size=4, **LAST),
    "coverage": with_units(CoverageAttention, use_bias=False),
    "forward": with_units(ForwardAttention),
    "forward, agent": with_units(ForwardAttention, transition_agent=True),
    "monotonic": with_units(MonotonicAttention),
    "monotonic, recursive": with_units(MonotonicAttention, mode="recursive"),
    "monotonic, hard": with_units(MonotonicAttention, mode="hard", chunk_size=1),
    "monotonic, chunks": with_units(MonotonicAttention, chunk_size=3),
    "stepwise": with_units(StepwiseMonotonicAttention),
    "stepwise, hard": with_units(StepwiseMonotonicAttention, hard=True),
    "gmm V0": with_units(GMMAttention, components=3, version="V0"),
    "gmm V2": with_units(GMMAttention, components=3, version="V2"),
    "gmm V2b": with_units(GMMAttention),
    "dynamic convolution": with_units(
        DynamicConvolutionAttention, filters=2, kernel_size=3, prior_length=4
    ),
}
LOCATION = {"location": {"max_length": 19}}
LUONG = {
    f"{score}-{alignment}": Mechanism(
        LuongAttention,
        {"score_mode": score, "alignment": alignment, "half_width": 2, **LOCATION.get(score, {})},
    )
    for score in ("dot", "general", "concat", "location")
    for alignment in ("global", "local-m", "local-p")
}
MECHANISMS = {
    "bahdanau": BAHDANAU["sparse"],
    **LUONG,
    "vector": Mechanism(LuongAttention, {**LUONG["general-local-p"].options, "units": 23}),
    "past weights": Mechanism(PastWeightsAttention),
    **{name: RECURRENT[name] for name in ("location", "monotonic, chunks", "gmm V2b")},
}
HEADS = {
    f"heads, {name}": Heads(mechanism.layer, mechanism.options)
    for name, mechanism in MECHANISMS.items()
    if name in ("bahdanau", "concat-local-m", "vector", "location")
}
HEADS["one head"] = Heads(BahdanauAttention, {"units": 17}, count=1)
MECHANISMS |= HEADS


MASKS = {
    "query_mask": np.array([[True, True, True], [True, False, True]]),
    "value_mask": np.array([[1, 1, 1, 1, 1, 1, 0], [0, 1, 1, 0, 1, 1, 1]], bool),
}


def assert_equals_the_paper(mechanism, dtype="float64", jit=False, before=0.5, scaled=False):
    """The output and the weights are those of the oracle of a mechanism; what masks hide is NaN.

    `scaled` divides both by the largest value, where values may be above one.
    """
    layer, tensors = mechanism.built(dtype=dtype), mechanism.tensors(dtype)
    masks = [MASKS[f"{name}_mask"][..., None] for name in ("query", "value", "value")]
    spoiled = (np.where(mask, x, np.nan) for mask, x in zip(masks, tensors, strict=True))

    def call(*inputs):
        return layer(*inputs, **MASKS, return_attention_scores=True)

    output, weights = compiled(call, jit)(*map(tensor, spoiled))
    expected = oracles.attend(mechanism.row(layer), *tensors, **MASKS)
    assert dtypes(output, weights) == [dtype, dtype]
    scale = max(1.0, *(np.abs(x).max() for x in expected)) if scaled else 1.0
    for actual, wanted in zip((output, weights), expected, strict=True):
        assert_close(numpy(actual) / scale, wanted / scale, dtype, before=before)
    masked = ~np.broadcast_to(MASKS["value_mask"][:, None], (B, TQ, TK))
    assert not numpy(weights)[masked].any()


class Weightless:
    """A stand-in for the layer in `assert_gradients`: a function has no weights."""

    trainable_weights = ()


def loss_of(outputs):
    """A fixed random combination of all numbers in the outputs, so that none goes unseen."""
    total = 0.0
    for n, output in enumerate(outputs):
        mix = normal([97, n], *output.shape)
        if isinstance(output, np.ndarray):
            total = total + np.sum(mix * output)
        else:
            mix = keras.ops.convert_to_tensor(mix, "float64")
            total = total + keras.ops.sum(mix * keras.ops.cast(output, "float64"))
    return total


def gradients(layer, call, inputs, jit=False):
    """Outputs of `call(*inputs)`, a list; gradients of their `loss_of` by inputs and weights."""

    def run(*inputs):
        outputs = call(*inputs)
        return loss_of(outputs), outputs

    return gradients_by(run, inputs, layer.trainable_weights, jit)


def assert_gradients(layer, call, inputs, oracle, step=1e-5, jit=False):
    """The layer's gradients are the central differences of `oracle(inputs, weights)`.

    They are compared along random directions of length one, where an error in any number shows.
    """
    arrays = [np.array(x) for x in (*inputs, *weight_arrays(layer))]
    outputs, found = gradients(layer, call, inputs, jit)

    def loss():
        return loss_of(oracle(arrays[: len(inputs)], arrays[len(inputs) :]))

    assert numpy(loss_of(outputs)) == pytest.approx(loss(), abs=1e-10)
    for n, (array, gradient) in enumerate(zip(arrays, found, strict=True)):
        kept = array.copy()
        assert gradient.shape == kept.shape
        for direction in normal([98, n], 3, *kept.shape):
            direction = direction / np.linalg.norm(direction)
            losses = []
            for sign in (1, -1):
                array[...] = kept + sign * step * direction
                losses.append(loss())
            expected = (losses[0] - losses[1]) / (2 * step)
            assert np.sum(numpy(gradient) * direction) == pytest.approx(expected, rel=0, abs=1e-7)
        array[...] = kept


def arguments(shapes, symbolic):
    """Arrays, or symbolic inputs, of the shapes given by name; a mask is a name with "mask" in it.

    A shape may be followed by a dtype.
    """
    made = {}
    for name, shape in shapes.items():
        dtype = "bool" if "mask" in name else "float32"
        if shape and isinstance(shape[-1], str):
            *shape, dtype = shape
        symbol = keras.Input(batch_shape=shape, dtype=dtype) if symbolic else None
        made[name] = symbol if symbolic else np.ones(shape, dtype)
    return made


def assert_refused(call, *fragments):
    """`call()` raises a ValueError that says all of this.

    On PyTorch, Keras 3.12 quotes it in an error of its own where `fit` builds a model.
    """
    with pytest.raises((ValueError, RuntimeError), match=re.escape(fragments[0])) as error:
        call()
    assert error.type is not RuntimeError or "automatically build the model" in str(error.value)
    for fragment in fragments[1:]:
        assert fragment in str(error.value)


def refusals(*cases):

    @pytest.mark.parametrize(("call", "words"), [(call, words) for call, *words in cases])
    def test(call, words):
        assert_refused(call, *words)

    return test


def padded(x, places, fill, axis=1):
    """An array with entries inserted before these places, which hold the fills in turn."""
    kept = np.insert(np.ones(x.shape[axis], bool), places, False)
    kept = np.expand_dims(kept, [n for n in range(x.ndim) if n != axis])
    long = np.insert(x, places, 0, axis=axis)
    return np.where(kept, long, np.resize(fill, long.shape)).astype(x.dtype)


def assert_masking_is_truncating(layer, call, inputs, hidden, places, axis=1, dtype="float64"):
    """Masked padding changes neither outputs nor gradients; its weights and gradients are zero.

    `call` takes the inputs, arrays without padding, and a mask or None, and returns a list.
    `hidden` are the numbers of the inputs that the mask belongs to. Their `axis` is padded at
    `places`, and gets a size of its own.
    """
    first = inputs[hidden[0]]
    kept = np.insert(np.ones(first.shape[axis], bool), places, False)
    mask = np.insert(np.ones(first.shape[:-1], bool), places, False, axis=axis)
    outputs, expected = gradients(layer, lambda *x: call(*x, None), inputs)

    def at(x, chosen):
        return selected(x, chosen, tuple(x.shape).index(len(kept)))

    def masked(*x):
        found = call(*x, mask)
        first = [at(y, kept) if len(kept) in y.shape else y for y in found]
        return first + [at(y, ~kept) for y in found if len(kept) in y.shape]

    fill = [0.0, np.inf, np.nan, -np.inf, 3.0]
    long = [padded(x, places, fill, axis) if n in hidden else x for n, x in enumerate(inputs)]
    found_outputs, found = gradients(layer, masked, long)
    found_outputs, rest = found_outputs[: len(outputs)], found_outputs[len(outputs) :]
    assert rest
    assert not any(numpy(x).any() for x in rest)
    for n in hidden:
        assert not numpy(selected(found[n], ~kept, axis)).any()
        found[n] = selected(found[n], kept, axis)
    assert_all_close([*found_outputs, *found], [*outputs, *expected], dtype)


def assert_dropout_is_for_training(make, inputs, **options):
    """In training every call drops other weights; what a layer returns is those before dropout.

    `make()` returns a layer with random weights and dropout, always the same.
    """
    layer, twin = make(), make()

    def call(layer, **training):
        found = layer(*inputs, **options, **training, return_attention_scores=True)
        return [numpy(x) for x in keras.tree.flatten(found)]

    quiet, *weights = call(layer)
    assert np.array_equal(call(layer, training=False)[0], quiet)
    results = [call(layer, training=True) for _ in range(2)]
    first, second = (x[0] for x in results)
    assert not np.isclose(first, quiet).all()
    assert not np.isclose(first, second).all()
    for _, *same in results:
        assert all(np.array_equal(x, y) for x, y in zip(same, weights, strict=True))
    for wanted in (first, second):
        assert np.array_equal(call(twin, training=True)[0], wanted)


def assert_drops(read, weights, rate=0.4):
    """What was read are the weights, of which dropout has dropped this share and scaled the rest.

    Returns where it dropped them.
    """
    ratio = numpy(read) / numpy(weights)
    dropped = ratio == 0
    np.testing.assert_allclose(ratio[~dropped], 1 / (1 - rate), rtol=1e-4)
    # Three standard deviations of the mean of so many draws.
    assert abs(dropped.mean() - rate) < 3 * np.sqrt(rate * (1 - rate) / dropped.size)
    return dropped


def assert_steps_equal_the_call(decoder, sequences, memory, mask=None, dtype="float32"):
    """Steps of a decoder, or of a stack, return what one call does. Returns the last state."""
    sequences, memory = keras.tree.map_structure(tensor, [sequences, memory])
    masks = {} if mask is None else {"memory_mask": keras.tree.map_structure(tensor, mask)}
    outputs, *_, weights = decoder(sequences, memory, **masks, return_attention_scores=True)
    prepared = decoder.prepare(memory, **masks)
    state = decoder.get_initial_state(prepared)
    for i in range(sequences.shape[1]):
        output, state, align = decoder.step(sequences[:, i], state, prepared)
        found = keras.tree.flatten([output, align])
        expected = keras.tree.flatten([outputs, weights])
        assert_all_close(found, [x[:, i] for x in expected], dtype)
    assert numpy(state.position).tolist() == [sequences.shape[1]] * len(sequences)
    return state
