"""Pictures of attention: heat maps, hops over memories, highlighted text, images for TensorBoard.

Figures are drawn without a window; save them with `figure.savefig(path)`. They need matplotlib:
`pip install "keras-attention-layers[plot]"`.
"""

from keras_attention.plotting.callback import AttentionMapCallback
from keras_attention.plotting.heat_map import plot_attention
from keras_attention.plotting.hops import Hops, plot_hops
from keras_attention.plotting.html import Page, escape, highlight
from keras_attention.plotting.text import drawable, font_families, shorten, visible
from keras_attention.plotting.weights import attention_weights

__all__ = [
    "AttentionMapCallback",
    "Hops",
    "Page",
    "attention_weights",
    "drawable",
    "escape",
    "font_families",
    "highlight",
    "plot_attention",
    "plot_hops",
    "shorten",
    "visible",
]
