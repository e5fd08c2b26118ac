"""The recurrence and its gradient, beside a loop in Python that the backend differentiates."""

import keras
import numpy as np
import pytest

from keras_attention.backend import linearize, ops, vjp
from keras_attention.ops.gradients import restored
from keras_attention.recurrence import Op, ProductOp, _Recurrence, recur
from tests.backends import gradients_by, on_tensorflow, only_on, tensor
from tests.helpers import assert_all_close, normal, numpy
from tests.recurrence.counts import counted_outputs

T, B, D, H, K = 5, 2, 3, 7, 11

# x of all steps, hidden, and the parameters of the ops: state, new, reset, bias, keys and gain.
SHAPES = [(T, B, D), (B, H), (H, H), (D, H), (H, H), (H,), (B, K, H), (H,)]
VALUES = [normal(n, *shape) * 0.5 for n, shape in enumerate(SHAPES)]
steps_of_our_own = only_on(
    "tensorflow", "jax", reason="PyTorch differentiates the steps of a loop itself"
)
MASK = np.array([[1, 1], [1, 0], [0, 1], [1, 1], [0, 1]], bool)
POSITIONS = np.arange(T, dtype="int32")


def between(hidden, product, more, read, mask, gain):
    """What every step computes outside its ops."""
    gate = ops.sigmoid(product)
    new = gate * ops.tanh(more + read) + (1 - gate) * hidden
    new = new * gain
    return ops.where(ops.expand_dims(mask, 1), new, hidden)


def read_of(keys, query, position):
    """A read of a memory, which depends on an integer too."""
    scores = ops.einsum("bkh,bh->bk", keys, query) * ops.cast(position + 1, query.dtype)
    return ops.einsum("bk,bkh->bh", ops.softmax(scores), keys)


def by_loop(x, hidden, state, new, reset, bias, keys, gain):
    outputs = []
    for t in range(T):
        read = read_of(keys, hidden, t)
        first = ops.matmul(hidden, state) + bias
        more = ops.matmul(x[t], new) + ops.matmul(ops.tanh(hidden), reset) + ops.matmul(read, reset)
        hidden = between(hidden, first, more, read, tensor(MASK[t]), gain)
        outputs.append(hidden)
    return hidden, ops.stack(outputs)


class Read(Op):
    """A read of a memory, whose residuals are weights and whose gradients are written out."""

    def forward(self, params, query, position):
        (keys,) = params
        factor = ops.cast(position + 1, query.dtype)
        weights = ops.softmax(ops.einsum("bkh,bh->bk", keys, query) * factor)
        return [ops.einsum("bk,bkh->bh", weights, keys)], {"weights": weights}

    def backward(self, params, residuals, grad_output, query, position):
        (keys,) = params
        grad_scores = self.grad_scores(keys, residuals, grad_output[0], position)
        return [ops.einsum("bk,bkh->bh", grad_scores, keys)]

    def grad_scores(self, keys, residuals, grad_output, position):
        weights = residuals["weights"]
        grad = ops.einsum("bkh,...bh->...bk", keys, grad_output)
        inner = weights * (grad - ops.sum(weights * grad, axis=-1, keepdims=True))
        factor = ops.cast(position + 1, inner.dtype)
        return inner * ops.reshape(factor, (-1, *[1] * (len(grad.shape) - 1)))

    def grad_params(self, params, residuals, grad_output, query, position):
        scores = self.grad_scores(params[0], residuals, grad_output[0], position)
        by_scores = ops.einsum("tbk,tbh->bkh", scores, query)
        return [by_scores + ops.einsum("tbk,tbh->bkh", residuals["weights"], grad_output[0])]


class Gain(Op):  # a product of elements, whose gradient the loop adds up
    sums_in_loop = True

    def forward(self, params, x):
        return [x * params[0]], []

    def backward(self, params, residuals, grad_output, x):
        return [grad_output[0] * params[0], ops.sum(grad_output[0] * x, axis=0)]


def by_ops(x, hidden, state, new, reset, bias, keys, gain, **options):
    named_ops = {
        "read": Read([keys]),
        "gate": ProductOp([state], bias),
        "new": ProductOp([reset, reset], input_projections=[ops.matmul(x, new)]),
        "gain": Gain([gain]),
    }

    def step(call, hidden, inputs, _):
        mask, position = inputs
        (read,) = call("read", hidden, position)
        (first,) = call("gate", hidden)
        (more,) = call("new", ops.tanh(hidden), read)
        gate = ops.sigmoid(first)
        new = gate * ops.tanh(more + read) + (1 - gate) * hidden
        (new,) = call("gain", new)
        hidden = ops.where(ops.expand_dims(mask, 1), new, hidden)
        return hidden, hidden

    return recur(step, named_ops, hidden, (tensor(MASK), tensor(POSITIONS)), **options)


def gradients(function, jit=False, inputs=VALUES):
    def loss(*inputs):
        last, outputs = function(*inputs)
        return ops.sum(last**3) + ops.sum(outputs**2), (last, outputs)

    outputs, found = gradients_by(loss, inputs, [], jit)
    return [*outputs, *found]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("unroll", [False, True])
@pytest.mark.each_value
def test_equals_a_loop(training, jit, unroll):
    found = gradients(lambda *x: by_ops(*x, training=training, unroll=unroll), jit)
    assert_all_close(found, gradients(by_loop))


@on_tensorflow
def test_equals_a_loop_in_a_graph_of_unknown_sizes():
    import tensorflow as tf

    unknown = {(T, B, D): (None, None, D), (B, H): (None, H), (B, K, H): (None, None, H)}
    signature = [tf.TensorSpec(unknown.get(x, x), "float64") for x in SHAPES]
    run = tf.function(lambda *x: gradients(by_ops, inputs=x), signature, autograph=False)
    assert_all_close(run(*map(tensor, VALUES)), gradients(by_loop))


@steps_of_our_own
def test_every_tensor_is_stored_once(monkeypatch):
    """Forward: output; the state, both results of products, read and its weights, two tanh."""
    counts = counted_outputs(monkeypatch)
    gradients(by_ops)
    # The argument of "gain" and its result; the inputs are stored already.
    assert counts == [1 + 1 + 2 + 2 + 1 + 2, 4]


@steps_of_our_own
def test_an_output_that_the_gradient_does_not_read_is_not_held(monkeypatch):
    held, backward = [], _Recurrence.backward

    def watched(self, weights, stored, *others):
        held.append([x is not None for x in stored[:2]])
        return backward(self, weights, stored, *others)

    monkeypatch.setattr(_Recurrence, "backward", watched)

    def step(call, hidden, position, _):
        (new,) = call("product", hidden)
        hidden = ops.tanh(new)
        return hidden, (hidden, new)

    def loss(hidden, kernel):
        last, outputs = recur(step, {"product": ProductOp([kernel])}, hidden, tensor(POSITIONS))
        return ops.sum(last) + sum(map(ops.sum, outputs)), last

    gradients_by(loss, [normal(1, B, H), normal(2, H, H)], [])
    assert held == [[False, True]]  # the state before each step is stored, not the one after it


@steps_of_our_own
def test_gradients_of_each_output():
    x, y = (keras.ops.array(values, "float32") for values in ([2.0, 5.0], [3.0, 7.0]))

    def function(x, both):
        return [("first", x * both["y"]), ("second", [x**2, None]), ("third", both["y"])]

    names, pull = linearize(function, x, {"y": y})
    assert names == ["first", "second", "third"]
    ones = keras.ops.ones(2)
    expected = [[[3, 7], [2, 5]], [[4, 10], None], [None, [1, 1]]]
    for n, wanted in enumerate(expected):
        found = pull(n, [ones, None] if n == 1 else ones)
        for gradient, right in zip(found, wanted, strict=True):
            zero = gradient is None or not np.any(numpy(gradient))
            assert zero if right is None else numpy(gradient).tolist() == right


@steps_of_our_own
def test_a_stored_value_passes_the_gradient_on():
    x, stored = (keras.ops.array(values, "float32") for values in ([2.0, 5.0], [100.0, 200.0]))
    (gradient,), _ = vjp(lambda x: (restored(x**2, stored) * x, None), (x,), keras.ops.ones(2))
    # 2x times x, plus the stored value
    np.testing.assert_allclose(gradient, [108.0, 250.0])
    assert restored(x, None) is x


@on_tensorflow
def test_second_derivatives():
    import tensorflow as tf

    def second(function):
        inputs = [tensor(x) for x in VALUES]
        with tf.GradientTape() as outer:
            outer.watch(inputs)
            with tf.GradientTape() as inner:
                inner.watch(inputs)
                last, outputs = function(*inputs)
                loss = ops.sum(ops.sin(last)) + ops.sum(ops.cos(outputs))
            squares = [ops.sum(ops.square(x)) for x in inner.gradient(loss, inputs)]
        return outer.gradient(sum(squares), inputs, unconnected_gradients="zero")

    assert_all_close(second(by_ops), second(by_loop))


@steps_of_our_own
def test_every_op_is_called_once():
    x, kernel = (tensor(VALUES[n], "float32") for n in (1, 2))
    for names, message in (["a", "a"], "called the op 'a' twice"), ([], "did not call the ops"):

        def step(call, hidden, inputs, _, names=names):
            for name in names:
                (hidden,) = call(name, hidden)
            return hidden, hidden

        with pytest.raises(ValueError, match=message):
            recur(step, {"a": ProductOp([kernel])}, x, tensor(MASK))
