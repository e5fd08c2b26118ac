"""Pictures of attention: heat maps, maps over images, hops, documents, bags, TensorBoard.

Figures open no window. Save them with `figure.savefig(path)`. They need matplotlib:
`pip install "keras-attention-layers[plot]"`. Tokens are strings, or bytes in UTF-8.
"""

from keras_attention.plotting.attention_page import attention_page
from keras_attention.plotting.attention_weights import attention_weights
from keras_attention.plotting.bag_map import plot_bag_map
from keras_attention.plotting.bags import plot_bag
from keras_attention.plotting.callback import AttentionMapCallback
from keras_attention.plotting.document_page import document_page
from keras_attention.plotting.document_picture import plot_document
from keras_attention.plotting.documents import Document
from keras_attention.plotting.heat_map import plot_attention
from keras_attention.plotting.hops import Hops, plot_hops
from keras_attention.plotting.html import highlight
from keras_attention.plotting.images import plot_attention_image

__all__ = [
    "AttentionMapCallback",
    "Document",
    "Hops",
    "attention_page",
    "attention_weights",
    "document_page",
    "highlight",
    "plot_attention",
    "plot_attention_image",
    "plot_bag",
    "plot_bag_map",
    "plot_document",
    "plot_hops",
]
