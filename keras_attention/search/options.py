"""The options of the searches: checks, and which of them a compiled search takes as tensors."""

import contextlib
import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from keras_attention._spec import check_int, check_number, check_token, is_tensor, raise_value_error
from keras_attention._typing import Size, Tensor
from keras_attention.backend import is_symbolic, ops

__all__ = ["LogitsProcessor", "SearchOptions", "check_count", "check_option", "split_options"]

# process(logits, tokens, step) -> logits; see `keras_attention.search`.
LogitsProcessor: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]

# Larger values are mistakes. The buffers would not fit into memory, every step ranks the square of
# the width, and a larger penalty overflows for the longest sequence.
MAX_LENGTH, MAX_HYPOTHESES = 2**20, 2**12
# The ranges of numeric options.
RANGES = {
    "length_penalty": {"least": 0, "most": 5},
    "coverage_penalty": {"least": 0, "most": 10**6},
    "temperature": {"above": 0},
    "top_p": {"above": 0, "most": 1},
}


@dataclasses.dataclass
class SearchOptions:
    """The arguments that all searches share, checked; see `beam_search`."""

    start_token: int
    end_token: int
    max_length: int
    min_length: Size = 0
    no_repeat_ngram_size: int = 0
    prefix: Tensor | None = None
    limit: Size | None = None
    logits_processors: Sequence[LogitsProcessor] = ()

    def __post_init__(self) -> None:
        check_int("search", "max_length", self.max_length, 1, MAX_LENGTH)
        check_token("search", "start_token", self.start_token)
        check_token("search", "end_token", self.end_token)
        most, size, off = self.max_length, self.no_repeat_ngram_size, "0 turns it off."
        self.min_length = check_count("search", "min_length", self.min_length, 0, most, off)
        check_int("search", "no_repeat_ngram_size", size, 0, MAX_LENGTH, off)
        if self.limit is not None:
            self.limit = check_count("search", "limit", self.limit, 1, most)
        if self.prefix is not None:
            self.prefix = self._as_tensor(self.prefix)
        several = isinstance(self.logits_processors, (list, tuple))
        if not several or not all(map(callable, self.logits_processors)):
            expected = "`logits_processors` must be a list of functions (logits, tokens, step)"
            raise_value_error("search", expected, self.logits_processors)
        length = self.limit if isinstance(self.limit, int) else self.max_length
        for process in self.logits_processors:
            longest = getattr(process, "longest", 0)
            if longest > length:
                expected = f"`max_length` must be at least {longest}, the longest allowed sequence"
                raise_value_error("search", expected, length)

    def _as_tensor(self, prefix):
        with contextlib.suppress(TypeError, ValueError):
            prefix = ops.convert_to_tensor(prefix)
        if not is_tensor(prefix, "int", None, None):
            expected = "`prefix` must be integers (batch, steps), with -1 at free positions"
            raise_value_error("search", expected, prefix)
        if isinstance(prefix.shape[1], int) and prefix.shape[1] > self.max_length:
            expected = f"`prefix` must have at most max_length={self.max_length} steps"
            raise_value_error("search", expected, prefix)
        return ops.cast(prefix, "int32")


def check_option(where: str, name: str, value: float | Tensor) -> float | Tensor:
    """Check one of the `RANGES`. Return a float, or a float32 tensor while tracing."""
    return _check_scalar(value, "float", lambda x: check_number(where, name, x, **RANGES[name]))


def check_count(where: str, name: str, value: Size, least: int, most: int, hint: str = "") -> Size:
    """Check an integer. Return an int, or an int32 tensor while tracing."""
    return _check_scalar(value, "int", lambda x: check_int(where, name, x, least, most, hint))


def _check_scalar(value, kind, check):
    if is_tensor(value, kind):
        if is_symbolic(value):
            return ops.cast(value, f"{kind}32")
        value = np.asarray(ops.convert_to_numpy(value)).item()
    return check(value)


def split_options(
    search: Callable, options: Mapping[str, object]
) -> tuple[dict[str, object], dict[str, Tensor]]:
    """Split the options of a search into those to compile it for, and those to pass as tensors.

    A zero, and a `top_p` of 1, are compiled in, because the search then has fewer operations.
    """
    parameters = inspect.signature(search).parameters
    fixed = {x: parameters[x].default for x in RANGES if x in parameters} | {**options}
    tensors = {}
    for name in {*RANGES, "min_length"}.intersection(fixed):
        value, integer = fixed[name], name == "min_length"
        if value is not None:
            value = value if integer else check_option("search", name, value)
            if value != (name == "top_p"):
                tensors[name] = np.asarray(value, "int32" if integer else "float32")
    return {name: x for name, x in fixed.items() if name not in tensors}, tensors
