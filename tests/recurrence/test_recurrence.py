"""The recurrence and its gradient, beside a loop in Python that the backend differentiates."""

import keras
import numpy as np
import pytest

from keras_attention.backend import linearize, ops, vjp
from keras_attention.ops.gradients import restored
from keras_attention.recurrence import Site, _Recurrence, product, recur
from tests.backends import gradients_by, on_tensorflow, only_on, tensor
from tests.helpers import assert_all_close, normal, numpy
from tests.recurrence.counts import counted_outputs

T, B, D, H, K = 5, 2, 3, 7, 11

# x of all steps, the first state, and the weights of the sites.
NAMES = ["x", "hidden", "state", "new", "reset", "bias", "keys", "gain"]
SHAPES = [(T, B, D), (B, H), (H, H), (D, H), (H, H), (H,), (B, K, H), (H,)]
VALUES = [normal(n, *shape) * 0.5 for n, shape in enumerate(SHAPES)]
MASK = np.array([[1, 1], [1, 0], [0, 1], [1, 1], [0, 1]], bool)
PLACES = np.arange(T, dtype="int32")


def between(hidden, product, more, read, mask, gain):
    """What every step computes outside its sites."""
    gate = ops.sigmoid(product)
    new = gate * ops.tanh(more + read) + (1 - gate) * hidden
    new = new * gain
    return ops.where(ops.expand_dims(mask, 1), new, hidden)


def read_of(keys, query, place):
    """A read of a memory, which depends on an integer too."""
    scores = ops.einsum("bkh,bh->bk", keys, query) * ops.cast(place + 1, query.dtype)
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


def read_site(keys):
    """The read as a site whose residuals are weights, and whose gradients are written out."""

    def apply(weights, query, place):
        (keys,) = weights
        factor = ops.cast(place + 1, query.dtype)
        weights = ops.softmax(ops.einsum("bkh,bh->bk", keys, query) * factor)
        return [ops.einsum("bk,bkh->bh", weights, keys)], {"weights": weights}

    def backward(weights, residuals, upstream, query, place):
        (keys,) = weights
        return [ops.einsum("bk,bkh->bh", of_scores(keys, residuals, upstream[0], place), keys)]

    def of_scores(keys, residuals, upstream, place):
        weights = residuals["weights"]
        given = ops.einsum("bkh,...bh->...bk", keys, upstream)
        inner = weights * (given - ops.sum(weights * given, axis=-1, keepdims=True))
        return inner * ops.reshape(
            ops.cast(place + 1, inner.dtype), (-1, *[1] * (len(given.shape) - 1))
        )

    def of_weights(weights, residuals, upstream, query, place):
        scores = of_scores(weights[0], residuals, upstream[0], place)
        by_scores = ops.einsum("tbk,tbh->bkh", scores, query)
        return [by_scores + ops.einsum("tbk,tbh->bkh", residuals["weights"], upstream[0])]

    return Site([keys], apply, backward, of_weights)


def summed_site(gain):
    """A product of elements, whose gradient the loop adds up."""

    def apply(weights, x):
        return [x * weights[0]], []

    def backward(weights, _, upstream, x):
        return [upstream[0] * weights[0], ops.sum(upstream[0] * x, axis=0)]

    return Site([gain], apply, backward)


def by_sites(x, hidden, state, new, reset, bias, keys, gain, **options):
    sites = {
        "read": read_site(keys),
        "gate": product([state], bias),
        "new": product([reset, reset], added=[ops.matmul(x, new)]),
        "gain": summed_site(gain),
    }

    def step(call, hidden, inputs, _):
        mask, place = inputs
        (read,) = call("read", hidden, place)
        (first,) = call("gate", hidden)
        (more,) = call("new", ops.tanh(hidden), read)
        gate = ops.sigmoid(first)
        new = gate * ops.tanh(more + read) + (1 - gate) * hidden
        (new,) = call("gain", new)
        hidden = ops.where(ops.expand_dims(mask, 1), new, hidden)
        return hidden, hidden

    return recur(step, sites, hidden, (tensor(MASK), tensor(PLACES)), **options)


def gradients(function, jit=False):
    def loss(*inputs):
        last, outputs = function(*inputs)
        return ops.sum(last**3) + ops.sum(outputs**2), (last, outputs)

    outputs, found = gradients_by(loss, VALUES, [], jit)
    return [*outputs, *found]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("unroll", [False, True])
@pytest.mark.each_value
def test_equals_a_loop(training, jit, unroll):
    expected = [numpy(x) for x in gradients(by_loop)]
    found = gradients(lambda *x: by_sites(*x, training=training, unroll=unroll), jit)
    assert_all_close(found, expected)


@on_tensorflow
@pytest.mark.parametrize("sizes", ["known", "unknown"])
def test_equals_a_loop_in_a_graph(sizes):
    import tensorflow as tf

    expected = [numpy(x) for x in gradients(by_loop)]

    def run(*inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            last, outputs = by_sites(*inputs)
            loss = ops.sum(last**3) + ops.sum(outputs**2)
        return last, outputs, *tape.gradient(loss, inputs)

    known = {"x": (None, None, D), "hidden": (None, H), "keys": (None, None, H)}
    shapes = [
        known.get(name, shape) if sizes == "unknown" else shape
        for name, shape in zip(NAMES, SHAPES, strict=True)
    ]
    signature = [tf.TensorSpec(shape, "float64") for shape in shapes]
    run = tf.function(run, signature, autograph=False)
    assert_all_close(run(*(tensor(x) for x in VALUES)), expected)


@only_on("tensorflow", "jax", reason="PyTorch differentiates the steps of a loop itself")
def test_every_tensor_is_stored_once(monkeypatch):
    """Forward: output; the state, both results of products, read and its weights, two tanh."""
    counts = counted_outputs(monkeypatch)
    gradients(by_sites)
    # The argument of "gain" and its result; the inputs are stored already.
    assert counts == [1 + 1 + 2 + 2 + 1 + 2, 4]


@only_on("tensorflow", "jax", reason="PyTorch differentiates the steps of a loop itself")
def test_an_output_that_the_gradient_does_not_read_is_not_held(monkeypatch):
    held, backward = [], _Recurrence.backward

    def watched(self, weights, stored, *others):
        held.append([x is not None for x in stored[:2]])
        return backward(self, weights, stored, *others)

    monkeypatch.setattr(_Recurrence, "backward", watched)

    def step(call, hidden, place, _):
        (new,) = call("product", hidden)
        hidden = ops.tanh(new)
        return hidden, (hidden, new)

    def loss(hidden, kernel):
        last, outputs = recur(step, {"product": product([kernel])}, hidden, tensor(PLACES))
        return ops.sum(last) + sum(map(ops.sum, outputs)), last

    gradients_by(loss, [normal(1, B, H), normal(2, H, H)], [])
    assert held == [[False, True]]  # the state before each step is stored, not the one after it


@only_on("tensorflow", "jax", reason="PyTorch differentiates the steps of a loop itself")
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


@only_on("tensorflow", "jax", reason="PyTorch differentiates the steps of a loop itself")
def test_a_stored_value_passes_the_gradient_on():
    x, stored = (keras.ops.array(values, "float32") for values in ([2.0, 5.0], [100.0, 200.0]))

    def function(x):
        return restored(x**2, stored) * x, None

    (gradient,), _ = vjp(function, (x,), keras.ops.ones(2))
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

    assert_all_close(second(by_sites), [numpy(x) for x in second(by_loop)])


@pytest.mark.parametrize(
    ("names", "message"),
    [(["a", "a"], "called the site 'a' twice"), ([], "did not call the sites")],
)
@only_on("tensorflow", "jax", reason="PyTorch differentiates the steps of a loop itself")
def test_every_site_is_called_once(names, message):
    x = tensor(VALUES[1], "float32")

    def step(call, hidden, inputs, _):
        for name in names:
            (hidden,) = call(name, hidden)
        return hidden, hidden

    sites = {"a": product([tensor(VALUES[2], "float32")])}
    with pytest.raises(ValueError, match=message):
        recur(step, sites, x, tensor(MASK))
