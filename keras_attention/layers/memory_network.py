"""A memory network from words to an answer."""

import functools
from typing import Unpack

import keras

from keras_attention._spec import (
    MAX_HOPS,
    MAX_STEPS,
    Spec,
    check_bool,
    check_choice,
    check_int,
    dtype_of,
)
from keras_attention._typing import LayerOptions, Shape, Tensor, TensorShape
from keras_attention.attention.checked_layer import CheckedLayer
from keras_attention.backend import ops
from keras_attention.layers.memory_hop import MemoryHop

__all__ = ["MemoryNetwork"]


@keras.saving.register_keras_serializable(package="keras_attention")
class MemoryNetwork(CheckedLayer):
    """An end-to-end memory network (Sukhbaatar, Szlam, Weston and Fergus, 2015).

        m[i]   = sum_j l_j * A x[i,j] + T_A(t_i)      a memory for every sentence of the story
        c[i]   = sum_j l_j * C x[i,j] + T_C(t_i)
        u[1]   = sum_j l_j * B q[j]
        u[k+1] = `MemoryHop` of u[k], c and m         K times, A, C and T for each hop
        answer = W u[K+1]                             logits

    l is the position encoding l[j,k] = (1 - j/J) - (k/D)(1 - 2j/J) of word j of J and feature k,
    both counted from one, or 1 for bags of words. t_i counts sentences back from the last one,
    whose t is 0.

    Sizes: B samples, N sentences of W words, D units, K hops, V words in the vocabulary.
    The word 0 is padding; its embedding stays zero. An empty sentence, one without a word, is never
    read, but keeps its position in time: training can insert empty sentences as noise. Sentences
    further back than `memory_size` are forgotten.

    Args:
        vocabulary_size: V, padding included.
        units: D.
        hops: K, at most 100.
        tying: "adjacent": A and T_A of a hop are C and T_C of the hop before; B is the first A, and
            W the last C. "layerwise": all hops share A, C and T, and have a linear update.
        position_encoding: True for the l above; False for bags of words. An integer J, the length
            of the longest sentence, selects the encoding of the authors' code, l[j,k] =
            1 + 4 (j/J - (J+1)/2J) (k/D - (D+1)/2D), which is one on average and about twice the l
            above. Words beyond J weigh as much as word J.
        memory_size: the largest number of sentences that are remembered.
        null_memories: whether to fill the empty positions of the memory with zeros of score 0, so
            that a hop may read nothing, as in the authors' code.

    Attributes:
        linear: whether all hops skip the softmax. For a linear start, set it to True, train, and
            set it to False later; see `MemoryHop`.

    Weights:
        embeddings: list of `(V, D)`. Adjacent: K + 1, A of the first hop, then C of every hop.
            Layerwise: A, C, B, W.
        times: list of `(memory_size, D)`. Adjacent: K + 1; layerwise: T_A, T_C.
        hop_layers: list of `MemoryHop`. Adjacent: K; layerwise: one, which all hops share.

    Call arguments:
        story: word ids from 1 to V - 1, `(B, N, W)`, 0 for padding, the latest sentence last. Ids
            outside this range are not checked.
        question: likewise `(B, W')`. return_attention_scores: whether to return weights too.
        training: passed to the hops.

    Returns:
        Logits `(B, V)`, 0 for padding; with `return_attention_scores` also weights `(B, K, N)`.

    Raises:
        ValueError: an argument is out of range, ids are not integers, or shapes do not agree.

    Example:
        >>> import numpy
        >>> from keras_attention import MemoryNetwork
        >>> story = numpy.array([[[3, 4, 0], [5, 6, 7]]])  # two sentences
        >>> network = MemoryNetwork(vocabulary_size=9, units=4)
        >>> answer, weights = network(story, numpy.array([[8, 3]]), return_attention_scores=True)
        >>> answer.shape, weights.shape
        (TensorShape([1, 9]), TensorShape([1, 3, 2]))

    Reference: https://arxiv.org/abs/1503.08895, sections 2, 4.1 and 4.2.
    """

    CALL = Spec("story: int[B N W]", "question: int[B W']")

    def __init__(
        self,
        vocabulary_size: int,
        units: int,
        hops: int = 3,
        tying: str = "adjacent",
        position_encoding: bool | int = True,
        memory_size: int = 50,
        null_memories: bool = False,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        check = functools.partial(check_int, self.name, most=MAX_STEPS)
        self.vocabulary_size = check("vocabulary_size", vocabulary_size)
        self.units = check_int(self.name, "units", units)
        self.hops = check_int(self.name, "hops", hops, most=MAX_HOPS)
        self.tying = check_choice(self.name, "tying", tying, ("adjacent", "layerwise"))
        self.position_encoding = position_encoding
        if not isinstance(position_encoding, bool):
            hint = "Or it is True or False."
            self.position_encoding = check("position_encoding", position_encoding, hint=hint)
        self.memory_size = check("memory_size", memory_size)
        self.null_memories = check_bool(self.name, "null_memories", null_memories)
        update = "add" if tying == "adjacent" else "linear"
        # Hops that share one kernel are one layer.
        names = [f"hop_{n}" for n in range(hops if tying == "adjacent" else 1)]
        self.hop_layers = [MemoryHop(update, name=x, dtype=self.dtype_policy) for x in names]

    def build(self, story_shape: Shape, question_shape: Shape = None) -> None:
        self.CALL.check_shapes(self.name, {"story": story_shape, "question": question_shape})
        names = ["memory_embedding", "output_embedding", "question_embedding", "answer_kernel"]
        times = ["memory_time", "output_time"]
        if self.tying == "adjacent":
            names = [f"embedding_{n}" for n in range(self.hops + 1)]
            times = [f"time_{n}" for n in range(self.hops + 1)]
        words, ages = (self.vocabulary_size, self.units), (self.memory_size, self.units)
        self.embeddings = [self.add_weight(words, normal_with_null, name=name) for name in names]
        self.times = [self.add_weight(ages, normal, name=name) for name in times]
        memory = (None, None, self.units)
        for hop in self.hop_layers:
            if not hop.built:
                hop.build((None, self.units), memory, memory)

    @property
    def linear(self) -> bool:
        """True if all hops leave out the softmax. Setting it never recompiles."""
        return self.hop_layers[0].linear

    @linear.setter
    def linear(self, value: bool) -> None:
        """Switch the softmax of all hops, in compiled programs too."""
        for hop in self.hop_layers:
            hop.linear = value

    def call(
        self,
        story: Tensor,
        question: Tensor = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        story, question = as_ids(story), as_ids(question)
        adjacent, sentences = self.tying == "adjacent", ops.shape(story)[1]
        question_table = self.embeddings[0 if adjacent else 2]  # B
        state = self._encode(ops.expand_dims(question, 1), question_table)[0][:, 0]
        times, valid = sentence_times(story, self.memory_size)
        memories = self._encode(story, *self.embeddings[: len(self.times)])
        memories = [
            memory + ops.take(ops.cast(table, self.compute_dtype), times, axis=0)
            for memory, table in zip(memories, self.times, strict=True)
        ]
        if self.null_memories:
            null = ((0, 0), (0, self.memory_size), (0, 0))
            memories = [ops.pad(memory, null) for memory in memories]
            count = ops.sum(ops.cast(valid, "int32"), axis=1, keepdims=True)
            empty = ops.arange(self.memory_size, dtype="int32") < self.memory_size - count
            valid = ops.concatenate([valid, empty], axis=1)

        weights, options = [], {"return_attention_scores": True, "training": training}
        for n in range(self.hops):
            hop = self.hop_layers[n % len(self.hop_layers)]
            key, value = memories[n : n + 2] if adjacent else memories
            state, hop_weights = hop(state, value, key, value_mask=valid, **options)
            weights.append(hop_weights[:, :sentences])
        # The row of padding must not learn.
        rows = not_padding(self.vocabulary_size, state.dtype)
        answers = ops.cast(self.embeddings[-1], state.dtype) * rows
        logits = ops.einsum("bd,vd->bv", state, answers)
        return (logits, ops.stack(weights, axis=1)) if return_attention_scores else logits

    def _encode(self, ids: Tensor, *tables: Tensor) -> list[Tensor]:
        """Encode the sentences, `(B, N, D)`, by each table of embeddings."""
        factors = word_weights(ids, self.position_encoding, self.units, self.compute_dtype)
        return [encode_sentences(ids, factors, table, self.compute_dtype) for table in tables]

    def compute_output_shape(
        self, story_shape: TensorShape, question_shape: Shape = None
    ) -> TensorShape:
        self.CALL.check_shapes(self.name, {"story": story_shape, "question": question_shape})
        return (story_shape[0], self.vocabulary_size)


def word_weights(ids: Tensor, encoding: bool | int, units: int, dtype: str) -> Tensor:
    """Compute the factors of the position encoding l[j,k] that depend on the word j alone.

    l is linear in the feature k: l[j,k] = level[j] + slope[j] k / units. Bags of words have a level
    of one and no slope.

    Args:
        ids: `(B, N, W)`, 0 for padding, whose factors are 0.
        encoding: see `MemoryNetwork.position_encoding`.

    Returns:
        `(B, N, 2, W)`, level and slope; `(B, N, 1, W)` for bags of words.
    """
    # float16 cannot count beyond 2048, nor bfloat16 beyond 256.
    words = ops.cast(ids != 0, "float64" if dtype == "float64" else "float32")
    if not encoding:
        return ops.cast(ops.expand_dims(words, 2), dtype)
    index = ops.cumsum(words, axis=-1)
    if encoding is True:
        index = index / ops.maximum(ops.sum(words, axis=-1, keepdims=True), 1)
        level, slope = 1 - index, 2 * index - 1
    else:
        slope = (4 * ops.minimum(index, encoding) - 2 * (encoding + 1)) / encoding
        level = 1 - slope * (units + 1) / (2 * units)
    return ops.cast(ops.stack([words * level, words * slope], axis=2), dtype)


def encode_sentences(ids: Tensor, factors: Tensor, table: Tensor, dtype: str) -> Tensor:
    """Compute sum_j l_j * A x_j: ids `(B, N, W)` and a table A `(V, D)` to `(B, N, D)`."""
    embedded = ops.take(ops.cast(table, dtype), ids, axis=0)  # (B, N, W, D)
    sums = ops.einsum("bnsw,bnwd->bnsd", factors, embedded)
    if factors.shape[2] == 1:
        return sums[:, :, 0]
    units = table.shape[1]
    feature = ops.cast(ops.arange(1, units + 1), dtype) / units
    return sums[:, :, 0] + feature * sums[:, :, 1]


def sentence_times(story: Tensor, memory_size: int) -> tuple[Tensor, Tensor]:
    """Return how far back each sentence is, `(B, N)`, and True where it is remembered."""
    valid = ops.any(story != 0, axis=-1)
    index = ops.arange(ops.shape(story)[1], dtype="int32")
    last = ops.max(ops.where(valid, index, -1), axis=1, keepdims=True, initial=-1)
    times = last - index
    valid = ops.logical_and(valid, times < memory_size)
    return ops.clip(times, 0, memory_size - 1), valid


def as_ids(ids: Tensor) -> Tensor:
    """Cast ids to integers that every backend can look up."""
    return ids if dtype_of(ids) == "int64" else ops.cast(ids, "int32")


def normal(shape: tuple[int, ...], dtype: str | None = None) -> Tensor:
    """Sample N(0, 0.1). One initializer object would give every weight the same values."""
    return keras.initializers.RandomNormal(stddev=0.1)(shape, dtype)


def normal_with_null(shape: tuple[int, ...], dtype: str | None = None) -> Tensor:
    """Sample N(0, 0.1), with zeros for padding."""
    return normal(shape, dtype) * not_padding(shape[0], dtype)


def not_padding(vocabulary_size: int, dtype: str | None) -> Tensor:
    """Return `(V, 1)`: zero for the word 0, and one for all others."""
    return ops.cast(ops.expand_dims(ops.arange(vocabulary_size) > 0, 1), dtype)
