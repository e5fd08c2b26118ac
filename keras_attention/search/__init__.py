"""Greedy search, beam search and sampling over any step function, and free runs.

Their buffers have a fixed size. They run eagerly, in `tf.function` with or without `jit_compile`,
in `jax.jit`, and in exported models. On PyTorch, no gradients flow through a search.

The decoder is a function `step(tokens, state, memory) -> (logits, state, weights)`. It advances N
hypotheses by one token:

    tokens:  `(N,)` int32, the tokens chosen last, the start token at first.
    state:   what changes from step to step, any nesting of tensors `(N, ...)` and None. The step
             returns it with the same nesting, shapes and dtypes.
    memory:  what stays the same, such as encoder outputs, projected keys and masks: any nesting of
             tensors `(N, ...)` and None. The search repeats it for the beams once.
    logits:  `(N, V)`, unnormalised. A logit of -inf forbids a token; a row of -inf or NaN forbids
             the sequence.
    weights: `(N, Tk)`, the attention weights of this step, a list of them for several memories, or
             None.

A logits processor is a function `process(logits, tokens, step) -> logits`, which a search calls
before it chooses tokens. Write it with `keras.ops`, because it is compiled with the search:

    logits:  `(N, V)` float32, of the model and of the processors before. -inf forbids a token.
             Another change is part of the score: logits are normalised before the processors.
    tokens:  `(N, L)` int32, of which the first `step` are chosen, and the rest is undefined.
    step:    a scalar int32 tensor that counts from 0.

Sizes: B samples, K beams, N = B K hypotheses, V tokens in the vocabulary, Tk memory steps.
"""

from keras_attention.search._search_result import SearchResult
from keras_attention.search.allowed_sequences import AllowedSequences
from keras_attention.search.average_steps import average_steps
from keras_attention.search.beam import beam_search
from keras_attention.search.bidirectional import bidirectional_search
from keras_attention.search.free_run import FreeRun, free_run
from keras_attention.search.greedy import greedy_search
from keras_attention.search.replace_unknown import replace_unknown
from keras_attention.search.reverse_tokens import reverse_tokens
from keras_attention.search.sample import sample_search

__all__ = [
    "AllowedSequences",
    "FreeRun",
    "SearchResult",
    "average_steps",
    "beam_search",
    "bidirectional_search",
    "free_run",
    "greedy_search",
    "replace_unknown",
    "reverse_tokens",
    "sample_search",
]
