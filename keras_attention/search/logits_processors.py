"""Which outputs a search may return: rules that forbid tokens, for all searches."""

import contextlib
import dataclasses
import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from keras import tree

from keras_attention._spec import (
    Description,
    check_int,
    check_number,
    check_token,
    is_tensor,
    raise_value_error,
)
from keras_attention._typing import Tensor
from keras_attention.backend import is_symbolic, ops, scatter_add
from keras_attention.search._step import LARGEST_FACTOR, LARGEST_PENALTY, LONGEST

__all__ = ["Limits", "check_count", "check_option", "check_vocabulary", "fixed_and_numbers"]

# The options that are numbers, and their ranges.
NUMBERS = {
    "length_penalty": {"least": 0, "most": LARGEST_PENALTY},
    "coverage_penalty": {"least": 0, "most": LARGEST_FACTOR},
    "temperature": {"above": 0},
    "top_p": {"above": 0, "most": 1},
}

# rule(logits `(N, V)`, tokens `(N, L)`, t) -> logits, with -inf for the tokens that may not follow
# the first t tokens.
Rule = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclasses.dataclass
class Limits:
    """The arguments that all searches share, checked; see `beam_search`.

    Attributes:
        largest_id: of the prefix, -1 where its values are not known.
    """

    start_token: int
    end_token: int
    max_length: int
    min_length: int = 0
    no_repeat_ngram_size: int = 0
    prefix: Any = None
    limit: Any = None
    largest_id: int = -1

    def __post_init__(self) -> None:
        check_int("search", "max_length", self.max_length, 1, LONGEST)
        check_token("search", "start_token", self.start_token)
        check_token("search", "end_token", self.end_token)
        most, size, off = self.max_length, self.no_repeat_ngram_size, "0 turns it off."
        self.min_length = check_count("search", "min_length", self.min_length, 0, most, off)
        check_int("search", "no_repeat_ngram_size", size, 0, LONGEST, off)
        if self.limit is not None:
            self.limit = check_count("search", "limit", self.limit, 1, most)
        if self.prefix is not None:
            prefix, self.prefix = self.prefix, self._as_tensor(self.prefix)
            self.largest_id = _largest_id(prefix)

    def _as_tensor(self, prefix):
        with contextlib.suppress(TypeError, ValueError):
            prefix = ops.convert_to_tensor(prefix)
        if not is_tensor(prefix, "int", None, None):
            expected = "`prefix` must be integers (batch, steps), with -1 at free positions"
            raise_value_error("search", expected, prefix)
        if isinstance(prefix.shape[1], int) and prefix.shape[1] > self.max_length:
            expected = f"`prefix` must have at most max_length={self.max_length} steps"
            raise_value_error(
                "search", expected, prefix, "Increase max_length, which counts the prefix too."
            )
        return ops.cast(prefix, "int32")

    def rules(self, prefix: Tensor | None) -> list[Rule]:
        """The rules of these limits, with the prefix repeated for the beams, `(N, P)`."""
        rules = []
        if not isinstance(self.min_length, int) or self.min_length > 1:
            rules.append(_end_after(self.min_length, self.end_token))
        if 0 < self.no_repeat_ngram_size < self.max_length:
            rules.append(_no_repeat(self.no_repeat_ngram_size))
        return rules if prefix is None else [_begins_with(prefix, self.largest_id, rules)]


def check_option(where: str, name: str, value: Any) -> Any:
    """Checks one of the `NUMBERS`; returns a float, or a float32 tensor while tracing."""
    return _number_or_tensor(
        value, "float", lambda x: check_number(where, name, x, **NUMBERS[name])
    )


def check_count(where: str, name: str, value: Any, least: int, most: int, hint: str = "") -> Any:
    """Checks an integer; returns it, or an int32 tensor while tracing."""
    return _number_or_tensor(value, "int", lambda x: check_int(where, name, x, least, most, hint))


def _number_or_tensor(value, kind, check):
    if is_tensor(value, kind):
        if is_symbolic(value):
            return ops.cast(value, f"{kind}32")
        value = ops.convert_to_numpy(value).item()
    return check(value)


def fixed_and_numbers(search: Callable, options: dict[str, Any]) -> tuple[dict, dict]:
    """Splits the options of a search into those to compile it for, and those to call it with.

    A zero, and a `top_p` of 1, are compiled: they make a simpler program.
    """
    parameters = inspect.signature(search).parameters
    fixed = {name: parameters[name].default for name in NUMBERS if name in parameters} | options
    numbers = {}
    for name in [x for x in fixed if x in (*NUMBERS, "min_length") and fixed[x] is not None]:
        integer = name == "min_length"
        value = fixed[name] if integer else check_option("search", name, fixed[name])
        if value != (1 if name == "top_p" else 0):
            numbers[name] = np.asarray(value, "int32" if integer else "float32")
    return {name: x for name, x in fixed.items() if name not in numbers}, numbers


def _largest_id(prefix: Any) -> int:
    """The largest id of a prefix, or -1 in a graph, where the values are not known."""
    if any(map(is_symbolic, tree.flatten(prefix))):
        return -1
    ids = np.asarray(ops.convert_to_numpy(prefix), "int64")
    if np.any(ids < -1):
        expected = "`prefix` must hold ids from 0, and -1 at free positions"
        raise_value_error("search", expected, int(ids.min()))
    return int(ids.max(initial=-1))


def check_vocabulary(largest_id: int, size: int) -> None:
    """Whether the ids of a prefix lie in the vocabulary."""
    if largest_id >= size:
        expected = f"`prefix` must hold ids of the vocabulary, the {size} tokens of the logits"
        raise_value_error("search", expected, Description(f"the id {largest_id}"))


def _end_after(least: int, end_token: int) -> Rule:
    def rule(logits, tokens, t):
        end = ops.arange(logits.shape[-1], dtype="int32") == end_token
        return ops.where(end & (t + 1 < least), -math.inf, logits)

    return rule


def _begins_with(prefix: Tensor, largest_id: int, others: list[Rule]) -> Rule:
    """Allows only the token of the prefix where it has one, and what the others allow elsewhere."""
    prefix = ops.pad(prefix, ((0, 0), (0, 1)), constant_values=-1)  # free after the prefix
    last = ops.shape(prefix)[1] - 1

    def rule(logits, tokens, t):
        check_vocabulary(largest_id, logits.shape[-1])
        allowed = logits
        for other in others:
            allowed = other(allowed, tokens, t)
        wanted = ops.expand_dims(ops.take(prefix, ops.minimum(t, last), axis=1), -1)
        vocabulary = ops.arange(logits.shape[-1], dtype="int32")
        fixed = ops.where(vocabulary == wanted, logits, -math.inf)
        return ops.where(wanted < 0, allowed, fixed)

    return rule


def _no_repeat(size: int) -> Rule:
    """Forbids every token that would complete an n-gram already in the output, n = `size`."""

    def rule(logits, tokens, t):
        length = tokens.shape[1]
        place = ops.arange(length, dtype="int32")
        again = ops.expand_dims((place >= size - 1) & (place < t), 0)
        # Place i follows the same tokens as place t if tokens[i - j] = tokens[t - j] for all j < n.
        for j in range(1, size):
            last = ops.expand_dims(ops.take(tokens, ops.maximum(t - j, 0), axis=1), -1)
            again = again & (ops.pad(tokens, ((0, 0), (j, 0)))[:, :length] == last)
        again = ops.broadcast_to(again, ops.shape(tokens))
        again = ops.expand_dims(ops.cast(again, "float32"), -1)
        repeats = scatter_add(again, tokens, logits.shape[-1])
        return ops.where(ops.squeeze(repeats, -1) > 0, -math.inf, logits)

    return rule
