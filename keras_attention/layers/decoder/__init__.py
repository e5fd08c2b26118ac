"""Decoders: attention inside a recurrence, and beside recurrences."""

from keras_attention.layers.decoder.attention_rnn import AttentionRNN
from keras_attention.layers.decoder.decoder_stack import DecoderStack
from keras_attention.layers.decoder.feature_attention import FeatureAttention
from keras_attention.layers.decoder.residual_cells import ResidualRNNCells
from keras_attention.layers.types import DecoderState

__all__ = [
    "AttentionRNN",
    "DecoderStack",
    "DecoderState",
    "FeatureAttention",
    "ResidualRNNCells",
]
