"""What a query attends to."""

from typing import Any, NamedTuple


class Memory(NamedTuple):
    """What a query attends to, made ready once by `ScoringMixin.prepare` for any number of steps.

    key: `(B, Tk, Dp)`, as `project_key` returned it. value: `(B, Tk, Dv)`.
    mask: `(B, Tk)` boolean, or None where every step is valid.
    """

    key: Any
    value: Any
    mask: Any = None
