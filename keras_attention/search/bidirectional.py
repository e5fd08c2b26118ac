"""Search with a model that writes from left to right and one that writes from right to left."""

import inspect
import math
from collections.abc import Sequence

from keras import ops, tree

from keras_attention._checks import counted
from keras_attention._typing import Nested
from keras_attention.ops._samples import take_rows
from keras_attention.search._result import SearchResult, by_sample
from keras_attention.search._step import Step
from keras_attention.search.beam import beam_search
from keras_attention.search.greedy import greedy_search
from keras_attention.search.reversal import reversed_places

__all__ = ["bidirectional_search"]

_DEFAULTS = {name: x.default for name, x in inspect.signature(beam_search).parameters.items()}


def bidirectional_search(
    steps: Sequence[Step],
    states: Sequence[Nested],
    memories: Sequence[Nested],
    *,
    start_token: int,
    end_token: int,
    max_length: int,
    beam_width: int = _DEFAULTS["beam_width"],
    length_penalty: float = _DEFAULTS["length_penalty"],
    min_length: int = 0,
    no_repeat_ngram_size: int = 0,
) -> SearchResult:
    """Finds sequences that two models agree on, one of which writes backwards (Liu et al., 2016).

        score(y) = (log p_f(y | x) + log p_b(y' | x)) / 2 / lp(len(y))
        lp(n)    = ((5 + n) / 6) ** length_penalty

    y' is y with the tokens before its end token in reverse order, see `reverse_tokens`. Each model
    searches with K beams. Then each scores what the other has found, and the K best of all
    sequences are returned. A model that has begun well may end badly; the other one notices.

    Sizes: B samples, K beams, at most L tokens, Tk memory steps.

    Args:
        steps: the step functions of the forward and of the backward model; see
            `keras_attention.search`. For several models in one direction, see `average_steps`.
        states: their initial states. memories: what their steps read.
        start_token, end_token, max_length: see `beam_search`.
        beam_width: K, the beams of each model and of the result.
        length_penalty, min_length, no_repeat_ngram_size: see `beam_search`.

    Returns:
        `SearchResult` as that of `beam_search`, in reading order. `log_probs` are the means of both
        models. The weights are those of the forward model.

    Raises:
        ValueError: `steps`, `states` or `memories` is no pair; otherwise as `beam_search`.

    Example:
        The memory of one sample is a table of p(next | last). Forwards, 2 is the better beginning;
        backwards, 3 is by far the better end, and the two agree on 3.

        >>> import numpy as np
        >>> from keras import ops
        >>> from keras_attention import bidirectional_search
        >>> def step(tokens, state, memory):
        ...     row = ops.take_along_axis(memory, ops.reshape(tokens, (-1, 1, 1)), axis=1)
        ...     return ops.log(ops.squeeze(row, 1)), state, None
        >>> ends = [[0.01, 0.97, 0.01, 0.01]] * 3
        >>> forward = np.array([[[0.01, 0.01, 0.5, 0.48], *ends]])
        >>> backward = np.array([[[0.01, 0.01, 0.1, 0.88], *ends]])
        >>> tokens = dict(start_token=0, end_token=1, max_length=2, beam_width=2)
        >>> found = bidirectional_search(
        ...     (step, step), (None, None), (forward, backward), **tokens)
        >>> ops.convert_to_numpy(found.tokens).tolist()
        [[[3, 1], [2, 1]]]

    Reference: https://aclanthology.org/N16-1046. There, the log probabilities are summed, which
    ranks alike.
    """
    for name, x in (("steps", steps), ("states", states), ("memories", memories)):
        if not isinstance(x, (list, tuple)) or len(x) != 2:
            raise ValueError(
                f"bidirectional_search: `{name}` must be a pair, for the forward and the backward "
                f"model; received {counted(x)}."
            )
    tokens = {"start_token": start_token, "end_token": end_token, "max_length": max_length}
    options = {"min_length": min_length, "no_repeat_ngram_size": no_repeat_ngram_size}
    options |= {"beam_width": beam_width, "length_penalty": length_penalty}
    ahead, back = list(zip(steps, states, memories, strict=True))
    first = beam_search(*ahead, **tokens, **options)
    second = _reversed(beam_search(*back, **tokens, **options), end_token)
    # Each sequence as the forward model and as the backward model see it.
    by_ahead = [first, _scored(second.tokens, ahead, tokens)]
    by_back = [_scored(_reversed(first, end_token).tokens, back, tokens), second]
    by_back[0] = _reversed(by_back[0], end_token)

    def joined(x, y):
        return None if x is None else ops.concatenate([x, y], axis=1)

    one, other = (tree.map_structure(joined, *found) for found in (by_ahead, by_back))
    log_probs = (one.log_probs + other.log_probs) / 2
    penalties = ((5 + ops.cast(one.lengths, "float32")) / 6) ** length_penalty
    scores = ops.sum(log_probs, axis=-1) / penalties
    # A model may refuse what the other one writes.
    counts = (one.lengths > 0) & (other.lengths > 0)
    counts &= joined(ops.ones_like(first.lengths, "bool"), ~_among(second, first))
    scores = ops.where(counts, scores, -math.inf)
    _, best = ops.top_k(scores, beam_width)
    found = one._replace(scores=scores, log_probs=log_probs)
    found = tree.map_structure(
        lambda x: None if x is None else take_rows(x, ops.cast(best, "int32")), found
    )
    return _cleared(found, end_token)


def _reversed(found, end_token):
    """The tokens of `(B, K, L)` in reverse order, with their log probabilities."""
    places = reversed_places(found.tokens, end_token, end_token)
    turned = [ops.take_along_axis(x, places, axis=-1) for x in (found.tokens, found.log_probs)]
    return found._replace(tokens=turned[0], log_probs=turned[1])


def _among(found, others):
    """Whether a sequence of `found`, `(B, K)`, is one of the others too."""
    same = ops.expand_dims(found.tokens, 2) == ops.expand_dims(others.tokens, 1)
    same = ops.all(same, axis=-1) & ops.expand_dims(others.lengths > 0, 1)
    return ops.any(same, axis=-1)


def _scored(sequences, model, tokens):
    """What a greedy search returns that may write the sequences `(B, K, L)` alone."""
    width = ops.shape(sequences)[1]
    step, *parts = model
    parts = tree.map_structure(lambda x: None if x is None else ops.repeat(x, width, axis=0), parts)
    forced = ops.reshape(sequences, (-1, tokens["max_length"]))
    return by_sample(greedy_search(step, *parts, **tokens, prefix=forced), width)


def _cleared(found, end_token):
    """Sequences that do not exist are empty, as in a beam search."""
    exists = found.scores > -math.inf

    def where(x, default):
        shape = (*ops.shape(exists), *(1,) * (len(x.shape) - 2))
        return ops.where(ops.reshape(exists, shape), x, ops.cast(default, x.dtype))

    weights = None if found.weights is None else where(found.weights, 0)
    return SearchResult(
        tokens=where(found.tokens, end_token),
        lengths=where(found.lengths, 0),
        scores=found.scores,
        weights=weights,
        log_probs=where(found.log_probs, 0),
    )
