"""Keras layers for the attention mechanisms of the recurrent era."""

import keras_attention.backend  # noqa: F401, first, because all others import Keras
from keras_attention import layers
from keras_attention._version import __version__ as __version__
from keras_attention.attention import RecurrentScoringMixin, ScoringMixin
from keras_attention.decoder import AttentionRNN, DecoderStack, FeatureAttention, ResidualRNNCells
from keras_attention.layers import *  # noqa: F403
from keras_attention.search import beam_search, greedy_search, sample_search
from keras_attention.seq2seq import Ensemble, RecurrentEncoder, Seq2Seq

__all__ = ["RecurrentScoringMixin", "ScoringMixin"]
__all__ += ["AttentionRNN", "DecoderStack", "FeatureAttention", "ResidualRNNCells"]
__all__ += ["Ensemble", "RecurrentEncoder", "Seq2Seq"]
__all__ += ["beam_search", "greedy_search", "sample_search"]
__all__ += layers.__all__
