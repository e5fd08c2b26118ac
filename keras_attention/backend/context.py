"""Execution context and the setting of `compiling`, the only hidden state."""

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Literal, NamedTuple

Device = Literal["cpu", "gpu"]


class Compiling(NamedTuple):
    """The compilation settings of a piece of code and of its gradients.

    Attributes:
        choice: the choice of the user; None: compile where the sizes are known.
        by_caller: True for the gradient of code that XLA compiles with its surroundings. If a tape
            outside that code asks for the gradient, TensorFlow cannot tell.
    """

    choice: bool | None = None
    by_caller: bool = False

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        """Restore these settings. They do not override an enclosing `compiling(False)`."""
        choice, by_caller = current_compiling.get()
        choice = choice if choice is False or self.choice is None else self.choice
        token = current_compiling.set(Compiling(choice, by_caller or self.by_caller))
        try:
            yield
        finally:
            current_compiling.reset(token)


# The current settings.
current_compiling: contextvars.ContextVar[Compiling] = contextvars.ContextVar(
    "keras_attention_compiling",
    default=Compiling(),  # noqa: B039
)


@contextlib.contextmanager
def compiling(choice: bool | None) -> Iterator[None]:
    """Choose, within this context, whether XLA compiles the heavy functions separately.

    This matters on TensorFlow only, and only outside functions that TensorFlow compiles as a whole;
    JAX compiles everything. By default, XLA compiles the heavy functions in eager code, in
    training, and in graphs with known shapes. A graph with unknown shapes outside training is
    probably exported, so it gets ordinary operations, which every server and converter understands.

    The choice holds for the current thread, and for the gradients of whatever it computes.

    Args:
        choice: True compiles for unknown shapes too; False never compiles; None changes nothing.
            An inner context cannot override an outer False.

    Raises:
        ValueError: `choice` is not True, False or None.

    Example:
        >>> import numpy
        >>> from keras_attention import BahdanauAttention
        >>> from keras_attention.ops import compiling
        >>> with compiling(False):
        ...     context = BahdanauAttention(13)(numpy.ones((2, 3, 5)), numpy.ones((2, 7, 11)))
        >>> tuple(context.shape)
        (2, 3, 11)
    """
    if not isinstance(choice, bool | None):
        raise ValueError(f"`choice` must be True, False or None; received {choice!r:.80}.")
    with Compiling(choice).restored():
        yield


class ExecutionContext(NamedTuple):
    """Where a function of tensors will run; `execution_context` of the backend makes it.

    Attributes:
        backend: the key of measured sizes, "tensorflow", "jax" or "torch".
        device: "cpu" or "gpu". TensorFlow and JAX: the default device.
        graph: True if TensorFlow is building a graph.
        static: True if all sizes are static, so one compiled program serves every call.
        compiled_by: "caller" if TensorFlow compiles the code around the function as a whole;
            "itself" if XLA compiles the function alone, by `run_compiled`; None if not at all.
    """

    backend: Literal["tensorflow", "jax", "torch"]
    device: Device
    graph: bool = False
    static: bool = True
    compiled_by: Literal["caller", "itself"] | None = None

    @property
    def compiled(self) -> bool:
        """True if the code around the function is compiled; JAX compiles everything."""
        return self.backend == "jax" or self.compiled_by == "caller"

    @property
    def traces_loops(self) -> bool:
        """True if `scan` traces its body once, rather than calling it for every step."""
        return self.backend == "jax" or self.graph

    @property
    def nests_jit(self) -> bool:
        """True if XLA compiles the function as a part of a graph that is not compiled."""
        return self.graph and self.static and self.compiled_by == "itself"

    @property
    def compiles_loops(self) -> bool:
        """True if XLA compiles a loop by itself in a graph, for the sizes that arrive there."""
        return self.graph and self.compiled_by == "itself"

    @property
    def vectorizes(self) -> bool:
        """True if the steps of a loop are differentiated side by side, where they can be.

        On a CPU, vectorised steps are slower.
        """
        return self.device == "gpu" and (self.compiled or self.compiles_loops)
