"""Keras layers for the attention mechanisms of the recurrent era."""

import keras_attention._backend  # noqa: F401, first, because all others import Keras
from keras_attention._version import __version__ as __version__
from keras_attention.layers import (
    Attended,
    AttentionPooling,
    AttentionRNN,
    BahdanauAttention,
    BiDAFAttentionFlow,
    DecoderState,
    HierarchicalAttention,
    LuongAttention,
    Memory,
    MemoryHop,
    MemoryNetwork,
    RecurrentScoringMixin,
    ResidualRNNCells,
    ScoringMixin,
    Window,
)
from keras_attention.search import SearchResult, beam_search, greedy_search

__all__ = [
    "Attended",
    "AttentionPooling",
    "AttentionRNN",
    "BahdanauAttention",
    "BiDAFAttentionFlow",
    "DecoderState",
    "HierarchicalAttention",
    "LuongAttention",
    "Memory",
    "MemoryHop",
    "MemoryNetwork",
    "RecurrentScoringMixin",
    "ResidualRNNCells",
    "ScoringMixin",
    "SearchResult",
    "Window",
    "beam_search",
    "greedy_search",
]
