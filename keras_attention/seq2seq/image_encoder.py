"""The encoder of a model that reads images: the cells of a convolutional network."""

# Keras passes shapes to `build` by the names of the call arguments.
# pyright: reportIncompatibleMethodOverride=false

from typing import Any

import keras
import numpy as np

from keras_attention._spec import MAX_STEPS, Spec, check_int, fits, is_tensor, raise_value_error
from keras_attention._typing import Nested, Tensor
from keras_attention.attention.checked_layer import CheckedLayer, traced
from keras_attention.backend import ops
from keras_attention.ops.masks import zero_masked

__all__ = ["ImageEncoder"]

SLOWEST = 10_000  # the wave length of the slowest sinusoid, divided by 2 pi
# Keras casts masks where an input of its own was traced as floating point.
SOURCE = Spec(
    "image: any[B Y X D]", "mask: any[B Y X]?", call="encoder(image) or encoder((image, mask))"
)


@keras.saving.register_keras_serializable(package="keras_attention")
class ImageEncoder(CheckedLayer):
    """Read an image as a memory of cells; an encoder for `Seq2Seq` (Xu et al., 2015).

        f           = features(image)
        memory[b,k] = f[b,i,j] + r[i] + c[j]        k = i W + j
        mask[b,k]   = mask[b, i stride, j stride]

    Weights `(B, T, H W)` of an attention are maps after `reshape(B, T, H, W)`;
    `plotting.plot_attention_image` draws them.

    Sizes: B samples, images of Y x X pixels, H x W cells, D features.

    Args:
        features: a layer or model from images to cells, `(B, H, W, D)`, such as a
            `keras.Sequential` of convolutions.
        positions: None for no r and c; "sinusoidal" for sines and cosines of i in the first half of
            the features, and of j in the second, for any size; or a pair of integers, the rows and
            columns of learned r and c. Cells beyond the last of these share its position.
        stride: the pixels between two cells, `(rows, columns)`; with masks alone. With
            `padding="same"` it is the product of the strides of all layers.

    Weights:
        row_positions, column_positions: r and c, for learned positions.

    Call arguments:
        source: images `(B, Y, X, C)`; or a pair of them and their mask, `(B, Y, X)` boolean, True
            for a pixel, False for padding at the right and at the bottom. Padding may hold NaN.
        training: whether dropout is active.

    Returns:
        `(memory, state, mask)`: memory `(B, H W, D)`; None, so that a decoder starts from zeros;
        mask `(B, H W)` boolean, or None without a mask.

    Raises:
        ValueError: the source is no image, or the mask is no mask of it; a mask comes without
            `stride`, or the cells of the mask are not those of the features; sinusoids need a
            number of features that 4 divides.

    Example:
        >>> import keras, numpy
        >>> from keras_attention.seq2seq import ImageEncoder
        >>> cnn = keras.layers.Conv2D(8, 3, strides=2, padding="same", activation="relu")
        >>> encoder = ImageEncoder(cnn, positions="sinusoidal", stride=(2, 2))
        >>> image = numpy.ones((1, 5, 8, 3), "float32")
        >>> mask = numpy.arange(8) < numpy.full((1, 5, 1), 6)
        >>> memory, _, mask = encoder((image, mask))
        >>> memory.shape, mask.numpy().reshape(3, 4).tolist()[0]
        (TensorShape([1, 12, 8]), [True, True, True, False])

    References: https://arxiv.org/abs/1502.03044, section 3.1.1. There the mean of the cells makes
    the initial state, and the cells have no positions; convolutions with padding tell some of them.
    Sinusoids: https://arxiv.org/abs/1706.03762, section 3.5, here one half for each axis.
    """

    def __init__(
        self,
        features: keras.layers.Layer,
        positions: str | tuple[int, int] | None = None,
        stride: tuple[int, int] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not isinstance(features, keras.layers.Layer):
            raise_value_error(self.name, "`features` must be a layer or a model", features)
        self.features = features
        none, named = "`stride` must be None or", '`positions` must be None, "sinusoidal" or'
        self.stride = self._pair("stride", stride, none)
        known = positions is None or positions == "sinusoidal"
        self.positions = positions if known else self._pair("positions", positions, named)

    def _pair(self, name, pair, expected):
        if pair is None:
            return None
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise_value_error(self.name, f"{expected} a pair of integers, (rows, columns)", pair)
        return tuple(check_int(self.name, name, x, most=MAX_STEPS) for x in pair)

    @property
    def inputs(self) -> list[keras.KerasTensor]:
        """The symbolic source, as a functional model has it: most sizes of images are unknown."""
        return [keras.KerasTensor(x, dtype, name=name) for x, dtype, name in self._inputs]

    def build(self, source_shape: Nested) -> None:
        pair = isinstance(source_shape[0], (list, tuple))
        image_shape = tuple(source_shape[0] if pair else source_shape)
        own = getattr(self.features, "inputs", None) or []
        image = own[0].shape if len(own) == 1 else (None, None, None, image_shape[-1])
        self._inputs = [(image, self.compute_dtype, "image")]
        self._inputs += [(image[:3], "bool", "mask")] if pair else []
        if isinstance(self.features, keras.Sequential) and not self.features.built:
            self.features.build(image)  # with no size of the first image
        cells = traced(self.features, keras.KerasTensor(image, self.compute_dtype))
        if not is_tensor(cells, "float", None, None, None, None) or cells.shape[-1] is None:
            expected = "`features` must return cells (batch, rows, columns, features)"
            raise_value_error(self.name, expected, cells)
        if self.positions == "sinusoidal" and cells.shape[-1] % 4:
            expected = "4 must divide the number of features of sinusoidal positions"
            raise_value_error(self.name, expected, cells)
        if isinstance(self.positions, tuple):
            rows, columns = ((n, cells.shape[-1]) for n in self.positions)
            self.row_positions = self.add_weight(rows, "random_normal", name="row_positions")
            self.column_positions = self.add_weight(
                columns, "random_normal", name="column_positions"
            )

    def _check_tensors(self, tensors: dict[str, Nested]) -> None:
        source = tensors["source"]
        pair = isinstance(source, (list, tuple)) and len(source) == 2
        image, mask = source if pair else (source, None)
        SOURCE.check(self.name, {"image": image, "mask": mask})
        if mask is not None and self.stride is None:
            expected = "a mask needs `stride`, the pixels between two cells, (rows, columns)"
            raise_value_error(self.name, expected, None)

    def call(
        self, source: Nested, training: bool | None = None
    ) -> tuple[Tensor, None, Tensor | None]:
        image, mask = source if isinstance(source, (list, tuple)) else (source, None)
        image = ops.cast(image, self.compute_dtype)
        if mask is not None:
            mask = ops.cast(mask, "bool")
            image = zero_masked(image, ops.expand_dims(mask, 3))
        cells = self.features(image, training=training)
        batch, height, width, size = ops.shape(cells)
        if self.positions is not None:
            cells = cells + ops.cast(self._positions(height, width, size), cells.dtype)
        if mask is not None:
            rows, columns = self.stride or (1, 1)  # a pair, where there is a mask
            mask = mask[:, ::rows, ::columns]
            if not fits(mask.shape, cells.shape[:3]):
                expected = f"the cells {cells.shape[1:3]} need a mask and a stride of as many"
                raise_value_error(self.name, expected, mask)
            mask = ops.reshape(mask, (batch, height * width))
        return ops.reshape(cells, (batch, height * width, size)), None, mask

    def _positions(self, height, width, size):
        """Return the vectors `(H, W, D)` that are added to the cells."""
        if self.positions == "sinusoidal":
            rows, columns = (_sinusoids(n, size // 2, self.score_dtype) for n in (height, width))
            rows = ops.pad(rows, [[0, 0], [0, size // 2]])
            columns = ops.pad(columns, [[0, 0], [size // 2, 0]])
        else:
            rows = _take_rows(self.row_positions, height)
            columns = _take_rows(self.column_positions, width)
        return ops.expand_dims(rows, 1) + ops.expand_dims(columns, 0)


def _take_rows(table, count):
    index = ops.minimum(ops.arange(count, dtype="int32"), table.shape[0] - 1)
    return ops.take(table, index, axis=0)


def _sinusoids(count, size, dtype):
    """Return sines, then cosines, of the positions `(count, size)`; `size` is even."""
    rate = ops.convert_to_tensor(SLOWEST ** -(np.arange(size // 2) / (size // 2)), dtype)
    angle = ops.expand_dims(ops.cast(ops.arange(count), dtype), 1) * rate
    return ops.concatenate([ops.sin(angle), ops.cos(angle)], axis=1)
