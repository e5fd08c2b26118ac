"""The protocol of an attention: what its layers derive from and exchange."""

from keras_attention.attention.recurrent_scoring import RecurrentScoringMixin
from keras_attention.attention.scoring import ScoringMixin
from keras_attention.attention.types import Attended, Memory, Step, Window

__all__ = ["Attended", "Memory", "RecurrentScoringMixin", "ScoringMixin", "Step", "Window"]
