"""A head with a hidden layer."""

# Keras passes shapes to `build` by the names of the call arguments.
# pyright: reportIncompatibleMethodOverride=false

from typing import Unpack

import keras

from keras_attention._spec import check_int, check_rate, check_seed
from keras_attention._typing import LayerOptions, Tensor
from keras_attention.backend import ops
from keras_attention.seq2seq._head import Head, check_vocabulary

__all__ = ["Readout"]


@keras.saving.register_keras_serializable(package="keras_attention")
class Readout(Head):
    """Compute logits from the output and the last token, the "deep output" (Bahdanau et al., 2015).

        h[b,i]      = f(W [s[b,i]; x[b,i]] + b)
        logits[b,i] = W_o h[b,i] + b_o

    s is the output of the decoder and x the embedded token that the step read. Dropout is applied
    to h.

    Sizes: B samples, T steps, H features of s, E features of x, U units, V tokens.

    Args:
        units: U. With a tied embedding, its width.
        vocabulary_size: V, or None for a tied embedding: the head then returns h, which `Seq2Seq`
            multiplies by the table of its embedding.
        activation: f, the name of an activation of Keras, None for none, or "maxout": the larger of
            two linear functions, as in the paper.
        dropout: the share of h that training drops, in [0, 1).
        seed: the seed of the dropout.

    Weights:
        hidden: a `Dense` with W, `(H + E, U)`, twice as wide for "maxout", and b.
        logits: a `Dense` with W_o, `(U, V)`, and b_o, with `vocabulary_size`.

    Call arguments:
        output: s, `(B, T, H)`, or `(B, H)` for one step, which drops the axis T everywhere.
        inputs: x, `(B, T, E)`.
        training: whether dropout is active.

    Returns:
        Logits `(B, T, V)`, or h `(B, T, U)` for a tied embedding, in the compute dtype.

    Raises:
        ValueError: an argument is out of range; `inputs` is missing or of another rank.

    Example:
        >>> import numpy
        >>> from keras_attention.seq2seq import Readout
        >>> Readout(5, 9)(numpy.ones((2, 3, 4)), inputs=numpy.ones((2, 3, 7))).shape
        TensorShape([2, 3, 9])

    Reference: https://arxiv.org/abs/1409.0473, appendix A.2.2. There h also reads the context; give
    the decoder `output_mode="concat"` for that.
    """

    reads = ("inputs",)

    def __init__(
        self,
        units: int,
        vocabulary_size: int | None = None,
        activation: str | None = "tanh",
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.units = check_int(self.name, "units", units)
        self.vocabulary_size = vocabulary_size
        if vocabulary_size is not None:
            check_vocabulary(self.name, vocabulary_size)
        self.activation = activation
        self.dropout = check_rate(self.name, "dropout", dropout)
        self.seed = check_seed(self.name, seed)
        self.linear_functions = 2 if activation == "maxout" else 1
        self._function = keras.activations.get(None if activation == "maxout" else activation)
        self.drop = keras.layers.Dropout(dropout, seed=seed, dtype=self.dtype_policy)

    @property
    def tied(self) -> bool:
        """True if the head returns vectors for the transposed table of an embedding."""
        return self.vocabulary_size is None

    def build(self, output_shape: tuple[int, ...], inputs_shape: tuple[int, ...] = ()) -> None:
        width, units = output_shape[-1] + inputs_shape[-1], self.linear_functions * self.units
        self.hidden = self.dense("hidden", units, width, activation=self._function)
        if self.vocabulary_size is not None:
            self.logits = self.dense("logits", self.vocabulary_size, self.units)

    def call(self, output: Tensor, inputs: Tensor = None, training: bool | None = None) -> Tensor:
        hidden = self.hidden(self.concatenated(output, inputs))
        if self.linear_functions > 1:
            pairs = ops.reshape(
                hidden, (*ops.shape(hidden)[:-1], self.units, self.linear_functions)
            )
            hidden = ops.max(pairs, axis=-1)
        hidden = self.drop(hidden, training=training)
        return hidden if self.tied else self.logits(hidden)
