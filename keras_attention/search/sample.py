"""Sampling."""

from collections.abc import Sequence

import keras

from keras_attention._spec import MAX_TOKEN, check_int
from keras_attention._typing import Nested, Size, Tensor
from keras_attention.backend import ops
from keras_attention.search._decoding_loop import clip_impossible, log_softmax_of, run_search
from keras_attention.search._random import draw, search_seed, step_seed
from keras_attention.search._search_result import SearchResult
from keras_attention.search._step_checks import Step
from keras_attention.search.options import (
    MAX_HYPOTHESES,
    LogitsProcessor,
    SearchOptions,
    check_option,
)

__all__ = ["sample_search"]


def sample_search(
    step: Step,
    state: Nested,
    memory: Nested = None,
    *,
    start_token: int,
    end_token: int,
    max_length: int,
    samples: int = 1,
    temperature: float | Tensor = 1.0,
    top_k: int | None = None,
    top_p: float | Tensor | None = None,
    seed: int | Tensor | keras.random.SeedGenerator | None = None,
    min_length: Size = 0,
    no_repeat_ngram_size: int = 0,
    prefix: Tensor | None = None,
    limit: Size | None = None,
    logits_processors: Sequence[LogitsProcessor] = (),
) -> SearchResult:
    """Draw every token at random. K outputs of each sample are drawn independently.

        q(v)     = p(v | y[<t], x) ** (1 / temperature) / Z     over the tokens that are kept
        y[t]     ~ q
        score(y) = sum_t log p(y[t] | y[<t], x)

    The score is that of the model, p: temperature, `top_k` and `top_p` do not change it. The tokens
    kept are, in this order: those that `min_length`, `no_repeat_ngram_size`, `logits_processors`
    and `prefix` allow; the `top_k` most probable; the smallest set of the most probable whose share
    of q is at least `top_p`. The search stops when all outputs have ended. An output for which a
    step allows no token has score -inf, length 0, only end tokens, and weights of zeros. On JAX,
    compile the search, as `beam_search` shows.

    Sizes: B samples, K draws, V tokens in the vocabulary, at most L tokens, Tk memory steps.

    Args:
        step: `step(tokens, state, memory) -> (logits, state, weights)` for N = B K hypotheses; see
            `keras_attention.search`.
        state: the initial state, tensors `(B, ...)` in any nesting, or None.
        memory: what every step reads, tensors `(B, ...)` in any nesting, or None.
        start_token: the token that the first step receives.
        end_token: the token that ends a sequence.
        max_length: L, the largest number of tokens, the end token included.
        samples: K, the number of outputs of each sample.
        temperature: above 0. Below 1 it favours probable tokens, above 1 the others.
        top_k: the number of tokens kept at every step, or None for all. 1 is a greedy search.
        top_p: the share of the probability kept, above 0 and at most 1, or None for all. Tokens as
            probable as the last one of the set are kept too.
        seed: an integer, which gives the same outputs at every call; a scalar integer tensor, such
            as an argument of a compiled function; a `keras.random.SeedGenerator`; or None for the
            generator of Keras. In `jax.jit`, pass one of the first two. The same seed draws other
            outputs on another backend, and on TensorFlow when XLA compiles.
        min_length, no_repeat_ngram_size, prefix, limit, logits_processors: see `beam_search`.
            `temperature` and `top_p` may be scalar tensors, as `limit`.

    Returns:
        `SearchResult` with tokens `(B, K, L)`, lengths `(B, K)`, scores `(B, K)`, weights
        `(B, K, L, Tk)` and log probabilities `(B, K, L)`. The draws are not sorted.

    Raises:
        ValueError: `samples`, `temperature`, `top_k`, `top_p` or `seed` is out of range; otherwise
            as `beam_search`.

    Example:
        Token 1 ends an output, and follows a token with probability 0.5.

        >>> import numpy as np
        >>> from keras import ops
        >>> from keras_attention import sample_search
        >>> def step(tokens, state, memory):
        ...     return ops.log(memory), state, None
        >>> memory = np.array([[0.3, 0.5, 0.2]])
        >>> tokens = dict(start_token=0, end_token=1, max_length=30)
        >>> result = sample_search(step, None, memory, samples=1000, seed=0, **tokens)
        >>> bool(abs(np.mean(ops.convert_to_numpy(result.lengths)) - 2) < 0.1)
        True
        >>> result = sample_search(step, None, memory, samples=5, top_p=0.4, seed=0, **tokens)
        >>> ops.convert_to_numpy(result.lengths).tolist()
        [[1, 1, 1, 1, 1]]

    Reference: `top_p` is https://arxiv.org/abs/1904.09751, section 3.1; `top_k`
    https://arxiv.org/abs/1805.04833, section 5.4.
    """
    shared = start_token, end_token, max_length, min_length, no_repeat_ngram_size, prefix, limit
    options = SearchOptions(*shared, logits_processors)
    check_int("sample_search", "samples", samples, 1, MAX_HYPOTHESES)
    temperature = check_option("sample_search", "temperature", temperature)
    if top_k is not None:
        check_int("sample_search", "top_k", top_k, 1, MAX_TOKEN)
    if top_p is not None:
        top_p = check_option("sample_search", "top_p", top_p)
        top_p = None if isinstance(top_p, float) and top_p == 1 else top_p
    seed = search_seed(seed)

    def choose(search_step):
        t, logits, allowed, beams, _ = search_step
        tokens = draw(allowed, temperature, top_k, top_p, step_seed(seed, t))
        values = ops.take_along_axis(allowed, ops.expand_dims(tokens, -1), axis=1)
        peak = ops.max(logits, axis=-1, keepdims=True)
        log_probs = ops.squeeze(log_softmax_of(values, logits, peak), -1)
        scores = ops.where(beams.active, clip_impossible(beams.totals + log_probs), beams.scores)
        tokens = ops.where(beams.active, tokens, end_token)
        return None, tokens, ops.where(beams.active, log_probs, 0.0), scores

    return run_search(step, state, memory, choose, options, samples, independent=True)
