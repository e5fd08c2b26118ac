"""The searches of `generate`, and checks of their options."""

import inspect
import numbers
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from keras_attention._spec import Words, check_choice, check_int, refuse
from keras_attention.search import beam_search, greedy_search, sample_search

SEARCHES = {"beam": beam_search, "greedy": greedy_search, "sample": sample_search}
BEAM_WIDTH = inspect.signature(beam_search).parameters["beam_width"].default
# `generate` sets these itself.
OWN = (
    *("step", "state", "memory", "start_token", "end_token", "max_length", "prefix"),
    *("memory_mask", "steps", "states", "memories"),
)


def check_search(
    model: str,
    searches: Mapping[str, Callable],
    search: str,
    max_length: int,
    n_best: int | None,
    options: dict[str, Any],
    prefix: Any,
) -> int | None:
    """Checks the arguments of one of the searches. Returns how many beams to keep."""
    check_choice(model, "search", search, tuple(searches))
    check_int(model, "max_length", max_length)
    check_options(model, searches[search], search, options)
    if prefix is not None and "prefix" not in inspect.signature(searches[search]).parameters:
        expected = "a search in both directions takes no `prefix`"
        refuse(model, expected, prefix, "Call `generate` of `left_to_right`.")
    if n_best is None:
        samples = options.get("samples", 1)
        return samples if samples > 1 else None
    check_int(model, "n_best", n_best)
    width = options.get("beam_width", BEAM_WIDTH)
    if search != "beam" or n_best > width:
        given = Words(f"{n_best} with search={search!r} and beam_width={width}")
        expected = '`n_best` goes with search="beam" and is at most `beam_width`'
        refuse(model, expected, given)
    return n_best


def check_options(model: str, run: Callable, search: str, options: dict[str, Any]) -> None:
    known = [x for x in inspect.signature(run).parameters if x not in OWN]
    unknown = sorted(set(options) - set(known))
    if unknown:
        expected = f"the options of search={search!r} are {', '.join(known) or 'none'}"
        refuse(model, expected, Words(", ".join(unknown)))
    for name, value in options.items():
        # `search_batch` may get a tensor as its seed.
        if name != "seed" and not isinstance(value, (numbers.Real, str, type(None))):
            refuse(model, f"the option `{name}` must be a number or a name", value)


def make_seeds(model: str, seed: int | None, count: int) -> list[int]:
    """One seed for each batch."""
    if seed is None:
        seed = np.random.randint(2**31)
    check_int(model, "seed", seed, 0, 2**63 - 1)
    return np.random.default_rng(seed).integers(2**31 - 1, size=count).tolist()
