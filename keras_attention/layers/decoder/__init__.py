"""Decoders: attention inside a recurrence."""

from keras_attention.layers._types import DecoderState
from keras_attention.layers.decoder.attention_rnn import AttentionRNN
from keras_attention.layers.decoder.residual_cells import ResidualRNNCells

__all__ = ["AttentionRNN", "DecoderState", "ResidualRNNCells"]
