"""The searches of `generate`, and checks of their options."""

import inspect
from typing import Any

from keras_attention.search import beam_search, greedy_search, sample_search

SEARCHES = {"beam": beam_search, "greedy": greedy_search, "sample": sample_search}
# `generate` sets these itself.
OWN = (
    *("step", "state", "memory", "start_token", "end_token", "max_length", "prefix"),
    "memory_mask",
)


def check_options(model: str, search: str, options: dict[str, Any]) -> None:
    known = [x for x in inspect.signature(SEARCHES[search]).parameters if x not in OWN]
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise ValueError(
            f"{model}: search={search!r} has no option {', '.join(unknown)}. Its options are "
            f"{', '.join(known) or 'none'}."
        )
