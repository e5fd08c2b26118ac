"""The loop of a decoder on JAX."""

import jax
import keras
import numpy as np
import pytest
from keras import layers, ops

import keras_attention as ka
from keras_attention.backend import jax as backend
from keras_attention.recurrence import AutomaticOp, recur
from tests import fast
from tests.attention.test_recurrent_scoring import Noisy, check_noise, inputs
from tests.decoder.cases import MASKS, tensors
from tests.helpers import HEADS, RECURRENT, normal

CELLS = {
    "gru": lambda: layers.GRUCell(11),
    "stack": lambda: [layers.LSTMCell(5), layers.GRUCell(11)],
}
ATTENTIONS = {
    "additive": lambda: ka.BahdanauAttention(17),
    "local-m": lambda: ka.LuongAttention("general", "local-m", half_width=2, units=7),
}
OPTIONS = {"previous": {"query": "previous"}, "fed": {"input_feeding": True}}


def assert_same(found, expected):
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.each_value
def test_the_gradient_of_training_is_that_of_jax(cell, attention, options):
    """Without training, JAX differentiates the loop."""
    layer = ka.AttentionRNN(CELLS[cell](), ATTENTIONS[attention](), **OPTIONS[options])
    sequences, memory = tensors("float32")
    layer(sequences, memory)
    found, expected = (gradients(layer, sequences, memory, training) for training in (True, False))
    assert_same(found, expected)


def variables(layer):
    """The values of the trainable variables, and of the others."""
    both = layer.trainable_variables, layer.non_trainable_variables
    return ([x.value for x in xs] for xs in both)


def gradients(layer, sequences, memory, training):
    """The gradients of all weights and of both inputs."""
    weights, others = variables(layer)

    def loss(weights, sequences, memory):
        options = {"training": training, **MASKS}
        output, _ = layer.stateless_call(weights, others, sequences, memory, **options)
        return ops.sum(ops.sin(output))

    gradient = jax.jit(jax.grad(loss, argnums=(0, 1, 2)))
    found = jax.tree.leaves(gradient(weights, sequences, memory))
    assert len(found) == len(weights) + 2
    return found


@pytest.mark.parametrize(
    "case", [("gru", "additive", "previous"), ("stack", "local-m", "fed")], ids=lambda x: x[0]
)
def test_on_a_gpu_the_gradient_is_the_same(case, monkeypatch):
    monkeypatch.setattr(backend, "_device", lambda: "gpu")
    scanned, original = [], backend.scan_packed
    monkeypatch.setattr(backend, "scan_packed", lambda *args: scanned.append(1) or original(*args))
    test_the_gradient_of_training_is_that_of_jax(*case)
    assert len(scanned) == 2


class Joined(ka.BahdanauAttention):  # an attention whose output needs a weight
    def build(self, query_shape, value_shape=None, key_shape=None):
        super().build(query_shape, value_shape, key_shape)
        size = query_shape[-1] + value_shape[-1]
        self.output_kernel = self.add_weight((size, size), name="output_kernel")

    def combine(self, query, context):
        return ops.tanh(self.project(ops.concatenate([query, context], -1), self.output_kernel))

    def output_size(self, query_size, value_size):
        return query_size + value_size


SIDE_BY_SIDE = {
    **{name: mechanism.make for name, mechanism in RECURRENT.items()},
    "heads": HEADS["heads, location"].make,
    "an output": lambda: Joined(17),
}


@pytest.mark.parametrize("attention", fast(SIDE_BY_SIDE, ["monotonic, chunks", "an output"]))
@pytest.mark.parametrize("size", [2, 5])
@pytest.mark.each_value
def test_on_a_gpu_steps_are_differentiated_side_by_side(attention, size, monkeypatch):
    """In groups of steps. Without a state all steps are read at once, `combine` included."""
    sizes, original = [], ka.recurrence.weight_gradients

    def weight_gradients(function, weights, upstream, _, *tensors):
        sizes.append(size)
        return original(function, weights, upstream, size, *tensors)

    layer = ka.AttentionRNN(layers.GRUCell(11), SIDE_BY_SIDE[attention](), input_feeding=True)
    sequences, memory = tensors("float32")
    layer(sequences, memory)
    expected = gradients(layer, sequences, memory, training=True)
    monkeypatch.setattr(backend, "_device", lambda: "gpu")
    monkeypatch.setattr(ka.recurrence, "weight_gradients", weight_gradients)
    found = gradients(layer, sequences, memory, training=True)
    assert sizes == [size] * layer.attention.has_state
    assert_same(found, expected)


def test_on_a_gpu_in_mixed_precision(monkeypatch):
    """The gradients equal those in float32, within the rounding of half precision."""
    monkeypatch.setattr(backend, "_device", lambda: "gpu")
    found, (sequences, memory) = {}, tensors("float32")
    for dtype in ("float32", "mixed_bfloat16"):
        keras.utils.set_random_seed(11)
        attention = RECURRENT["location"].make(dtype=dtype)
        layer = ka.AttentionRNN(layers.GRUCell(11, dtype=dtype), attention, dtype=dtype)
        layer(sequences, memory)
        found[dtype] = gradients(layer, sequences, memory, training=True)
    for x, y in zip(*found.values(), strict=True):
        assert np.linalg.norm(y - x) <= 0.03 * np.linalg.norm(x)


@pytest.mark.parametrize(("steps", "most"), [(1, 2**27), (5, 1), (5, 2**27)])
def test_on_a_gpu_a_function_of_a_position_has_the_gradients_of_a_loop(steps, most, monkeypatch):
    """An op of two results and no residuals, which also reads an integer; twice differentiated."""
    monkeypatch.setattr(backend, "_device", lambda: "gpu")
    monkeypatch.setattr(ka.recurrence, "MAX_VECTORIZED", most)
    kernel, start = (normal(n, n, 3).astype("float32") for n in (3, 2))
    positions = np.arange(steps, dtype="int32")

    class Read(AutomaticOp):
        def forward(self, params, state, position, residuals=None):
            total = ops.sum(state * params[0][0])
            return [ops.tanh(state @ params[0]) * (position + 1), total], None

    def by_ops(kernel, start):
        def step(call, state, position, _):
            state, total = call("read", state, position)
            return state, state * total

        return recur(step, {"read": Read([kernel])}, start, positions)[1]

    def by_loop(kernel, start):
        outputs, state = [], start
        for position in positions:
            (state, total), _ = Read([kernel]).forward([kernel], state, position)
            outputs.append(state * total)
        return ops.stack(outputs)

    def twice(function):
        def loss(*inputs):
            return ops.sum(ops.sin(function(*inputs)))

        first = jax.grad(loss, argnums=(0, 1))
        return jax.jvp(first, (kernel, start), (kernel, start))

    assert_same(*map(jax.tree.leaves, map(twice, (by_ops, by_loop))))


def test_second_derivatives_of_a_decoder_whose_query_is_not_projected():
    query, value = (normal(n, 2, n, 5).astype("float32") for n in (3, 7))
    decoder = ka.AttentionRNN(layers.GRUCell(5), ka.LuongAttention("general"), input_feeding=True)
    decoder(query, value)
    weights, others = variables(decoder)

    def loss(x):
        return ops.sum(ops.sin(decoder.stateless_call(weights, others, x, value, training=True)[0]))

    first, direction = jax.jit(jax.grad(loss)), normal(1, *query.shape).astype("float32")
    found = jax.grad(lambda x: ops.sum(first(x) * direction))(query)
    change = first(query + 0.01 * direction) - first(query - 0.01 * direction)
    np.testing.assert_allclose(found, change / 0.02, rtol=0, atol=1e-3)


def test_random_numbers_of_a_step():
    """Layers can only read what the trainer hands them."""
    layer = ka.AttentionRNN(layers.GRUCell(3), Noisy())
    query, value = inputs()
    layer(query, value)
    weights, others = variables(layer)

    def call(others, training):
        options = {"training": training, "return_attention_scores": True}
        (_, found), others = layer.stateless_call(weights, others, query, value, **options)
        return found, others

    call = jax.jit(call, static_argnums=1)
    first, others = call(others, True)
    second, others = call(others, True)
    check_noise([np.asarray(first), np.asarray(second)], np.asarray(call(others, False)[0]))


OUTSIDE = {
    "dropout": lambda: ka.AttentionRNN(
        [layers.GRUCell(5, dropout=0.5, seed=1), layers.GRUCell(7, dropout=0.5, seed=2)],
        ka.BahdanauAttention(17, dropout=0.5, seed=3)),
    "monotonic, fed": lambda: ka.AttentionRNN(
        CELLS["stack"](), ka.MonotonicAttention(17, seed=1), input_feeding=True),
    "layers": lambda: ka.DecoderStack([
        layers.RNN([layers.GRUCell(5), layers.GRUCell(7, dropout=0.5)], return_sequences=True),
        layers.GRU(7, return_sequences=True)], ka.BahdanauAttention(17)),
}  # fmt: skip


@pytest.mark.parametrize("wrap", [jax.jit, jax.checkpoint], ids=["jit", "checkpoint"])
@pytest.mark.parametrize("name", fast(OUTSIDE, ["dropout", "layers"]))
@pytest.mark.each_value
def test_code_that_is_compiled_already_can_be_differentiated(name, wrap):
    """JAX then runs the loop again, after the code around it has ended, and its masks with it."""
    layer, tensors_and_masks = OUTSIDE[name](), [*tensors("float32"), *MASKS.values()]
    layer(*tensors_and_masks[:2])
    weights, others = variables(layer)

    def loss(weights, sequences, memory, sequences_mask, memory_mask):
        options = {"sequences_mask": sequences_mask, "memory_mask": memory_mask, "training": True}
        outputs, _ = layer.stateless_call(weights, others, sequences, memory, **options)
        return ops.sum(ops.sin(outputs))

    expected = jax.grad(loss)(weights, *tensors_and_masks)
    found = jax.grad(wrap(loss))(weights, *tensors_and_masks)
    assert_same(found, expected)
