"""The equations of attention, as pure functions of tensors: no weights, no state, no layers."""

from keras_attention._place import compiling
from keras_attention.ops.additive import additive_score
from keras_attention.ops.masks import all_of, blanked, causal_mask
from keras_attention.ops.normalize import (
    masked_entmax15,
    masked_hardmax,
    masked_softmax,
    masked_sparsemax,
)
from keras_attention.ops.products import project
from keras_attention.ops.trilinear import trilinear_score
from keras_attention.ops.windows import (
    gaussian,
    sentence_span,
    spread_windows,
    take_windows,
    window_mask,
    window_positions,
)

__all__ = [
    "additive_score",
    "all_of",
    "blanked",
    "causal_mask",
    "compiling",
    "gaussian",
    "masked_entmax15",
    "masked_hardmax",
    "masked_softmax",
    "masked_sparsemax",
    "project",
    "sentence_span",
    "spread_windows",
    "take_windows",
    "trilinear_score",
    "window_mask",
    "window_positions",
]
