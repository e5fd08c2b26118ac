"""Products that read only the rows of the memory in windows.

`positions` says which rows those are, and `reference` has the equations of the products. `choose`
says which form of a product runs where, and why: `cpu` or `gpu` where XLA compiles, `plain`
elsewhere. Only the inputs are stored for the gradient.

Sizes: B samples, Tq query and Tk memory steps, W positions in a window, D features or U units.
"""

import functools

import keras

from keras_attention._typing import Tensor
from keras_attention.backend.compilation import bound, run_compiled
from keras_attention.backend.context import Place, on_device
from keras_attention.backend.gradients import differentiable
from keras_attention.backend.operations import ops
from keras_attention.ops.windows.choose import Form, one_by_one
from keras_attention.ops.windows.cpu import ONE_BY_ONE
from keras_attention.ops.windows.gpu import FUSED
from keras_attention.ops.windows.plain import COPIED

__all__ = ["window_dot", "window_sum", "window_tanh"]


def window_dot(query: Tensor, key: Tensor, position: Tensor) -> Tensor:
    """Dot products of every query with the keys in its window.

        e[b,i,w] = q[b,i] . k[b, s[b,i,w]]

    Args:
        query: q, `(B, Tq, D)`.
        key: k, `(B, Tk, D)`.
        position: s, `(B, Tq, W)`, integers from 0 to Tk - 1.

    Returns:
        Scores e, `(B, Tq, W)`.
    """
    form = _form(position)
    return _with_gradient(form, form.dot, _dot_gradient, query, key, position)


def window_tanh(query: Tensor, key: Tensor, vector: Tensor, position: Tensor) -> Tensor:
    """Additive scores of every query against the keys in its window.

        e[b,i,w] = sum_u v[u] tanh(q[b,i,u] + k[b, s[b,i,w], u])

    Args:
        query: q, `(B, Tq, U)`, float32 or float64.
        key: k, `(B, Tk, U)`, of the same dtype.
        vector: v, `(U,)`, of the same dtype.
        position: s, `(B, Tq, W)`, integers from 0 to Tk - 1.

    Returns:
        Scores e, `(B, Tq, W)`.
    """
    form = _form(position)
    return _with_gradient(form, form.tanh, _tanh_gradient, query, key, vector, position)


def window_sum(weights: Tensor, value: Tensor, position: Tensor) -> Tensor:
    """Weighted sums of the values in every window.

        c[b,i] = sum_w a[b,i,w] v[b, s[b,i,w]]

    Args:
        weights: a, `(B, Tq, W)`.
        value: v, `(B, Tk, D)`.
        position: s, `(B, Tq, W)`, integers from 0 to Tk - 1.

    Returns:
        Contexts c, `(B, Tq, D)`.
    """
    form = _form(position)
    return _with_gradient(form, form.weighted_sum, _sum_gradient, weights, value, position)


def _form(position):
    place = Place.of(position)
    on_cpu = ONE_BY_ONE if one_by_one(place, position.shape[-1]) else COPIED
    return _by_device(place, on_cpu)


@functools.cache
def _by_device(place, on_cpu):
    """A form of which every product chooses its device. It is stored, because programs are."""
    on_gpu = FUSED if place.compiled else COPIED
    pairs = zip(on_cpu, on_gpu, strict=True)
    return Form(*(functools.partial(on_device, place, *pair) for pair in pairs))


def _dot_gradient(form, query, key, position, grad_output):
    grad_query = ops.cast(form.weighted_sum(grad_output, key, position), query.dtype)
    return grad_query, form.scatter(grad_output, query, position, key)


def _tanh_gradient(form, *args):
    return form.tanh_gradient(*args)


def _sum_gradient(form, weights, value, position, grad_output):
    grad_weights = form.dot(grad_output, value, position)
    return grad_weights, form.scatter(weights, grad_output, position, value)


def _with_gradient(form, function, gradient, *inputs):
    """Calls `function(*inputs)`. Its gradient is `gradient(form, *inputs, grad_output)`."""

    def first(*args):
        return *_first_gradient(form, gradient, *args), None

    return differentiable(functools.partial(_call, function), first, *inputs)


def _first_gradient(form, gradient, *args):
    """Calls the gradient; the last two arguments are the positions and the upstream gradient."""
    if keras.backend.backend() != "tensorflow":
        return _call(bound(gradient, form), *args)
    import tensorflow as tf

    # TensorFlow cannot differentiate compiled loops everywhere, so second derivatives copy all
    # windows.
    def second(*args):
        *tensors, position, last = (tf.identity(x) for x in args[: len(given)])
        with tf.GradientTape() as tape:
            tape.watch((tensors, last))
            found = gradient(COPIED, *tensors, position, last)
        options = {"unconnected_gradients": "zero"}
        grad_output = args[len(given) :]
        grad_tensors, grad_last = tape.gradient(found, (tensors, last), grad_output, **options)
        return *grad_tensors, None, grad_last

    # The copies belong to the graph that holds this gradient.
    given = [tf.identity(x) for x in args]
    return differentiable(functools.partial(gradient, form), second, *given)


def _call(function, *tensors):
    if keras.backend.backend() != "jax":
        return function(*tensors)
    # Otherwise JAX would compile a loop at every eager call.
    return run_compiled(function, *tensors)
