"""Models of the layers, and the heads that turn the output of a decoder into tokens.

A head is any Keras layer from the output of a decoder to logits, such as `Dense`. `Seq2Seq` calls
`head(output)`. A head may have `reads`, a tuple of the names below. `Seq2Seq` passes these tensors
by name, `head(output, context=...)`:

    inputs:      `(B, T, E)`, the embedded tokens that the steps read.
    tokens:      `(B, T)` int32, the ids of these tokens. They may come from an extended vocabulary.
    context:     `(B, T, Dv)`, the weights times the memory.
    weights:     `(B, T, Tk)`, the attention weights before dropout.
    memory:      `(B, Tk, Dv)`, the values.
    memory_mask: `(B, Tk)` boolean, or None.
    source:      `(B, Tk)`, the ids of the source.
    targets:     `(B, T)`, the ids of the tokens to predict, in training only, otherwise None.

The output is `(B, T, H)`. In one step of decoding, the axis T is missing everywhere: output
`(B, H)`, tokens `(B,)`, weights `(B, Tk)`. Memory, mask and source keep their shapes.
With several memories, weights, memory and memory_mask are lists, and the contexts are concatenated.

A head returns logits `(B, T, V)`, or `(B, V)` for one step; log probabilities are logits too. It
may have more attributes:

    tied:  True if it returns vectors of the embedding's width. `Seq2Seq` multiplies them by the
           transposed table, `embedding(x, reverse=True)` of `keras.layers.ReversibleEmbedding`.
    initial_state(memory, memory_mask): for a head with a state. For one step, its call takes
           `state=...` and returns `(logits, state)`. For a sequence it starts from the initial
           state and returns logits only. The state is any nesting of tensors `(B, ...)`; an empty
           tuple stands for none.
    to_unk(ids): replaces ids of an extended vocabulary by ids of the embedding.

Sizes: B samples, T steps, Tk memory steps, H, E and Dv features, V tokens.
"""

from keras_attention.seq2seq._generation import LogProbability
from keras_attention.seq2seq._text import TextResult
from keras_attention.seq2seq.bidirectional_ensemble import BidirectionalEnsemble
from keras_attention.seq2seq.ensemble import Ensemble
from keras_attention.seq2seq.extended_vocabulary import ExtendedVocabulary
from keras_attention.seq2seq.hard_attention import HardAttention
from keras_attention.seq2seq.image_encoder import ImageEncoder
from keras_attention.seq2seq.model import Seq2Seq
from keras_attention.seq2seq.pointer_generator import PointerGenerator
from keras_attention.seq2seq.readout import Readout
from keras_attention.seq2seq.recurrent_encoder import RecurrentEncoder

__all__ = [
    "BidirectionalEnsemble",
    "Ensemble",
    "ExtendedVocabulary",
    "HardAttention",
    "ImageEncoder",
    "LogProbability",
    "PointerGenerator",
    "Readout",
    "RecurrentEncoder",
    "Seq2Seq",
    "TextResult",
]
