"""The searches of `generate`, and checks of their options."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from keras_attention._spec import Words, check_choice, check_int, refuse
from keras_attention.models._checks import check
from keras_attention.search import beam_search, greedy_search, sample_search

SEARCHES = {"beam": beam_search, "greedy": greedy_search, "sample": sample_search}
BEAM_WIDTH = inspect.signature(beam_search).parameters["beam_width"].default
# `generate` sets these itself.
OWN = (
    *("step", "state", "memory", "start_token", "end_token", "max_length"),
    *("memory_mask", "steps", "states", "memories"),
)


def check_search(
    model: str,
    searches: Mapping[str, Callable],
    search: str,
    max_length: int,
    n_best: int | None,
    options: dict[str, Any],
    prefix: Any = None,
) -> int | None:
    """Checks the arguments of one of the searches. Returns how many beams to keep."""
    check(model, "one argument", not getattr(max_length, "shape", ()), max_length)
    check_int(model, "max_length", max_length)
    check_choice(model, "search", search, tuple(searches))
    allowed = [x for x in inspect.signature(searches[search]).parameters if x not in OWN]
    unknown = {*options, *["prefix"] * (prefix is not None)}.difference(allowed)
    if unknown:
        expected = f"the options of search={search!r} are {', '.join(allowed)}"
        refuse(model, expected, Words(", ".join(sorted(unknown))))
    if n_best is None:
        samples = options.get("samples", 1)
        return samples if samples > 1 else None
    check_choice(model, "search", search, ("beam",), "Otherwise leave `n_best` out.")
    most = options.get("beam_width", BEAM_WIDTH)
    return check_int(model, "n_best", n_best, 1, most, "`beam_width` is the largest `n_best`.")


def make_seeds(model: str, seed: int | None, count: int) -> list[int]:
    """One seed for each batch."""
    if seed is None:
        seed = np.random.randint(2**31)
    check_int(model, "seed", seed, 0, 2**63 - 1)
    return np.random.default_rng(seed).integers(2**31 - 1, size=count).tolist()
