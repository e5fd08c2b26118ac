"""One attention for each of several memories."""

from collections.abc import Iterable
from typing import Unpack

import keras

from keras_attention._spec import Description, raise_value_error
from keras_attention._typing import LayerOptions, Nested, Tensor
from keras_attention.attention.checked_layer import take_dtype
from keras_attention.attention.composite import Composite, ends
from keras_attention.attention.scoring import ScoringMixin, build_attention
from keras_attention.attention.types import Memory
from keras_attention.backend import ops

__all__ = ["MultiSource"]


@keras.saving.register_keras_serializable(package="keras_attention")
class MultiSource(Composite):
    """Attends to several memories, to each with an attention of its own.

        a[n,b,i,:] = the weights of attention n, from q[b,i] and k[n,b,:]
        c[n,b,i]   = sum_j a[n,b,i,j] v[n,b,j]
        o[b,i]     = [o[1,b,i]; ...; o[N,b,i]]

    Here o[n] is the output of attention n: its context, unless it transforms the context. The
    memories may differ in length and in features: a word and its grammatical features, a document
    and a question, a sentence in two languages.

    Sizes: B samples, Tq query steps, N memories; Tk steps, Dk and Dv features of each.

    Args:
        attentions: a list of at least two layers built on `ScoringMixin` or
            `RecurrentScoringMixin`, one for each memory. Their arguments, such as the units and the
            dropout, apply to each. A `MultiHead` may be one of them. In an `AttentionRNN`, the
            first attention says which query is the default.

    Weights:
        See the attentions.

    Call arguments:
        query: `(B, Tq, Dq)`, or `(B, Dq)` for one step, which drops the axis Tq everywhere.
        value: a list of N tensors `(B, Tk, Dv)`. key: a list of N tensors `(B, Tk, Dk)`; defaults
            to the values.
        value_mask: a list of N masks `(B, Tk)`, boolean, or None where all steps are valid.
        attention_mask: a list of N masks `(Tq, Tk)` or `(B, Tq, Tk)`, boolean, or None.
        All others: see `ScoringMixin`.

    A decoder around this layer takes its memories and their masks in the same lists:
    `decoder(sequences, [first, second], memory_mask=[mask, None])`. A `Memory`, from `prepare`, has
    lists of keys, of values and of masks.

    Returns:
        Output o `(B, Tq, Do)`, where Do is the sum of the features of all outputs; with
        `return_attention_scores` also a list of N weights `(B, Tq, Tk)`.

    Raises:
        ValueError: `attentions` is no list of at least two attentions, or they compute in different
            dtypes; `dropout`, `normalizer` or `seed` is passed to this layer; a list of a call does
            not have N items. Also what the attentions raise.

    Example:
        >>> import keras, numpy
        >>> from keras_attention import AttentionRNN, BahdanauAttention, LuongAttention, MultiSource
        >>> attention = MultiSource([BahdanauAttention(13), LuongAttention("general")])
        >>> decoder = AttentionRNN(keras.layers.GRUCell(7), attention)
        >>> words, letters, features = (numpy.ones((2, n, 5)) for n in (3, 11, 4))
        >>> outputs, weights = decoder(words, [letters, features], return_attention_scores=True)
        >>> outputs.shape, [x.shape for x in weights]
        (TensorShape([2, 3, 7]), [TensorShape([2, 3, 11]), TensorShape([2, 3, 4])])

    References: https://arxiv.org/abs/1601.00710, section 3, multi-source attention. There all
    attentions are local, and a layer joins the contexts with the query, as
    `LuongAttention(units=...)` does for each. https://arxiv.org/abs/1704.06567 compares this
    concatenation of contexts (section 3.1) with a softmax over the steps of all memories ("flat",
    3.2) and with a hierarchical combination, which this layer does not have.
    """

    def __init__(self, attentions: Iterable[ScoringMixin], **kwargs: Unpack[LayerOptions]) -> None:
        attentions = list(attentions) if isinstance(attentions, Iterable) else [attentions]
        take_dtype(kwargs, next(iter(attentions), None))
        super().__init__(**kwargs)
        self._check_attentions(attentions, kwargs)
        self.attentions = attentions
        self.memory_count = len(attentions)
        self.CALL, self.STEP = (x.for_memories(self.memory_count) for x in (self.CALL, self.STEP))
        self.has_state = any(one.has_state for one in attentions)
        self.uses_position = any(one.uses_position for one in attentions)
        self.decoder_query = attentions[0].decoder_query

    def build(
        self, query_shape: Nested, value_shape: Nested = None, key_shape: Nested = None
    ) -> None:
        super().build(query_shape, value_shape, key_shape)
        for one, value, key in self._each(value_shape, key_shape):
            build_attention(one, query_shape, value, key)
        self._ends = ends([value[-1] for value in value_shape])

    def combine(self, query: Tensor, context: Tensor) -> Tensor:
        contexts = ops.split(context, self._ends, axis=-1)
        outputs = [one.combine(query, x) for one, x in zip(self.attentions, contexts, strict=True)]
        return ops.concatenate(outputs, axis=-1)

    def output_size(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, query_size: int, value_size: list[int]
    ) -> int:
        """Sum the features of all outputs. `value_size` lists the features of each memory."""
        return sum(one.output_size(query_size, size) for one, size in self._each(value_size))

    def _prepare(self, value, key=None, value_mask=None):
        each = self._each(value, key, value_mask)
        return self._join([one._prepare(*tensors) for one, *tensors in each])

    def _members(self):
        return self.attentions

    def _parts(self, memory):
        return [Memory(*part) for part in zip(*memory, strict=True)]

    def _join(self, memories):
        return Memory(*map(list, zip(*memories, strict=True)))

    def _masks(self, masks):
        each = self._each(masks.memory, masks.pairs)
        return [masks._replace(memory=x, pairs=y) for _, x, y in each]

    def _joint_weights(self, weights):
        return list(weights)

    @property
    def _has_loss(self):
        own = type(self).sequence_loss is not MultiSource.sequence_loss
        return own or any(one._has_loss for one in self.attentions)

    def sequence_loss(
        self, weights: list[Tensor], query_mask: Tensor | None, memory_mask: list | None
    ) -> Tensor | None:
        """Sum the losses of the attentions. `weights` and `memory_mask` are lists."""
        each = self._each(weights, memory_mask)
        losses = [one.sequence_loss(x, query_mask, mask) for one, x, mask in each]
        losses = [x for x in losses if x is not None]
        return sum(losses[1:], losses[0]) if losses else None

    def _check_attentions(self, attentions, arguments):
        if len(attentions) < 2:
            expected = "`attentions` must be a list of at least two attentions, one for each memory"
            raise_value_error(self.name, expected, attentions, "One memory needs no MultiSource.")
        for n, one in enumerate(attentions):
            self._check_member(f"attentions[{n}]", one, arguments)
        if len({id(one) for one in attentions}) < len(attentions):
            expected = "`attentions` must not hold the same attention twice"
            raise_value_error(self.name, expected, attentions)
        dtypes = [one.compute_dtype for one in attentions]
        if set(dtypes) != {self.compute_dtype}:
            expected = f"`attentions` must compute in the dtype of the layer, {self.compute_dtype}"
            remedy = "Give all of them the same `dtype`."
            raise_value_error(self.name, expected, Description(dtypes), remedy)
