"""Keras layers for the attention mechanisms of the recurrent era."""

from keras_attention._version import __version__ as __version__
from keras_attention.layers.attention_rnn import AttentionRNN
from keras_attention.layers.bahdanau import BahdanauAttention
from keras_attention.layers.bidaf import BiDAFAttentionFlow
from keras_attention.layers.hierarchical import HierarchicalAttention
from keras_attention.layers.luong import LuongAttention
from keras_attention.layers.memory import MemoryHop
from keras_attention.layers.memory_network import MemoryNetwork
from keras_attention.layers.pooling import AttentionPooling
from keras_attention.layers.prepared import Memory
from keras_attention.layers.scoring import ScoringMixin
from keras_attention.search import SearchResult, beam_search, greedy_search

__all__ = [
    "AttentionPooling",
    "AttentionRNN",
    "BahdanauAttention",
    "BiDAFAttentionFlow",
    "HierarchicalAttention",
    "LuongAttention",
    "Memory",
    "MemoryHop",
    "MemoryNetwork",
    "ScoringMixin",
    "SearchResult",
    "beam_search",
    "greedy_search",
]
