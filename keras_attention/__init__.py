"""Keras layers for the attention mechanisms of the recurrent era."""

import keras_attention.backend  # noqa: F401, first, because all others import Keras
from keras_attention._version import __version__ as __version__
from keras_attention.attention import RecurrentScoringMixin, ScoringMixin
from keras_attention.decoder import AttentionRNN, DecoderStack, FeatureAttention, ResidualRNNCells
from keras_attention.layers import (
    RETAIN,
    AttentionPooling,
    BahdanauAttention,
    BiDAFAttentionFlow,
    CoverageAttention,
    DynamicConvolutionAttention,
    ForwardAttention,
    GMMAttention,
    HierarchicalAttention,
    LocationSensitiveAttention,
    LuongAttention,
    MemoryHop,
    MemoryNetwork,
    MonotonicAttention,
    MultiHead,
    MultiSource,
    StepwiseMonotonicAttention,
    TargetAttention,
)
from keras_attention.search import beam_search, greedy_search, sample_search
from keras_attention.seq2seq import Ensemble, RecurrentEncoder, Seq2Seq

__all__ = [
    "RETAIN",
    "AttentionPooling",
    "AttentionRNN",
    "BahdanauAttention",
    "BiDAFAttentionFlow",
    "CoverageAttention",
    "DecoderStack",
    "DynamicConvolutionAttention",
    "Ensemble",
    "FeatureAttention",
    "ForwardAttention",
    "GMMAttention",
    "HierarchicalAttention",
    "LocationSensitiveAttention",
    "LuongAttention",
    "MemoryHop",
    "MemoryNetwork",
    "MonotonicAttention",
    "MultiHead",
    "MultiSource",
    "RecurrentEncoder",
    "RecurrentScoringMixin",
    "ResidualRNNCells",
    "ScoringMixin",
    "Seq2Seq",
    "StepwiseMonotonicAttention",
    "TargetAttention",
    "beam_search",
    "greedy_search",
    "sample_search",
]
