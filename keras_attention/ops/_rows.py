"""Loops over the places of windows, which read one row of the memory per query at a time."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_attention._typing import Size, Tensor
from keras_attention.ops._differentiable import differentiable
from keras_attention.ops._samples import take_rows
from keras_attention.ops._xla import run_compiled


class Rows(NamedTuple):
    """How the rows in the windows are read.

    Attributes:
        place_by_place: whether to loop over the W places of the windows, or to copy all windows.
    """

    place_by_place: bool

    def each(
        self, function: Callable[[Tensor], Tensor], position: Tensor, memory: Tensor
    ) -> Tensor:
        """Calls `function(row)` for every place and puts the results side by side.

        Args:
            function: from rows `(B, Tq, D)` to numbers `(B, Tq)`.
            position: `(B, Tq, W)`, integers from 0 to Tk - 1.
            memory: `(B, Tk, D)`.

        Returns:
            `(B, Tq, W)`.
        """
        places, width = _places_first(position), position.shape[-1]
        number = ops.reshape(ops.arange(width), (-1, 1, 1))

        def body(n, found):
            one = ops.expand_dims(function(take_rows(memory, places[n])), 0)
            # An addition, because TensorFlow cannot differentiate a compiled `slice_update`.
            return found + ops.where(number == n, one, ops.zeros_like(one))

        found = ops.zeros(ops.shape(places), memory.dtype)
        return ops.transpose(_repeat(width, body, found), (1, 2, 0))

    def fold(
        self,
        add: Callable[..., Any],
        total: Any,
        position: Tensor,
        weights: Tensor,
        memory: Tensor | None = None,
    ) -> Any:
        """Calls `total = add(total, weight, row, place)` for every place.

        Here weight is `(B, Tq, 1)`, row is `(B, Tq, D)` or None without a memory, and place is
        `(B, Tq)`, the positions of the rows.

        Args:
            add: the function, which returns the next total.
            total: a tensor or a tuple of tensors.
            position: `(B, Tq, W)`, integers from 0 to Tk - 1.
            weights: `(B, Tq, W)`.
            memory: `(B, Tk, D)`, or None if `add` needs no rows.

        Returns:
            The last total.
        """
        places, weights = _places_first(position), _places_first(widen(weights))

        def body(n, total):
            row = None if memory is None else take_rows(memory, places[n])
            return add(total, ops.expand_dims(weights[n], 2), row, places[n])

        return _repeat(position.shape[-1], body, total)


def _repeat(count, body, total):
    """`total = body(n, total)` for n below count."""
    if keras.backend.backend() != "tensorflow":
        return ops.fori_loop(0, count, body, total)
    # XLA can differentiate a loop only if the maximum number of its steps is given.
    several = isinstance(total, tuple)
    _, *found = ops.while_loop(
        lambda n, *_: n < count,
        lambda n, *total: (n + 1, *_as_tuple(body(n, total if several else total[0]))),
        (0, *_as_tuple(total)),
        maximum_iterations=count,
    )
    return tuple(found) if several else found[0]


def _as_tuple(x):
    return x if isinstance(x, tuple) else (x,)


def _places_first(x):
    return ops.transpose(x, (2, 0, 1))


def with_gradient(
    rows: Rows,
    function: Callable[..., Tensor],
    gradient: Callable[..., tuple[Tensor, ...]],
    position: Tensor,
    *tensors: Tensor,
) -> Tensor:
    """Calls `function(rows, *tensors, position)` with a custom gradient.

    Args:
        gradient: `gradient(rows, *tensors, position, upstream)`, which returns a gradient for each
            tensor.
    """

    def first(*args):
        return *_first_gradient(gradient, rows, *args), None

    return differentiable(functools.partial(_call, function, rows), first, *tensors, position)


def _first_gradient(gradient, rows, *args):
    """Calls the gradient; the last two arguments are the positions and the upstream gradient."""
    if keras.backend.backend() != "tensorflow":
        return _call(gradient, rows, *args)
    import tensorflow as tf

    # TensorFlow cannot differentiate compiled loops everywhere, so second derivatives copy all
    # windows.
    def second(*args):
        *tensors, position, last = (tf.identity(x) for x in args[: len(given)])
        with tf.GradientTape() as tape:
            tape.watch((tensors, last))
            found = gradient(Rows(False), *tensors, position, last)
        options = {"unconnected_gradients": "zero"}
        upstream = args[len(given) :]
        of_tensors, of_last = tape.gradient(found, (tensors, last), upstream, **options)
        return *of_tensors, None, of_last

    # The copies belong to the graph that holds this gradient.
    given = [tf.identity(x) for x in args]
    return differentiable(functools.partial(gradient, rows), second, *given)


def _call(function, rows, *tensors):
    if keras.backend.backend() != "jax":
        return function(rows, *tensors)
    # Otherwise JAX would compile the loop at every eager call.
    return run_compiled(_bound(function, rows), *tensors)


@functools.cache
def _bound(function, rows):
    return functools.partial(function, rows)


def zero_rows(x: Tensor, *sizes: Size) -> Tensor:
    """Zeros of these sizes, with as many features as `x` and at least in float32."""
    return ops.zeros((*sizes, x.shape[-1]), _wide_dtype(x))


def widen(x: Tensor) -> Tensor:
    """Casts half precision to float32, which counts far enough for sums of many rows."""
    return ops.cast(x, _wide_dtype(x))


def _wide_dtype(x):
    return "float64" if keras.backend.standardize_dtype(x.dtype) == "float64" else "float32"
