"""The protocol of an attention: its hooks, and everything that is the same in all of them."""

import inspect

import keras
from keras import ops

from keras_attention._checks import (
    check_batch,
    check_bool,
    check_choice,
    check_memory,
    check_query,
    check_query_value,
    check_rate,
    check_seed,
    check_training,
    check_width,
    shape_of,
)
from keras_attention.layers._calls import (
    CheckedLayer,
    check_mask,
    check_no_causal_mask,
    check_position,
    check_prepared,
    check_tensor,
    check_vectors,
)
from keras_attention.layers._reading import read_memory
from keras_attention.layers._types import Attended, Memory, Window
from keras_attention.ops._xla import compiling
from keras_attention.ops.masks import Masks, blanked
from keras_attention.ops.normalize import masked_softmax, masked_sparsemax
from keras_attention.ops.products import project

__all__ = ["Attended", "Memory", "ScoringMixin", "Window"]

NORMALIZERS = {"softmax": masked_softmax, "sparsemax": masked_sparsemax}


class ScoringMixin(CheckedLayer):
    """Makes an attention layer out of a score.

        e[b,i,j] = score(q[b,i], k[b,j])                    the one method to write
        a[b,i,:] = softmax of e[b,i,:] over the valid j     or sparsemax
        c[b,i]   = sum_j a[b,i,j] v[b,j]

    Sizes: B samples, Tq query and Tk memory steps, Dq, Dk and Dv features.

    Put the mixin before `keras.layers.Layer` among the base classes and write `score`. A score
    with weights also needs `build`, which begins with `super().build(...)`.

        >>> import keras, numpy
        >>> from keras_attention import ScoringMixin
        >>> class CosineAttention(ScoringMixin, keras.layers.Layer):
        ...     def score(self, query, key):
        ...         query, key = keras.ops.normalize(query), keras.ops.normalize(key)
        ...         return keras.ops.einsum("bqd,bkd->bqk", query, key)
        >>> x = numpy.eye(3, dtype="float32")[None]
        >>> context, weights = CosineAttention()(x, x, return_attention_scores=True)
        >>> [round(float(w), 4) for w in weights[0, 0]]
        [0.5761, 0.2119, 0.2119]

    There are five hooks, in the order in which people need them: `score`, `project_key`, `weigh`,
    `window` and `combine` with `output_size`. The mixin does the masking, the dropout and the
    casts. `get_config` stores every constructor argument that is kept in an attribute of the same
    name.

    Args:
        normalizer: "softmax" or "sparsemax".
        dropout: fraction of the weights dropped in training, in [0, 1).
        seed: integer, for a reproducible dropout.

    Call arguments:
        query: `(B, Tq, Dq)`, or `(B, Dq)` for one step, which drops the axis Tq everywhere.
        value: `(B, Tk, Dv)`.
        key: `(B, Tk, Dk)`; the value if not given.
        query_mask: `(B, Tq)` boolean; the output is zero where it is False.
        value_mask: `(B, Tk)` boolean; memory steps where it is False are not attended to. Both
            masks propagate automatically from layers such as `Embedding(mask_zero=True)`.
        attention_mask: `(Tq, Tk)` or `(B, Tq, Tk)` boolean, `(B, Tk)` for one step.
        use_causal_mask: query step i attends to memory steps 0 .. i only.
        return_attention_scores: also return the weights, as they are before dropout.
        position: number of the step, an integer or `(B,)`, for one step of a layer that needs it.
        training: whether dropout is active.

    Returns:
        Context `(B, Tq, Dv)`; with `return_attention_scores` also weights `(B, Tq, Tk)`. A row
        where nothing is valid has weights and context of exactly zero, and finite gradients.

    Raises:
        ValueError: ranks, batch sizes or lengths do not agree; a mask is not boolean or has
            another shape; no value is given; a tensor does not hold floating-point numbers; an
            argument is out of its range.
        TypeError: an argument of the call is unknown.
    """

    # Which output of the cell is the query in an `AttentionRNN`: "previous" or "current".
    decoder_query = "previous"
    # Whether a query of one step must come with its `position`.
    uses_position = False
    # A score for windows, `score_window(query, key, position)`: keys `(B, Tk, Dp)` at positions
    # `(B, Tq, W)` to scores `(B, Tq, W)`. Without one, windows mask the scores of the whole memory.
    score_window = None

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if "score" in vars(cls) and "score_window" not in vars(cls):
            cls.score_window = None  # the inherited one belongs to another score
        bases = cls.__mro__
        if keras.layers.Layer in bases and bases.index(keras.layers.Layer) < bases.index(
            ScoringMixin
        ):
            raise TypeError(
                f"{cls.__name__}: ScoringMixin must come before the Keras layer. Write class "
                f"{cls.__name__}(ScoringMixin, keras.layers.Layer)."
            )

    def __init__(self, normalizer="softmax", dropout=0.0, seed=None, **kwargs):
        if not isinstance(self, keras.layers.Layer):
            raise TypeError(
                f"{type(self).__name__} is not a Keras layer. Write class MyAttention("
                "ScoringMixin, keras.layers.Layer)."
            )
        super().__init__(**kwargs)
        self.normalizer = check_choice(self.name, "normalizer", normalizer, tuple(NORMALIZERS))
        self.dropout = check_rate(self.name, "dropout", dropout)
        self.seed = check_seed(self.name, seed)
        if self.dropout > 0:
            self.seed_generator = keras.random.SeedGenerator(self.seed)
        self.supports_masking = True

    def build(self, query_shape, value_shape=None, key_shape=None):
        check_query_value(self.name, query_shape, value_shape, key_shape)
        shapes = {"query": query_shape, "value": value_shape, "key": key_shape or value_shape}
        self._sizes = {name: shape[-1] for name, shape in shapes.items()}

    def call(
        self,
        query,
        value=None,
        key=None,
        query_mask=None,
        value_mask=None,
        attention_mask=None,
        use_causal_mask=False,
        return_attention_scores=False,
        position=None,
        training=None,
    ):
        check_query_value(self.name, shape_of(query), shape_of(value), shape_of(key))
        attended = self.attend(
            query,
            self.prepare(value, key, value_mask),
            query_mask=query_mask,
            attention_mask=attention_mask,
            use_causal_mask=use_causal_mask,
            position=position,
            return_attention_scores=return_attention_scores,
            training=training,
        )
        return (attended.output, attended.weights) if return_attention_scores else attended.output

    def prepare(self, value, key=None, value_mask=None):
        """Computes, once per memory, everything that does not depend on the query.

        For decoding: `memory = layer.prepare(encoded, value_mask=mask)` before the loop, and
        `layer.attend(query, memory)` in it. The layer must have been built.

        Args:
            value, key, value_mask: as in a call. Pass the mask: it does not propagate here.

        Returns:
            A `Memory`.
        """
        for name, x in (("value", value), ("key", key)):
            check_tensor(self.name, name, x, " Call layer.prepare(value).")
            check_vectors(self.name, name, x, " Pass a mask by its name: `value_mask`.")
        check_memory(self.name, shape_of(value), shape_of(key))
        check_mask(self.name, "value_mask", value_mask, [shape_of(value)[:2]])
        self._check_built("value", value)
        self._check_built("key", value if key is None else key)
        if value_mask is not None:
            key = None if key is None else blanked(key, value_mask)
            value = blanked(value, value_mask)
        key = self.project_key(value if key is None else key)
        # A cast would copy the keys even if their dtype is right.
        if keras.backend.standardize_dtype(key.dtype) != self.score_dtype:
            key = ops.cast(key, self.score_dtype)
        return Memory(key, value, value_mask)

    def attend(
        self,
        query,
        memory,
        state=None,
        query_mask=None,
        attention_mask=None,
        use_causal_mask=False,
        position=None,
        return_attention_scores=True,
        training=None,
    ):
        """Attends to a prepared memory.

        Args:
            query, query_mask, attention_mask, use_causal_mask, position, training: as in a call.
            memory: a `Memory`, from `prepare`.
            state: None, for an attention without a state.
            return_attention_scores: pass False where the weights are not needed. This may save
                the work of making them; then the weights may be None.

        Returns:
            `Attended(output, state, weights)`.
        """
        check_bool(self.name, "return_attention_scores", return_attention_scores)
        check_training(self.name, training)
        one_step = self._check_attend(
            query, memory, query_mask, attention_mask, use_causal_mask, position
        )
        if one_step:
            query, query_mask, attention_mask = (
                None if x is None else ops.expand_dims(x, 1)
                for x in (query, query_mask, attention_mask)
            )
        query = blanked(query, query_mask)
        masks = Masks(memory.mask, query_mask, attention_mask, use_causal_mask)
        with compiling(True if training else None):
            window = self.window(query, memory, position)
            context, weights = read_memory(
                self, query, memory, masks, window, return_attention_scores, training
            )
        output = blanked(self.combine(query, context), query_mask)
        weights = None if weights is None else ops.cast(weights, self.compute_dtype)
        if one_step:
            output = ops.squeeze(output, 1)
            weights = None if weights is None else ops.squeeze(weights, 1)
        return Attended(output, state, weights)

    def score(self, query, key):
        """The equation of the layer.

        Args:
            query: `(B, Tq, Dq)` in `score_dtype`.
            key: `(B, Tk, Dp)` in `score_dtype`, as `project_key` returned it.

        Returns:
            Scores `(B, Tq, Tk)`.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must define score(query, key) -> (batch, query steps, "
            "memory steps)."
        )

    def project_key(self, key):
        """The part of the score that depends on the keys alone, computed once per memory."""
        return key

    def weigh(self, scores, mask):
        """From scores to weights, over the last axis.

        Args:
            scores: `(B, Tq, Tk)`, or `(B, Tq, W)` in a window.
            mask: boolean, broadcasts to the scores, or None.
        """
        return NORMALIZERS[self.normalizer](scores, mask)

    def window(self, query, memory, position):
        """The `Window` of the memory that each query reads; None to read everything.

        Args:
            query: `(B, Tq, Dq)`. memory: `Memory`. position: as in a call.
        """
        return None

    def combine(self, query, context):
        """From the context to the output of the layer."""
        return context

    def output_size(self, query_size, value_size):
        """The features of the output."""
        return value_size

    def project(self, sequence, kernel):
        """Multiplies `(B, T, D)` by `(D, U)` in the compute dtype; returns `score_dtype`."""
        sequence, kernel = (ops.cast(x, self.compute_dtype) for x in (sequence, kernel))
        return ops.cast(project(sequence, kernel), self.score_dtype)

    @property
    def score_dtype(self):
        """The dtype of scores: at least float32, whatever the compute dtype."""
        return "float64" if self.compute_dtype == "float64" else "float32"

    def _check_attend(self, query, memory, query_mask, attention_mask, use_causal_mask, position):
        """Checks the arguments of `attend`; returns whether the query is one step."""
        check_tensor(self.name, "query", query)
        check_vectors(self.name, "query", query)
        check_prepared(self.name, memory)
        check_bool(self.name, "use_causal_mask", use_causal_mask)
        check_query(self.name, query.shape)
        check_batch(self.name, query=query.shape, value=memory.value.shape)
        self._check_built("query", query)
        check_position(self.name, position, self.uses_position, query.shape)
        batch, steps, length = query.shape[0], query.shape[1], memory.value.shape[1]
        one_step = len(query.shape) == 2
        if one_step:
            check_no_causal_mask(self.name, use_causal_mask, query.shape)
        check_mask(self.name, "query_mask", query_mask, [(batch,) if one_step else (batch, steps)])
        pairs = [(batch, length)] if one_step else [(steps, length), (batch, steps, length)]
        check_mask(self.name, "attention_mask", attention_mask, pairs)
        return one_step

    def _check_built(self, name, tensor):
        if not self.built:
            raise ValueError(
                f"{self.name}: the layer has no weights yet. Call it once, or its build(), before "
                "prepare() and attend()."
            )
        if hasattr(self, "_sizes"):
            check_width(self.name, name, tensor.shape, self._sizes[name])

    def compute_output_shape(self, query_shape, value_shape=None, key_shape=None):
        check_query_value(self.name, query_shape, value_shape, key_shape)
        return (*query_shape[:-1], self.output_size(query_shape[-1], value_shape[-1]))

    def compute_output_spec(self, *args, **kwargs):
        # Tracing the call finds out whether it returns weights.
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def get_config(self):
        config = {
            **super().get_config(),
            "normalizer": self.normalizer,
            "dropout": self.dropout,
            "seed": self.seed,
        }
        for name in inspect.signature(self.__init__).parameters:
            if name not in config and hasattr(self, name):
                config[name] = getattr(self, name)
        return config
