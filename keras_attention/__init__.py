"""Keras layers for the attention mechanisms of the recurrent era."""

from keras_attention._version import __version__ as __version__
from keras_attention.layers.attention_rnn import AttentionRNN
from keras_attention.layers.bahdanau import BahdanauAttention
from keras_attention.layers.luong import LuongAttention
from keras_attention.layers.scoring import Memory, ScoringMixin
from keras_attention.search import SearchResult, beam_search, greedy_search

__all__ = [
    "AttentionRNN",
    "BahdanauAttention",
    "LuongAttention",
    "Memory",
    "ScoringMixin",
    "SearchResult",
    "beam_search",
    "greedy_search",
]
