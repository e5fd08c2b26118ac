"""The logits processors of the options of a search; see `keras_attention.search`."""

import math

from keras_attention._spec import is_tensor, raise_value_error
from keras_attention._typing import Size, Tensor
from keras_attention.backend import ops, scatter_add
from keras_attention.search.options import LogitsProcessor, SearchOptions


def logits_processors(options: SearchOptions, prefix: Tensor | None) -> list[LogitsProcessor]:
    """Return the processors of the options. The prefix, `(N, P)`, is repeated for the beams."""
    processors = []
    if not isinstance(options.min_length, int) or options.min_length > 1:
        processors.append(_min_length(options.min_length, options.end_token))
    if 0 < options.no_repeat_ngram_size < options.max_length:
        processors.append(_no_repeat_ngram(options.no_repeat_ngram_size))
    processors += map(_checked, options.logits_processors)
    return processors if prefix is None else [_prefix(prefix, processors)]


def _checked(process: LogitsProcessor) -> LogitsProcessor:
    """Check what a processor returns."""

    def checked(logits, tokens, t):
        processed = process(logits, tokens, t)
        if not is_tensor(processed, "float", *logits.shape):
            expected = f"a logits processor must return logits of shape {tuple(logits.shape)}"
            raise_value_error("search", expected, processed)
        return ops.cast(processed, "float32")

    return checked


def _min_length(length: Size, end_token: int) -> LogitsProcessor:
    """Forbid the end token before `length` tokens."""

    def process(logits, tokens, t):
        end = ops.arange(logits.shape[-1], dtype="int32") == end_token
        return ops.where(end & (t + 1 < length), -math.inf, logits)

    return process


def _no_repeat_ngram(n: int) -> LogitsProcessor:
    """Forbid every token that would complete an n-gram already in the output."""

    def process(logits, tokens, t):
        length = tokens.shape[1]
        position = ops.arange(length, dtype="int32")
        again = ops.expand_dims((position >= n - 1) & (position < t), 0)
        # Position i follows the same tokens as position t if tokens[i - j] = tokens[t - j] for all
        # j < n.
        for j in range(1, n):
            last = ops.expand_dims(ops.take(tokens, ops.maximum(t - j, 0), axis=1), -1)
            again = again & (ops.pad(tokens, ((0, 0), (j, 0)))[:, :length] == last)
        again = ops.broadcast_to(again, ops.shape(tokens))
        again = ops.expand_dims(ops.cast(again, "float32"), -1)
        repeats = scatter_add(again, tokens, logits.shape[-1])
        return ops.where(ops.squeeze(repeats, -1) > 0, -math.inf, logits)

    return process


def _prefix(prefix: Tensor, others: list[LogitsProcessor]) -> LogitsProcessor:
    """Allow only the token of the prefix where it has one, and what the others allow elsewhere."""
    prefix = ops.pad(prefix, ((0, 0), (0, 1)), constant_values=-1)  # free after the prefix
    last = ops.shape(prefix)[1] - 1

    def process(logits, tokens, t):
        allowed = logits
        for other in others:
            allowed = other(allowed, tokens, t)
        token = ops.expand_dims(ops.take(prefix, ops.minimum(t, last), axis=1), -1)
        vocabulary = ops.arange(logits.shape[-1], dtype="int32")
        fixed = ops.where(vocabulary == token, logits, -math.inf)
        return ops.where(token < 0, allowed, fixed)

    return process
