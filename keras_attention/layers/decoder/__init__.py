"""Decoders: attention inside a recurrence."""

from keras_attention.layers.decoder.attention_rnn import AttentionRNN

__all__ = ["AttentionRNN"]
