"""A head that copies words of the source."""

# Keras passes shapes to `build` by the names of the call arguments.
# pyright: reportIncompatibleMethodOverride=false

from typing import Unpack

import keras

from keras_attention._spec import check_int
from keras_attention._typing import LayerOptions, Tensor
from keras_attention.backend import ops, scatter_add
from keras_attention.seq2seq._head import Head, check_vocabulary

__all__ = ["PointerGenerator"]

FLOOR = 1e-30  # the probability that stands for zero


@keras.saving.register_keras_serializable(package="keras_attention")
class PointerGenerator(Head):
    """Generate a token, or copy one from the source (See, Liu and Manning, 2017).

        g[b,i]      = sigmoid(w_c . c[b,i] + w_s . s[b,i] + w_x . x[b,i] + b)
        P_v[b,i,:]  = softmax(V' (V [s[b,i]; c[b,i]] + b_v) + b'_v)
        P[b,i,y]    = g[b,i] P_v[b,i,y] + (1 - g[b,i]) sum over j with x_j = y of a[b,i,j]

    s is the output of the decoder, c the context, x the embedded token that the step read, and a
    the weights. Tokens from `vocabulary_size` on are the extra words of each source;
    `ExtendedVocabulary` gives them ids.

    P is computed with logarithms. A copied probability of zero counts as 1e-30, so that every
    logarithm and gradient is finite. Where all weights are zero, because nothing is valid, P is
    P_v. Where they sum to less than one, P does too.

    Sizes: B samples, T steps, Tk memory steps, H, Dv and E features, V tokens, X extra words. The
    largest tensors have the size of the result; none has the size B T Tk V.

    Args:
        vocabulary_size: V.
        max_extra: X, the largest number of extra words of a sample.
        units: the width between V and V', or None for the width of s.
        unknown_token: the token that the embedding reads in place of an extra word; see `to_unk`.

    Weights:
        hidden: a `Dense` with V and b_v. logits: a `Dense` with V' and b'_v.
        gate: a `Dense` with w_s, w_c and w_x in this order, `(H + Dv + E, 1)`, and b.

    Call arguments:
        output: s, `(B, T, H)`, or `(B, H)` for one step, which drops the axis T everywhere.
        context: c, `(B, T, Dv)`. inputs: x, `(B, T, E)`.
        weights: a, `(B, T, Tk)`, zero at masked memory steps.
        source: integer ids, `(B, Tk)`, from 0 to V + X - 1; larger ones count as `unknown_token`.

    Returns:
        log P, `(B, T, V + X)`, in at least float32.

    Raises:
        ValueError: an argument is out of range; a tensor is missing or of another rank.

    Example:
        >>> import numpy
        >>> from keras_attention.seq2seq import PointerGenerator
        >>> head = PointerGenerator(vocabulary_size=9, max_extra=2)
        >>> step, weights = numpy.ones((1, 5)), numpy.full((1, 3), 1 / 3)
        >>> source = numpy.array([[4, 9, 9]])  # token 4, then an extra word twice
        >>> log_p = head(step, context=step, inputs=step, weights=weights, source=source)
        >>> log_p.shape
        TensorShape([1, 11])

    Reference: https://arxiv.org/abs/1704.04368, section 2.2.
    """

    reads = ("context", "inputs", "weights", "source")

    def __init__(
        self,
        vocabulary_size: int,
        max_extra: int,
        units: int | None = None,
        unknown_token: int = 1,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.vocabulary_size = check_vocabulary(self.name, vocabulary_size)
        self.max_extra = check_int(self.name, "max_extra", max_extra)
        self.units = None if units is None else check_int(self.name, "units", units)
        self.unknown_token = check_int(
            self.name, "unknown_token", unknown_token, 0, vocabulary_size - 1
        )

    def build(
        self,
        output_shape: tuple[int, ...],
        context_shape: tuple[int, ...] = (),
        inputs_shape: tuple[int, ...] = (),
    ) -> None:
        width = output_shape[-1] + context_shape[-1]
        units = output_shape[-1] if self.units is None else self.units
        self.logits = self.dense("logits", self.vocabulary_size, units)
        self.gate = self.dense("gate", 1, width + inputs_shape[-1])
        self.hidden = self.dense("hidden", units, width)

    def call(
        self,
        output: Tensor,
        context: Tensor = None,
        inputs: Tensor = None,
        weights: Tensor = None,
        source: Tensor = None,
    ) -> Tensor:
        dtype, extra = self.log_dtype, self.max_extra
        logits = self.logits(self.hidden(self.concatenated(output, context)))
        gate = ops.cast(self.gate(self.concatenated(output, context, inputs)), dtype)
        copied = self._copied(ops.cast(weights, dtype), source)
        # Where nothing can be copied, the token is generated.
        log_generate = ops.where(
            ops.any(weights > 0, axis=-1, keepdims=True), ops.log_sigmoid(gate), 0.0
        )
        generated = log_generate + ops.log_softmax(ops.cast(logits, dtype), axis=-1)
        copied = ops.log_sigmoid(-gate) + copied
        words = ops.logaddexp(generated, copied[..., :-extra])
        return ops.concatenate([words, copied[..., -extra:]], axis=-1)

    def _copied(self, weights, source):
        """Return the log of the weights of each token, `(B, T, V + X)`."""
        size = self.vocabulary_size + self.max_extra
        source = ops.cast(source, "int32")
        source = ops.where(source < size, source, self.unknown_token)
        one_step = len(weights.shape) == 2
        rows = ops.expand_dims(weights, 2) if one_step else ops.swapaxes(weights, 1, 2)
        total = scatter_add(rows, source, size)  # (B, V + X, T)
        total = ops.squeeze(total, 2) if one_step else ops.swapaxes(total, 1, 2)
        return ops.log(ops.maximum(total, FLOOR))

    def to_unk(self, ids: Tensor) -> Tensor:
        """Replace the ids of extra words by `unknown_token`, for an embedding."""
        return ops.where(ids < self.vocabulary_size, ids, self.unknown_token)
