"""Decoders: attention inside a recurrence, and beside recurrences."""

from keras_attention.attention.types import DecoderState
from keras_attention.decoder.attention_rnn import AttentionRNN
from keras_attention.decoder.decoder_stack import DecoderStack
from keras_attention.decoder.feature_attention import FeatureAttention
from keras_attention.decoder.residual_cells import ResidualRNNCells

__all__ = ["AttentionRNN", "DecoderStack", "DecoderState", "FeatureAttention", "ResidualRNNCells"]
