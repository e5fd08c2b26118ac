"""The equations of attention, as pure functions of tensors: no weights, no state, no layers."""

from keras_attention.backend import compiling
from keras_attention.ops.additive.dispatch import additive_score
from keras_attention.ops.masks import causal_mask
from keras_attention.ops.normalize import (
    masked_entmax15,
    masked_hardmax,
    masked_sigmoid,
    masked_softmax,
    masked_sparsemax,
)
from keras_attention.ops.trilinear import trilinear_score
from keras_attention.ops.windows.positions import (
    gaussian,
    sentence_span,
    take_windows,
    window_mask,
    window_positions,
)

__all__ = [
    "additive_score",
    "causal_mask",
    "compiling",
    "gaussian",
    "masked_entmax15",
    "masked_hardmax",
    "masked_sigmoid",
    "masked_softmax",
    "masked_sparsemax",
    "sentence_span",
    "take_windows",
    "trilinear_score",
    "window_mask",
    "window_positions",
]
