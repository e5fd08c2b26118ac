"""Gathers and sums within each sample of a batch."""

import keras

from keras_attention._typing import Size, Tensor
from keras_attention.backend.operations import ops

__all__ = ["add_rows", "take_last", "take_rows"]


def take_rows(samples: Tensor, row: Tensor) -> Tensor:
    """Gathers rows of every sample, `samples[b, row[b, ...]]`.

    Args:
        samples: `(B, T, D...)`.
        row: `(B, ...)`, integers from 0 to T - 1.

    Returns:
        `(B, ..., D...)`.
    """
    if keras.backend.backend() == "jax":
        # One sample at a time: devices that share a batch then exchange nothing.
        return ops.vectorized_map(lambda x: ops.take(*x, axis=0), (samples, row))
    batch, length, *features = ops.shape(samples)
    flat = ops.reshape(samples, (batch * length, *features))
    return ops.take(flat, _row_of_all(row, length), axis=0)


def take_last(x: Tensor, index: Tensor) -> Tensor:
    """Takes one number of every row, `x[..., index[...]]`.

    Args:
        x: `(..., D)`.
        index: `(...)`, integers from 0 to D - 1.

    Returns:
        `(...)`.
    """
    index = ops.expand_dims(ops.cast(index, "int32"), -1)
    return ops.squeeze(ops.take_along_axis(x, index, axis=-1), -1)


def add_rows(rows: Tensor, row: Tensor, length: Size) -> Tensor:
    """Adds rows, `(B, ..., D)`, to the places `row`, `(B, ...)`, of zeros `(B, length, D)`."""

    def add(rows, row, count):
        rows, row = ops.reshape(rows, (-1, ops.shape(rows)[-1])), ops.reshape(row, (-1,))
        if keras.backend.backend() == "torch":  # where `ops.segment_sum` sums in float32
            return rows.new_zeros((count, rows.shape[-1])).index_add(0, row, rows)
        return ops.segment_sum(rows, row, num_segments=count)

    if keras.backend.backend() == "jax":
        return ops.vectorized_map(lambda x: add(*x, length), (rows, row))
    batch = ops.shape(row)[0]
    total = add(rows, _row_of_all(row, length), batch * length)
    return ops.reshape(total, (batch, length, ops.shape(rows)[-1]))


def _row_of_all(row, length):
    """The indices of the rows, if the rows of all samples are counted in one sequence."""
    row = ops.convert_to_tensor(row)
    first = ops.arange(ops.shape(row)[0], dtype="int32") * length
    # Not `ops.add`: on TensorFlow, Keras 3.15 takes `(B, 1)` for a bias if B is the size of a row.
    return row + ops.reshape(first, (-1,) + (1,) * (len(row.shape) - 1))
