"""Decoders: attention inside a recurrence."""

from keras_attention.layers.decoder.attention_rnn import AttentionRNN
from keras_attention.layers.decoder.feature_attention import FeatureAttention
from keras_attention.layers.decoder.residual_cells import ResidualRNNCells
from keras_attention.layers.types import DecoderState

__all__ = ["AttentionRNN", "DecoderState", "FeatureAttention", "ResidualRNNCells"]
