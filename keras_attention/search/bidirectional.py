"""Search with a model that writes from left to right and one that writes from right to left."""

import math
from collections.abc import Sequence

from keras_attention._spec import Description, describe_length, raise_value_error
from keras_attention._typing import Nested, Size, Tensor
from keras_attention.backend import gather_rows, ops, tree_map
from keras_attention.search._decoding_loop import length_factor
from keras_attention.search._search_result import SearchResult, by_sample, mask_missing
from keras_attention.search._step_checks import Step
from keras_attention.search.beam import beam_search
from keras_attention.search.greedy import greedy_search
from keras_attention.search.reverse_tokens import reversed_positions

__all__ = ["bidirectional_search"]


def bidirectional_search(
    steps: Sequence[Step],
    states: Sequence[Nested],
    memories: Sequence[Nested],
    *,
    start_token: int,
    end_token: int,
    max_length: int,
    beam_width: int = 5,
    length_penalty: float | Tensor = 1.0,
    min_length: Size = 0,
    no_repeat_ngram_size: int = 0,
    limit: Size | None = None,
) -> SearchResult:
    """Search with two models that write in opposite directions (Liu et al., 2016).

        score(y) = (log p_l(y | x) + log p_r(y' | x)) / 2 / lp(len(y))
        lp(n)    = ((5 + n) / 6) ** length_penalty

    y' is y with the tokens before its end token in reverse order, see `reverse_tokens`. Each model
    searches with K beams and scores the sequences of the other one. The K best of them are the
    result. Each model makes most mistakes at the end, where the other one begins.

    A sequence that is cut off at L tokens is a beginning to one model and an end to the other one.
    Such sequences come last, so choose L large enough. On JAX, compile the search, as `beam_search`
    shows.

    Sizes: B samples, K beams, at most L tokens, Tk memory steps.

    Args:
        steps: the step functions of a left-to-right and of a right-to-left model with one
            vocabulary; see `keras_attention.search`. `average_steps` joins several models of one
            direction.
        states: the two initial states, see `beam_search`.
        memories: what the steps of each model read, see `beam_search`.
        start_token, end_token, max_length: see `beam_search`.
        beam_width: K, the beams of each model and of the result.
        length_penalty, min_length, no_repeat_ngram_size, limit: see `beam_search`.

    Returns:
        A `SearchResult`, as from `beam_search`, in reading order. `log_probs` are the means of the
        log probabilities that both models give to a token. The left-to-right model gives the
        weights.

    Raises:
        ValueError: `steps`, `states` or `memories` is not a pair. Also everything that
            `beam_search` raises.

    Example:
        The memory of one sample is a table of p(next | last). From the left, 2 is slightly better
        than 3; from the right, 3 is much better. Together they choose 3.

        >>> import numpy as np
        >>> from keras import ops
        >>> from keras_attention.search import bidirectional_search
        >>> def step(tokens, state, memory):
        ...     row = ops.take_along_axis(memory, ops.reshape(tokens, (-1, 1, 1)), axis=1)
        ...     return ops.log(ops.squeeze(row, 1)), state, None
        >>> ends = [[0.01, 0.97, 0.01, 0.01]] * 3
        >>> left = np.array([[[0.01, 0.01, 0.5, 0.48], *ends]])
        >>> right = np.array([[[0.01, 0.01, 0.1, 0.88], *ends]])
        >>> tokens = dict(start_token=0, end_token=1, max_length=2, beam_width=2)
        >>> result = bidirectional_search((step, step), (None, None), (left, right), **tokens)
        >>> ops.convert_to_numpy(result.tokens).tolist()
        [[[3, 1], [2, 1]]]

    Reference: https://aclanthology.org/N16-1046, which searches for agreement in the same way. The
    mean in place of a sum, and the length penalty, are ours.
    """
    pairs = {"steps": steps, "states": states, "memories": memories}
    for name, x in pairs.items():
        if not isinstance(x, (list, tuple)) or len(x) != 2:
            expected = f"`{name}` must be a pair, one for the left-to-right model and one for the "
            received = Description(describe_length(x))
            raise_value_error("bidirectional_search", f"{expected}right-to-left model", received)

    tokens = {"start_token": start_token, "end_token": end_token, "max_length": max_length}
    tokens |= {"limit": limit}
    options = {"min_length": min_length, "no_repeat_ngram_size": no_repeat_ngram_size}
    options |= {"beam_width": beam_width, "length_penalty": length_penalty}
    one, other = zip(steps, states, memories, strict=True)
    # The sequences of each model, and their scores by the other one, all in reading order.
    left = beam_search(*one, **tokens, **options)
    left_scored = _reversed(_score_forced(_reversed(left, end_token), other, tokens), end_token)
    right = _reversed(beam_search(*other, **tokens, **options), end_token)
    right_scored = _score_forced(right, one, tokens)

    result = _joined(left, right_scored)
    again = _joined(left_scored._replace(weights=None), right._replace(weights=None))
    log_probs = (result.log_probs + again.log_probs) / 2
    lengths = ops.cast(result.lengths, "float32")
    scores = ops.sum(log_probs, axis=-1) / length_factor(lengths, length_penalty)
    # One model may give probability zero to a sequence of the other one.
    exists = (result.lengths > 0) & (again.lengths > 0)
    exists &= ops.concatenate([left.lengths > -1, ~_among(right, left)], axis=1)
    result = result._replace(scores=ops.where(exists, scores, -math.inf), log_probs=log_probs)
    position = ops.arange(max_length, dtype="int32")
    inside = position < ops.expand_dims(result.lengths, -1)  # end tokens fill the buffer after it
    ended = ops.any((result.tokens == end_token) & inside, axis=-1)
    best = _best(result.scores, exists & ended, beam_width)
    result = tree_map(lambda x: gather_rows(x, best), result)
    return mask_missing(result, result.scores > -math.inf, end_token)


def _reversed(result, end_token):
    """Reverse the tokens `(B, K, L)` and their log probabilities."""
    positions = reversed_positions(result.tokens, end_token, end_token)
    turned = [ops.take_along_axis(x, positions, axis=-1) for x in (result.tokens, result.log_probs)]
    return result._replace(tokens=turned[0], log_probs=turned[1])


def _score_forced(result, model, tokens):
    """Score the sequences `(B, K, L)`: a greedy search with each of them as its prefix."""
    width = ops.shape(result.tokens)[1]
    step, *inputs = model
    inputs = tree_map(lambda x: ops.repeat(x, width, axis=0), inputs)
    prefix = ops.reshape(result.tokens, (-1, tokens["max_length"]))
    return by_sample(greedy_search(step, *inputs, **tokens, prefix=prefix), width)


def _joined(first, second):
    """Concatenate the sequences of both: `(B, 2 K, ...)`."""
    return tree_map(lambda x, y: ops.concatenate([x, y], axis=1), first, second)


def _among(result, others):
    """Mark the sequences of `result`, `(B, K)`, that `others` holds too."""
    same = ops.expand_dims(result.tokens, 2) == ops.expand_dims(others.tokens, 1)
    return ops.any(ops.all(same, axis=-1), axis=-1)


def _best(scores, ended, count):
    """Return the indices `(B, count)` of the best scores. Sequences that ended come first."""
    every = scores.shape[-1]
    order = ops.cast(ops.top_k(scores, every)[1], "int32")
    later = ~ops.take_along_axis(ended, order, axis=1)
    rank = ops.arange(every, dtype="int32") + every * ops.cast(later, "int32")
    positions = ops.cast(ops.top_k(-rank, count)[1], "int32")
    return ops.take_along_axis(order, positions, axis=1)
