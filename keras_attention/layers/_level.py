"""One level of a hierarchy: an encoder, and an attention that reads what it returns."""

import contextlib
import inspect
import re
import warnings
from collections.abc import Iterator
from typing import Any

import keras
from keras import ops

from keras_attention._spec import fits, is_cell, made, refuse
from keras_attention._typing import Shape, Tensor
from keras_attention.ops.masks import blanked

# The length that an encoder of unknown length is tried with.
_PROBE = 7


class Level:
    """Reads `(N, T, D)`, words or sentences, as `(N, F)`.

        h[n,:] = encoder(x[n,:])
        s[n]   = sum_t a[n,t] h[n,t]        a from the attention

    Args:
        layer: the name of the layer, for error messages.
        name: "word" or "sentence".
        encoder: a Keras layer, or None to read the sequence itself.
        attention: an `AttentionPooling`.
    """

    def __init__(self, layer: str, name: str, encoder: Any, attention: keras.layers.Layer) -> None:
        self.layer, self.name, self.encoder, self.attention = layer, name, encoder, attention

    def build(self, shape: Shape, dtype: str) -> int:
        """Builds both parts, and returns the features of what they read."""
        rows, steps, features = shape
        if self.encoder is not None:
            # A symbolic call builds any layer and tells the shape of its result. A second one, of
            # known length, finds a layer that shortens the sequence.
            for length in (steps, steps or _PROBE):
                tensor = keras.KerasTensor((rows, length, shape[2]), dtype)
                mask = keras.KerasTensor((rows, length), "bool")
                features = self._encode(tensor, mask).shape[-1]
        if not self.attention.built:
            self.attention.build((rows, steps, features))
        return features

    def read(self, sequence: Tensor, mask: Tensor, training: bool | None) -> tuple[Tensor, Tensor]:
        """Returns the vectors `(N, F)` and the weights `(N, T)`."""
        if self.encoder is not None:
            # An encoder that takes no mask must not mix padding into the words beside it.
            sequence = self._encode(blanked(sequence, mask), mask)
            if mask is None:
                # Otherwise the attention would use a mask that the encoder computes itself.
                mask = ops.ones_like(sequence[:, :, 0], "bool")
        return self.attention(sequence, mask=mask, return_attention_scores=True, training=training)

    def output_size(self, features: int) -> int:
        """The features of the sequence that the attention reads."""
        if self.encoder is None:
            return features
        # Without a length: a Sequential encoder keeps the one that it was built with.
        return self.encoder.compute_output_shape((None, None, features))[-1]

    def _encode(self, sequence: Tensor, mask: Tensor) -> Tensor:
        options = {}
        if mask is not None and "mask" in inspect.signature(self.encoder.call).parameters:
            # An empty row reads one step of zeros, because cuDNN needs a step in every row.
            first = ops.cumsum(ops.ones_like(mask, "int32"), axis=1) == 1
            empty = ops.logical_not(ops.any(mask, axis=1, keepdims=True))
            options = {"mask": ops.logical_or(mask, ops.logical_and(empty, first))}
        with _unwarned(self.encoder):
            encoded = self.encoder(sequence, **options)
        given = getattr(encoded, "shape", None)
        if given is None or not fits(given, (*sequence.shape[:2], None)) or given[-1] is None:
            expected = f"`{self.name}_encoder` must return (batch, {self.name}s, features), here "
            expected += f"({sequence.shape[0]}, {sequence.shape[1]}, features), the features known"
            remedy = "RNN layers do so with return_sequences=True and without return_state."
            refuse(self.layer, expected, encoded, remedy)
        return encoded


def check_encoder(layer: str, name: str, encoder: Any) -> Any:
    """Returns the encoder, which must be None or a layer that is not a cell."""
    cell = is_cell(encoder)
    if encoder is not None and (cell or not isinstance(encoder, keras.layers.Layer)):
        remedy = "A cell makes one step: pass keras.layers.RNN(cell, return_sequences=True)."
        expected = f"`{name}_encoder` must be a Keras layer or model that returns a vector for "
        expected += "every step, such as keras.layers.GRU(50, return_sequences=True), or None"
        refuse(layer, expected, encoder, made(encoder) or remedy * cell)
    return encoder


@contextlib.contextmanager
def _unwarned(encoder: keras.layers.Layer) -> Iterator[None]:
    """Silences the warning of models about a mask: the level itself passes it to the attention."""
    with warnings.catch_warnings():
        for layer in _last_layers(encoder):
            if not layer.supports_masking:
                message = f"Layer '{re.escape(layer.name)}'.*does not support masking"
                warnings.filterwarnings("ignore", message)
        yield


def _last_layers(layer):
    """The layers from which the encoder's output comes."""
    yield layer
    if isinstance(layer, keras.Sequential):
        yield from _last_layers(layer.layers[-1])
    elif isinstance(layer, keras.layers.Bidirectional):
        yield from (layer.forward_layer, layer.backward_layer)
