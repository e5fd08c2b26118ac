"""A memory network from words to an answer."""

import keras
from keras import ops

from keras_attention._checks import (
    DEEPEST,
    LONGEST,
    check_bool,
    check_choice,
    check_positive_int,
    fits,
    is_integer,
    shape_of,
)
from keras_attention.layers._calls import CheckedLayer
from keras_attention.layers.memory_hop import MemoryHop

__all__ = ["MemoryNetwork"]


@keras.saving.register_keras_serializable(package="keras_attention")
class MemoryNetwork(CheckedLayer, keras.layers.Layer):
    """An end-to-end memory network (Sukhbaatar, Szlam, Weston and Fergus, 2015).

        m[i]  = sum_j l_j * A x[i,j] + T_A(t_i)       a memory for every sentence of the story
        c[i]  = sum_j l_j * C x[i,j] + T_C(t_i)
        u[1]  = sum_j l_j * B q[j]
        u[k+1] = `MemoryHop` of u[k], c and m         K times, A, C and T for each hop
        answer = W u[K+1]                             logits

    l is the position encoding l[j,k] = (1 - j/J) - (k/D)(1 - 2j/J) of word j of J and feature k,
    both counted from one, or 1 for bags of words. t_i counts back from the last sentence, whose t
    is 0.

    Sizes: B samples, N sentences of W words, D units, K hops, V words in the vocabulary.

    The word 0 is padding: a null embedding, which is and stays zero. A sentence without a word is
    empty: it has its place in time, so that noise can be inserted before others, and is never read.
    Sentences further back than `memory_size` fall out.

    Args:
        vocabulary_size: V, with the padding; required.
        units: D; required.
        hops: K, at most 100.
        tying: "adjacent": A of a hop is C of the one before, likewise T; B is the first A, and W
            the last C. "layerwise": all hops have one A, C and T, and a linear update.
        position_encoding: whether the order of words counts; bags of words otherwise. A number J
            takes it for sentences of all lengths, and l[j,k] = 1 + 4 (j/J - (J+1)/2J) (k/D -
            (D+1)/2D), which is one on average and about twice the l above: the encoding of the
            authors' code, with J the length of the longest sentence. Words beyond J weigh as its
            last one.
        memory_size: the largest number of sentences that are remembered, and of places in time.
        null_memories: whether the places of the memory that the sentences leave empty are read
            too, as zeros with the score 0, so that a hop may read nothing; so does the authors'
            code.

    Attributes:
        linear: whether the softmax is left out of all hops. Set it before training for a linear
            start, and back to False later; see `MemoryHop`.

    Weights:
        embeddings: list of `(V, D)`; adjacent K + 1: A of the first hop, then C of every hop.
            layerwise 4: A, C, B, W.
        times: list of `(memory_size, D)`; adjacent K + 1, layerwise 2: T_A, T_C.
        hop_layers: list of `MemoryHop`; adjacent K, layerwise 1, which all hops share.

    Call arguments:
        story: word ids from 1 to V - 1 `(B, N, W)`, 0 where there is none, the last sentence last.
            Others are not checked: they are an error of the backend or, where it is compiled, read
            as some other word.
        question: likewise `(B, W')`.
        return_attention_scores: also return the weights of every hop.

    Returns:
        Logits `(B, V)`, that of padding always 0; with `return_attention_scores` also weights
        `(B, K, N)`.

    Raises:
        ValueError: an argument is out of range; ids are not integers; ranks or batch sizes do not
            agree.

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

    def __init__(
        self,
        vocabulary_size=None,
        units=None,
        hops=3,
        tying="adjacent",
        position_encoding=True,
        memory_size=50,
        null_memories=False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        hint = " It is the number of words, the padding 0 included."
        self.vocabulary_size = check_positive_int(
            self.name, "vocabulary_size", vocabulary_size, LONGEST, hint
        )
        hint = " It is the width of the embeddings; write MemoryNetwork(vocabulary_size, 20)."
        self.units = check_positive_int(self.name, "units", units, hint=hint)
        self.hops = check_positive_int(self.name, "hops", hops, DEEPEST)
        self.tying = check_choice(self.name, "tying", tying, ("adjacent", "layerwise"))
        if not isinstance(position_encoding, bool):
            given = position_encoding
            if not is_integer(given) or not 1 <= given <= LONGEST:
                raise ValueError(
                    f"{self.name}: `position_encoding` must be True, False or a positive integer, "
                    f"the length of the longest sentence, at most {LONGEST}; received "
                    f"{given!r:.80}."
                )
            position_encoding = int(given)
        self.position_encoding = position_encoding
        self.memory_size = check_positive_int(self.name, "memory_size", memory_size, LONGEST)
        self.null_memories = check_bool(self.name, "null_memories", null_memories)
        update = "add" if tying == "adjacent" else "linear"
        # Tied hops of one kernel are one layer.
        count = hops if tying == "adjacent" else 1
        self.hop_layers = [
            MemoryHop(update, name=f"hop_{n}", dtype=self.dtype_policy) for n in range(count)
        ]

    def build(self, story_shape, question_shape=None):
        self._check_shapes(story_shape, question_shape)
        adjacent = self.tying == "adjacent"
        names = [f"embedding_{n}" for n in range(self.hops + 1)]
        times = [f"time_{n}" for n in range(self.hops + 1)]
        if not adjacent:
            names = ["memory_embedding", "output_embedding", "question_embedding", "answer_kernel"]
            times = ["memory_time", "output_time"]
        shape = (self.vocabulary_size, self.units)
        self.embeddings = [self.add_weight(shape, initializer=_null, name=name) for name in names]
        shape = (self.memory_size, self.units)
        self.times = [self.add_weight(shape, initializer=_normal, name=name) for name in times]
        for hop in self.hop_layers:
            if not hop.built:
                memory = (None, None, self.units)
                hop.build((None, self.units), memory, memory)

    @property
    def linear(self):
        return self.hop_layers[0].linear

    @linear.setter
    def linear(self, value):
        for hop in self.hop_layers:
            hop.linear = value

    def call(self, story, question=None, return_attention_scores=False, training=None):
        self._check_shapes(shape_of(story), shape_of(question))
        for name, ids in (("story", story), ("question", question)):
            if "int" not in keras.backend.standardize_dtype(ids.dtype):
                raise ValueError(
                    f"{self.name}: `{name}` must hold word ids, integers; received dtype "
                    f"{keras.backend.standardize_dtype(ids.dtype)}. Cast them, "
                    f'keras.ops.cast({name}, "int32"), or declare them, '
                    'keras.Input(shape, dtype="int32").'
                )
        # Not every integer type can be looked up.
        story, question = (
            ids if keras.backend.standardize_dtype(ids.dtype) == "int64" else ops.cast(ids, "int32")
            for ids in (story, question)
        )
        times, valid = self._times(story)
        sentences = ops.shape(story)[1]
        story = self._places(story)
        tables, pasts = self.embeddings, self.times
        asked = tables[0] if self.tying == "adjacent" else tables[2]
        state = self._encode(self._places(ops.expand_dims(question, 1)), asked)[:, 0]
        memories = [
            self._encode(story, table) + ops.take(ops.cast(past, self.compute_dtype), times, axis=0)
            for table, past in zip(tables[: len(pasts)], pasts, strict=True)
        ]
        if self.null_memories:
            null = ((0, 0), (0, self.memory_size), (0, 0))
            memories = [ops.pad(memory, null) for memory in memories]
            count = ops.sum(ops.cast(valid, "int32"), axis=1, keepdims=True)
            empty = ops.arange(self.memory_size, dtype="int32") < self.memory_size - count
            valid = ops.concatenate([valid, empty], axis=1)

        weights = []
        for n in range(self.hops):
            hop = self.hop_layers[n % len(self.hop_layers)]
            key, value = memories[n : n + 2] if self.tying == "adjacent" else memories
            state, read = hop(
                state,
                value,
                key,
                value_mask=valid,
                return_attention_scores=True,
                training=training,
            )
            weights.append(read[:, :sentences])
        # Without the row of padding, which must not learn.
        words = ops.cast(ops.arange(self.vocabulary_size) > 0, state.dtype)
        answers = ops.cast(tables[-1], state.dtype) * ops.expand_dims(words, 1)
        logits = ops.einsum("bd,vd->bv", state, answers)
        return (logits, ops.stack(weights, axis=1)) if return_attention_scores else logits

    def _times(self, story):
        """How far back each sentence is, `(B, N)`, and whether it is remembered."""
        valid = ops.any(story != 0, axis=-1)
        places = ops.arange(ops.shape(story)[1], dtype="int32")
        last = ops.max(ops.where(valid, places, -1), axis=1, keepdims=True, initial=-1)
        times = last - places
        valid = ops.logical_and(valid, times < self.memory_size)
        return ops.clip(times, 0, self.memory_size - 1), valid

    def _places(self, ids):
        """Ids `(B, N, W)`, and the shares of l that depend on j: `(B, N, 1 or 2, W)`."""
        # Counted in float32 or wider: a half knows 257 words from 256 no more.
        words = ops.cast(ids != 0, self.hop_layers[0].score_dtype)
        if not self.position_encoding:
            return ids, ops.cast(ops.expand_dims(words, 2), self.compute_dtype)
        place, length = ops.cumsum(words, axis=-1), self.position_encoding
        if length is True:
            place = place / ops.maximum(ops.sum(words, axis=-1, keepdims=True), 1)
            level, slope = 1 - place, 2 * place - 1
        else:
            slope = (4 * ops.minimum(place, length) - 2 * (length + 1)) / length
            level = 1 - slope * (self.units + 1) / (2 * self.units)
        shares = ops.stack([words * level, words * slope], axis=2)
        return ids, ops.cast(shares, self.compute_dtype)

    def _encode(self, places, table):
        """Sentences `(B, N, D)`: l is linear in k, and so two sums over the words will do."""
        ids, shares = places
        embedded = ops.take(ops.cast(table, self.compute_dtype), ids, axis=0)  # (B, N, W, D)
        sums = ops.einsum("bnsw,bnwd->bnsd", shares, embedded)
        if not self.position_encoding:
            return sums[:, :, 0]
        feature = ops.cast(ops.arange(1, self.units + 1), self.compute_dtype) / self.units
        return sums[:, :, 0] + feature * sums[:, :, 1]

    def _check_shapes(self, story_shape, question_shape):
        wanted = {"story": (story_shape, 3, "(batch, sentences, words)")}
        wanted["question"] = (question_shape, 2, "(batch, words)")
        for name, (shape, rank, form) in wanted.items():
            one = shape is not None and not any(isinstance(x, (list, tuple)) for x in shape)
            if not one or len(shape) != rank:
                raise ValueError(
                    f"{self.name}: `{name}` must be one tensor of word ids of shape {form}; "
                    f"received {shape and tuple(shape)}. Call layer(story, question)."
                )
        if not fits(story_shape[:1], question_shape[:1]):
            raise ValueError(
                f"{self.name}: the batch size must be the same in `story` and `question`; "
                f"received {story_shape[0]} and {question_shape[0]}."
            )

    def compute_output_shape(self, story_shape, question_shape=None):
        self._check_shapes(story_shape, question_shape)
        return (story_shape[0], self.vocabulary_size)

    def compute_output_spec(self, *args, **kwargs):
        # By tracing: what is returned depends on return_attention_scores.
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def get_config(self):
        return {
            **super().get_config(),
            "vocabulary_size": self.vocabulary_size,
            "units": self.units,
            "hops": self.hops,
            "tying": self.tying,
            "position_encoding": self.position_encoding,
            "memory_size": self.memory_size,
            "null_memories": self.null_memories,
        }


def _normal(shape, dtype=None):
    """N(0, 0.1); an initializer anew for every weight, for one draws the same at every call."""
    return keras.initializers.RandomNormal(stddev=0.1)(shape, dtype)


def _null(shape, dtype=None):
    """N(0, 0.1), and zeros for padding."""
    words = ops.cast(ops.expand_dims(ops.arange(shape[0]) > 0, 1), dtype)
    return _normal(shape, dtype) * words
