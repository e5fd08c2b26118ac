"""Multi-head attention around any attention."""

from collections.abc import Callable
from typing import Unpack

import keras

from keras_attention._spec import MAX_SEED, Description, check_int, is_integer, raise_value_error
from keras_attention._typing import LayerOptions, Nested, Shape, Tensor
from keras_attention.attention.checked_layer import take_dtype
from keras_attention.attention.composite import Composite, ends
from keras_attention.attention.scoring import ScoringMixin
from keras_attention.attention.types import Memory
from keras_attention.backend import ops, value_of
from keras_attention.ops.masks import zero_masked
from keras_attention.ops.matmul import cast

__all__ = ["MultiHead"]


@keras.saving.register_keras_serializable(package="keras_attention")
class MultiHead(Composite):
    """Gives any attention several heads over one memory.

        a[h,b,i,:] = the weights of head h, from q[b,i] and k[b,:]
        c[h,b,i]   = sum_j a[h,b,i,j] (V[h] v[b,j])
        o[b,i]     = O [c[1,b,i]; ...; c[H,b,i]]

    Each head is a copy of the attention, with weights and a state of its own. All heads see the
    whole query and the whole key. Each reads its own part of the values, Dv / H features, so H
    heads read as many values as one attention. With U / H units each, scoring costs no more.

    Sizes: B samples, Tq query and Tk memory steps, Dq, Dk and Dv features, H heads.

    Args:
        attention: a layer built on `ScoringMixin` or `RecurrentScoringMixin`, which all heads are
            copied from, without its weights. Its arguments, such as the units and the dropout,
            apply to each head. Head n adds n, counted from 0, to its seed. A score without
            weights, such as "dot", is the same in all heads.
        num_heads: H, at most Dv. Where it does not divide Dv, the first heads read one feature
            more than the others.

    Attributes:
        heads: the H copies, a list of layers with the names head_0, head_1 and so on.

    Weights:
        value_kernel: the transposes of all V[h], side by side, `(Dv, Dv)`.
        output_kernel: the transpose of O, `(Dv, Dv)`. For an attention that transforms its context
            `(Dc, Do)`: Dc features of all heads together, Do of the attention without heads.
        All others: see the attention. They exist once for each head.

    Call arguments:
        query: `(B, Tq, Dq)`, or `(B, Dq)` for one step, which drops the axis Tq everywhere.
        value: `(B, Tk, Dv)`. key: `(B, Tk, Dk)`; defaults to the value.
        All others: see `ScoringMixin`.

    Returns:
        Output o `(B, Tq, Dv)`; with `return_attention_scores` also the mean of the weights of all
        heads, `(B, Tq, Tk)`. `head_weights` returns the weights of each head. An attention may
        transform its context, as `LuongAttention(units=...)` does. Then O joins the transformed
        contexts, and the output has the size that the attention has without heads.

    Raises:
        ValueError: `attention` is no layer built on `ScoringMixin`; `num_heads` is not a positive
            integer, or above Dv; `dropout`, `normalizer` or `seed` is passed to this layer. Also
            what the attention raises.

    Example:
        >>> import numpy
        >>> from keras_attention import BahdanauAttention, MultiHead
        >>> query, value = numpy.ones((2, 3, 5)), numpy.ones((2, 7, 12))
        >>> attention = MultiHead(BahdanauAttention(13), num_heads=4)
        >>> output, weights = attention(query, value, return_attention_scores=True)
        >>> output.shape, weights.shape
        (TensorShape([2, 3, 12]), TensorShape([2, 3, 7]))
        >>> attention.head_weights(query, attention.prepare(value)).shape
        TensorShape([2, 4, 3, 7])

    Reference: https://arxiv.org/abs/1706.03762, section 3.2.2, with any score. With
    `BahdanauAttention` or `LocationSensitiveAttention` it is the multi-head attention of ESPnet,
    https://arxiv.org/abs/1804.00015. Unlike there, the width of the values does not depend on the
    units of the score. The attention's loss is computed from the mean of the heads' weights.
    """

    def __init__(
        self, attention: ScoringMixin, num_heads: int, **kwargs: Unpack[LayerOptions]
    ) -> None:
        take_dtype(kwargs, attention)
        super().__init__(**kwargs)
        self._check_member("attention", attention, kwargs, "head")
        self.num_heads = check_int(self.name, "num_heads", num_heads)
        self.heads = [_head(attention, n, self.dtype_policy) for n in range(num_heads)]
        self.attention = self.heads[0]
        self.has_state, self.uses_position = attention.has_state, attention.uses_position
        self.decoder_query = attention.decoder_query

    def build(self, query_shape: Shape, value_shape: Shape = None, key_shape: Shape = None) -> None:
        super().build(query_shape, value_shape, key_shape)
        heads, size, query_size = self.num_heads, self._sizes["Dv"], self._sizes["Dq"]
        if heads > size:
            expected = "`num_heads` must be at most the number of features of `value`, of which "
            expected += "each head reads a part"
            received = Description(f"num_heads={heads}, and {size} features")
            raise_value_error(self.name, expected, received)
        sizes = [size // heads + (n < size % heads) for n in range(heads)]
        self._ends = ends(sizes)
        self.value_kernel = self.add_weight((size, size), name="value_kernel")
        for head, one in zip(self.heads, sizes, strict=True):
            try:
                part = (*tuple(value_shape or ())[:-1], one)
                head.build(query_shape, part, key_shape or value_shape)
            except ValueError as error:
                part = f"{self.name}: a head reads {one} of the {size} features of `value`"
                raise ValueError(f"{part}. Its attention refuses them: {error}") from None
        joined = sum(self.output_size(query_size, one) for one in sizes)
        shape = joined, self.output_size(query_size, size)
        self.output_kernel = self.add_weight(shape, name="output_kernel")

    def combine(self, query: Tensor, context: Tensor) -> Tensor:
        contexts = ops.split(context, self._ends, axis=-1)
        outputs = [head.combine(query, x) for head, x in zip(self.heads, contexts, strict=True)]
        output = self.project(ops.concatenate(outputs, axis=-1), self.output_kernel)
        return cast(output, self.compute_dtype)

    def _output_product(self) -> tuple[list[Tensor], Callable[[Tensor], Tensor]] | None:
        own = type(self).combine is not MultiHead.combine
        if own or any(type(head).combine is not ScoringMixin.combine for head in self.heads):
            return None
        return [ops.cast(value_of(self.output_kernel), self.compute_dtype)], lambda total: total

    def output_size(self, query_size: int, value_size: int) -> int:
        return self.attention.output_size(query_size, value_size)

    def head_weights(
        self, query: Tensor, memory: Memory, state: Nested = None, **options: Nested
    ) -> Tensor:
        """Return the weights of each head, whose mean a call returns.

        For a decoder, pass the queries of its steps: with query="current", the outputs of its cell.

        Args:
            query, state: as in `attend`. options: its other arguments, such as `query_mask`.
            memory: a `Memory`, from `prepare`.

        Returns:
            Weights `(B, H, Tq, Tk)`, or `(B, H, Tk)` for one step.
        """
        self._check_memory(memory)
        states = [state] * self.num_heads
        if state is not None and self.has_state:
            states = self._state(memory, state)
        weights = [
            head.attend(query, part, one, **options).weights
            for head, part, one in self._each(self._parts(memory), states)
        ]
        return ops.stack(weights, axis=1)

    def _prepare(self, value, key=None, value_mask=None):
        value = zero_masked(value, value_mask)
        key = value if key is None else key
        values = cast(self.project(value, self.value_kernel), self.compute_dtype)
        pairs = zip(self.heads, ops.split(values, self._ends, axis=-1), strict=True)
        return self._join([head._prepare(part, key, value_mask) for head, part in pairs])

    def _members(self):
        return self.heads

    def _parts(self, memory):
        keys = ops.split(memory.key, self.num_heads, axis=-1)
        values = ops.split(memory.value, self._ends, axis=-1)
        return [Memory(*part, memory.mask) for part in zip(keys, values, strict=True)]

    def _join(self, memories):
        keys, values, masks = zip(*memories, strict=True)
        return Memory(ops.concatenate(keys, axis=-1), ops.concatenate(values, axis=-1), masks[0])

    def _masks(self, masks):
        return [masks] * self.num_heads

    def _joint_weights(self, weights):
        return None if weights[0] is None else sum(weights[1:], weights[0]) / self.num_heads

    @property
    def _has_loss(self):
        own = type(self).sequence_loss is not MultiHead.sequence_loss
        return own or self.attention._has_loss

    def sequence_loss(
        self, weights: Tensor, query_mask: Tensor | None, memory_mask: Tensor | None
    ) -> Tensor | None:
        return self.attention.sequence_loss(weights, query_mask, memory_mask)


def _head(attention, number, dtype):
    """Copy an attention, with another name and another seed."""
    config = _seeded(attention.get_config(), number)
    return type(attention).from_config({**config, "name": f"head_{number}", "dtype": dtype})


def _seeded(config: Nested, number: int) -> Nested:
    """Return a configuration with other seeds, and with layers of its own."""
    if isinstance(config, (list, tuple)):
        return type(config)(_seeded(x, number) for x in config)
    if not isinstance(config, dict):
        return config
    return {
        name: (x + number) % (MAX_SEED + 1)
        if name == "seed" and is_integer(x)
        else _seeded(x, number)
        for name, x in config.items()
        if name != "shared_object_id"
    }
