"""Tokenizers, which turn texts into ids and back.

Give them to a model, `Seq2Seq(..., source_text=..., target_text=...)`. It then takes and returns
strings on every backend, and a `.keras` file holds its tokenizers.
"""

from keras_attention.text.characters import Characters
from keras_attention.text.sentence_piece import SentencePiece
from keras_attention.text.tokenizer import Tokenizer
from keras_attention.text.tokenizer_json import TokenizerJSON

__all__ = ["Characters", "SentencePiece", "Tokenizer", "TokenizerJSON"]
