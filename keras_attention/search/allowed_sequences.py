"""A closed set of outputs."""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from keras_attention._spec import check_token, raise_value_error
from keras_attention._typing import Tensor
from keras_attention.backend import ops

__all__ = ["AllowedSequences"]

MAX_KEY = 2**31 - 1


class AllowedSequences:
    """A logits processor that allows a closed set of outputs, such as the names of a list.

    The sequences are a trie. At every step only its branches are allowed, and the end token after a
    whole sequence. Every search then returns sequences of the set alone. `max_length` must be at
    least the length of the longest one with its end token, `longest`. Fewer than K sequences leave
    surplus beams impossible, see `beam_search`.

    Args:
        sequences: lists of ids, without the end token. For texts:
            `[tokenizer.encode(text) for text in texts]`.
        end_token: the token that ends a sequence.

    Raises:
        ValueError: there is no sequence; a sequence holds the end token, or something else than
            ids; the trie has more branches than int32 can number.

    Example:
        Greedy search would take token 3 alone; allowed are 3, 4 and 2, 2.

        >>> import numpy as np
        >>> from keras import ops
        >>> from keras_attention.search import AllowedSequences, beam_search
        >>> def step(tokens, state, memory):
        ...     return memory, state, None
        >>> memory = np.array([[0.0, 1.0, 2.0, 3.0, 1.5]])
        >>> names = AllowedSequences([[3, 4], [2, 2]], end_token=1)
        >>> result = beam_search(
        ...     step, None, memory, start_token=0, end_token=1, max_length=4, beam_width=3,
        ...     logits_processors=[names],
        ... )
        >>> ops.convert_to_numpy(result.tokens)[0].tolist()
        [[3, 4, 1, 1], [2, 2, 1, 1], [1, 1, 1, 1]]
    """

    def __init__(self, sequences: Iterable[Sequence[int]], end_token: int) -> None:
        where = "AllowedSequences"
        self.end_token: int = check_token(where, "end_token", end_token)
        branches: dict[tuple[int, int], int] = {}
        self.longest: int = 0
        for sequence in sequences:
            node = 0
            for token in [*sequence, self.end_token]:
                check_token(where, "sequences", token)
                if node == -1:
                    expected = "a sequence must not hold the end token"
                    raise_value_error(where, expected, [*sequence], "Leave it out.")
                end = token == self.end_token
                node = branches.setdefault((node, token), -1 if end else len(branches) + 1)
            self.longest = max(self.longest, len(sequence) + 1)
        if not branches:
            raise_value_error(where, "`sequences` must hold at least one sequence", sequences)
        self._vocabulary = 1 + max(token for _, token in branches)
        ordered = sorted(branches)
        most = (ordered[-1][0] + 1) * self._vocabulary
        if most > MAX_KEY:
            expected = f"the trie may have at most {MAX_KEY} nodes times tokens"
            raise_value_error(where, expected, most, "Allow fewer or shorter sequences.")
        # The branches of a node follow each other, in the order of their tokens.
        self._keys = np.array([n * self._vocabulary + v for n, v in ordered], "int32")
        self._nodes = np.array([branches[x] for x in ordered], "int32")

    def __call__(self, logits: Tensor, tokens: Tensor, step: Tensor) -> Tensor:
        """Forbid every token that leaves the set; see `keras_attention.search`."""

        def walk(t, node):
            return self._next(node, ops.take(tokens, t, axis=1))

        node = ops.fori_loop(0, step, walk, ops.zeros_like(tokens[:, 0]))
        vocabulary = ops.arange(logits.shape[-1], dtype="int32")
        allowed = self._next(ops.expand_dims(node, -1), ops.expand_dims(vocabulary, 0))
        return ops.where(allowed != -2, logits, -math.inf)

    def _next(self, node, token):
        """Return the nodes after tokens: -1 after the end, -2 where there is no branch."""
        known = ops.logical_and(node >= 0, token < self._vocabulary)
        key = ops.where(known, node * self._vocabulary + token, -1)
        index = ops.searchsorted(self._keys, ops.reshape(key, (-1,)))
        index = ops.reshape(ops.minimum(index, len(self._keys) - 1), ops.shape(key))
        return ops.where(ops.take(self._keys, index) == key, ops.take(self._nodes, index), -2)
