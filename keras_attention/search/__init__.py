"""Greedy and beam search over any step function, with buffers of fixed size.

Both run eagerly, in `tf.function` with or without `jit_compile`, in `jax.jit`, and exported.

The decoder is a function `step(tokens, state, memory) -> (logits, state, weights)` of N hypotheses:

    tokens:  `(N,)` int32, the tokens chosen last; at first the start token.
    state:   what changes from step to step: any nesting of tensors `(N, ...)` and None, of any
             dtypes. It comes back nested and shaped as it was given.
    memory:  what stays (encoder outputs, projected keys, masks): any nesting of tensors `(N, ...)`
             and None. The search repeats it once for the beams, and does not copy it again.
    logits:  `(N, V)`, unnormalised; -inf forbids a token, and a row of -inf or NaN the sequence.
    weights: `(N, Tk)`, the attention weights of this step, or None.

B samples, K beams, N = B K; V tokens in the vocabulary, Tk memory steps.
"""

from keras_attention.search._loop import SearchResult
from keras_attention.search.beam import beam_search
from keras_attention.search.greedy import greedy_search

__all__ = ["SearchResult", "beam_search", "greedy_search"]
