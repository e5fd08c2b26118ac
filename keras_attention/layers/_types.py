"""The tuples that the parts of an attention exchange."""

from typing import Any, NamedTuple


class Memory(NamedTuple):
    """What queries attend to. `ScoringMixin.prepare` makes it once for all queries.

    Attributes:
        key: `(B, Tk, Dp)`, the result of `project_key`.
        value: `(B, Tk, Dv)`.
        mask: `(B, Tk)` boolean, or None where every step is valid.
    """

    key: Any
    value: Any
    mask: Any = None


class Window(NamedTuple):
    """The part of the memory that each query reads: positions floor(p) - D to floor(p) + D.

    Only the Gaussian passes gradients to p.

    Attributes:
        center: p, `(B, Tq)`, floating point, in positions of the memory.
        half_width: D, a positive integer.
        gaussian: whether the weights are multiplied by exp(-(j - p)^2 / (2 (D/2)^2)).
    """

    center: Any
    half_width: int
    gaussian: bool = False


class Attended(NamedTuple):
    """What `ScoringMixin.attend` returns, in the order of a decoder's `step`.

    Attributes:
        output: `(B, Tq, Do)`, or `(B, Do)` for one query.
        state: the state of the attention, or None.
        weights: `(B, Tq, Tk)`, or `(B, Tk)` for one query.
    """

    output: Any
    state: Any
    weights: Any


class DecoderState(NamedTuple):
    """What an `AttentionRNN` carries from step to step.

    Attributes:
        cells: the states of the cell, a list, nested for stacked cells of several states.
        fed: the output of the attention at the step before, `(B, A)`, with input feeding.
        attention: the state of an attention that has one.
        position: the number of the next step, `(B,)` int32.
    """

    cells: Any
    fed: Any
    attention: Any
    position: Any
