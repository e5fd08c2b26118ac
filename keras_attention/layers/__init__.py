"""The layers."""

from keras_attention.layers.bahdanau import BahdanauAttention
from keras_attention.layers.bidaf import BiDAFAttentionFlow
from keras_attention.layers.decoder import AttentionRNN, DecoderState, ResidualRNNCells
from keras_attention.layers.hierarchical import HierarchicalAttention
from keras_attention.layers.luong import LuongAttention
from keras_attention.layers.memory_hop import MemoryHop
from keras_attention.layers.memory_network import MemoryNetwork
from keras_attention.layers.pooling import AttentionPooling
from keras_attention.layers.recurrent_scoring import RecurrentScoringMixin
from keras_attention.layers.scoring import Attended, Memory, ScoringMixin, Window

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
    "Window",
]
