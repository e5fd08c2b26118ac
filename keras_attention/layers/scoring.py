"""The one place that knows masks, normalisation, dropout and reading."""

import inspect

import keras
from keras import ops

from keras_attention.layers.checks import (
    check_batch,
    check_choice,
    check_mask,
    check_memory,
    check_no_causal_mask,
    check_position,
    check_query,
    check_query_value,
    check_rate,
    check_scores,
    check_seed,
    check_width,
    shape_of,
)
from keras_attention.layers.prepared import Memory
from keras_attention.ops.compiled import compiling
from keras_attention.ops.masks import Masks, blanked
from keras_attention.ops.normalize import masked_softmax, masked_sparsemax

NORMALIZERS = {"softmax": masked_softmax, "sparsemax": masked_sparsemax}


class ScoringMixin:
    """Makes an attention layer out of a score.

        e[b,i,j] = score(q[b,i], k[b,j])                    `score`, the one method to write
        a[b,i,:] = normalizer of e[b,i,:] over the valid j  softmax or sparsemax
        c[b,i]   = sum_j a[b,i,j] v[b,j]

    Sizes: B samples, Tq query and Tk memory steps, Dq, Dk and Dv features.

    Put it before `keras.layers.Layer` among the bases and write `score`; give `build` if the
    score has weights, and begin it with `super().build(...)`, which checks the shapes. Keras
    wants the arguments of `build` named as below, after those of the call.

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

    Hooks, from the one always written to those seldom needed: `score(query, key)`;
    `project_key(key)`, the part of the score that depends on the memory alone and is computed
    once; `align(query, scores, mask, memory, position)`, from scores to weights; `combine(query,
    context)`, from the context to the output, with `output_size(query_size, value_size)`; `focus`,
    all from queries to contexts, for a layer that does not score every step of the memory.

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
            come by themselves from a masking layer such as `Embedding(mask_zero=True)`.
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
            another shape; no value is given; an argument is out of its range.
    """

    # Which state is the query in an `AttentionRNN`: "previous" or "current".
    decoder_query = "previous"
    # Whether a query of one step must come with its `position`.
    uses_position = False

    def __init__(self, normalizer="softmax", dropout=0.0, seed=None, **kwargs):
        super().__init__(**kwargs)
        self.normalizer = check_choice(self.name, "normalizer", normalizer, tuple(NORMALIZERS))
        self.dropout = check_rate(self.name, "dropout", dropout)
        self.seed = check_seed(self.name, seed)
        if self.dropout > 0:
            self.seed_generator = keras.random.SeedGenerator(seed)
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
        output, weights = self.attend(
            query,
            self.prepare(value, key, value_mask),
            query_mask=query_mask,
            attention_mask=attention_mask,
            use_causal_mask=use_causal_mask,
            position=position,
            return_attention_scores=return_attention_scores,
            training=training,
        )
        return (output, weights) if return_attention_scores else output

    def prepare(self, value, key=None, value_mask=None):
        """Computes once what does not depend on the query: the projected keys.

        For decoding: `memory = layer.prepare(encoded, value_mask=mask)` before the loop, and
        `layer.attend(query, memory)` in it. The layer must have been built.

        Args:
            value, key, value_mask: as in a call, except that no mask comes by itself.

        Returns:
            A `Memory`.
        """
        check_memory(self.name, shape_of(value), shape_of(key))
        check_mask(self.name, "value_mask", value_mask, [shape_of(value)[:2]])
        self._check_built("value", value)
        self._check_built("key", value if key is None else key)
        if value_mask is None:
            return Memory(self.project_key(value if key is None else key), value)
        value = blanked(value, value_mask)
        key = value if key is None else blanked(key, value_mask)
        return Memory(self.project_key(key), value, value_mask)

    def attend(
        self,
        query,
        memory,
        query_mask=None,
        attention_mask=None,
        use_causal_mask=False,
        position=None,
        return_attention_scores=True,
        training=None,
    ):
        """Attends to a prepared memory.

        Args:
            query, query_mask, attention_mask, use_causal_mask, training: as in a call.
            memory: a `Memory`, from `prepare`.
            position: as in a call.
            return_attention_scores: False if the weights are not needed, which may save the work
                of making them; then `weights` may be None.

        Returns:
            `(output, weights)`, `(B, Tq, Dv)` and `(B, Tq, Tk)`, without Tq for one step.
        """
        check_query(self.name, query.shape)
        check_batch(self.name, query=query.shape, value=memory.value.shape)
        self._check_built("query", query)
        batch, steps = query.shape[0], query.shape[1]
        length = memory.value.shape[1]
        one_step = len(query.shape) == 2
        check_position(self.name, position, self.uses_position, query.shape)
        if one_step:
            check_no_causal_mask(self.name, use_causal_mask, query.shape)
            check_mask(self.name, "query_mask", query_mask, [(batch,)])
            check_mask(self.name, "attention_mask", attention_mask, [(batch, length)])
            query, query_mask, attention_mask = (
                None if x is None else ops.expand_dims(x, 1)
                for x in (query, query_mask, attention_mask)
            )
        else:
            check_mask(self.name, "query_mask", query_mask, [(batch, steps)])
            shapes = [(steps, length), (batch, steps, length)]
            check_mask(self.name, "attention_mask", attention_mask, shapes)

        query = blanked(query, query_mask)
        masks = Masks(memory.mask, query_mask, attention_mask, use_causal_mask)
        with compiling(training or None):
            context, weights = self.focus(
                query, memory, masks, position, return_attention_scores, training
            )
        output = blanked(self.combine(query, context), query_mask)
        weights = None if weights is None else ops.cast(weights, self.compute_dtype)
        if one_step:
            output = ops.squeeze(output, 1)
            weights = None if weights is None else ops.squeeze(weights, 1)
        return output, weights

    def focus(self, query, memory, masks, position, return_attention_scores, training):
        """Scores, weights and context, of queries that are blanked where they are masked.

        Here every query is compared with the whole memory. A layer whose queries read less of it
        has a way of its own.

        Args:
            query: `(B, Tq, Dq)`. masks: `Masks`, for the two.
            memory, position, return_attention_scores, training: as of `attend`.

        Returns:
            `(context, weights)`, `(B, Tq, Dv)` and `(B, Tq, Tk)`, or None if they are not wanted.
        """
        scores = self.score(query, memory.key)
        self.check_scores(scores, query, memory)
        mask = masks.joined(*ops.shape(scores)[1:])
        weights = self.align(query, scores, mask, memory, position)
        return self.read(weights, memory.value, training), weights

    def score(self, query, key):
        """The equation of the layer: `(B, Tq, Dq)` and projected keys to scores `(B, Tq, Tk)`."""
        raise NotImplementedError(
            f"{type(self).__name__} must define score(query, key) -> (batch, query steps, "
            "memory steps)."
        )

    def project_key(self, key):
        """The part of the score that depends on the keys alone; `score` receives its result."""
        return key

    def project(self, sequence, kernel):
        """`(B, T, D)` by `(D, U)`, in the compute dtype, also outside a call of the layer."""
        sequence, kernel = (ops.cast(x, self.compute_dtype) for x in (sequence, kernel))
        return ops.einsum("btd,du->btu", sequence, kernel)

    def align(self, query, scores, mask, memory, position=None):
        """From scores to weights, in float32 or wider; `mask` broadcasts to the scores, or None."""
        return NORMALIZERS[self.normalizer](scores, mask)

    def drop_memory(self, memory):
        """The memory with dropout for all steps alike, where `attend` is to be called in a loop.

        A weight that is dropped at every step is a value that is dropped, and so one draw before
        the loop will do, as in the cells of Keras.
        """
        if self.dropout == 0:
            return memory
        keep = ops.ones_like(memory.value[:, :, :1])
        keep = keras.random.dropout(keep, self.dropout, seed=self.seed_generator)
        return memory._replace(value=memory.value * keep)

    def read(self, weights, value, training=None):
        """The context: the values summed by their weights, some of them dropped in training."""
        value = ops.cast(value, self.compute_dtype)
        return ops.einsum("bqk,bkd->bqd", self.drop(weights, training), value)

    def drop(self, weights, training=None):
        """The weights as they are used: in the compute dtype, some of them dropped in training."""
        if training and self.dropout > 0:
            weights = keras.random.dropout(weights, self.dropout, seed=self.seed_generator)
        return ops.cast(weights, self.compute_dtype)

    def combine(self, query, context):
        """From the context to the output of the layer."""
        return context

    def output_size(self, query_size, value_size):
        """The features of the output."""
        return value_size

    def _check_built(self, name, tensor):
        if not self.built:
            raise ValueError(
                f"{self.name}: the layer has no weights yet. Call it once, or its build(), before "
                "prepare() and attend()."
            )
        if hasattr(self, "_sizes"):
            check_width(self.name, name, tensor.shape, self._sizes[name])

    def check_scores(self, scores, query, memory):
        """Refuses scores that are not `(B, Tq, Tk)`."""
        wanted = (query.shape[0], query.shape[1], memory.value.shape[1])
        check_scores(self.name, tuple(scores.shape), wanted)

    @property
    def score_dtype(self):
        """Scores of half-precision layers are summed in float32."""
        return "float64" if self.compute_dtype == "float64" else "float32"

    def compute_output_shape(self, query_shape, value_shape=None, key_shape=None):
        check_query_value(self.name, query_shape, value_shape, key_shape)
        return (*query_shape[:-1], self.output_size(query_shape[-1], value_shape[-1]))

    def compute_output_spec(self, *args, **kwargs):
        # By tracing: what is returned depends on return_attention_scores.
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def get_config(self):
        config = {
            **super().get_config(),
            "normalizer": self.normalizer,
            "dropout": self.dropout,
            "seed": self.seed,
        }
        # Arguments of a subclass that are kept, as Keras does it, in attributes of the same name.
        for name in inspect.signature(type(self).__init__).parameters:
            value = getattr(self, name, None)
            if name not in config and isinstance(value, (bool, int, float, str)):
                config[name] = value
        return config
