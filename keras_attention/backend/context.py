"""Where code will run, and every difference between backends that follows from it.

A function of `ops` with several forms makes a `Place` when it is entered, and hands it to its
forms. The only hidden state is what the user chose with `compiling`.
"""

import contextlib
import contextvars
import functools
import importlib.util
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Literal, NamedTuple
from warnings import warn

try:
    import keras
except ModuleNotFoundError as error:
    backends = "tensorflow", "jax", "torch"
    if error.name not in backends:
        raise
    installed = [name for name in backends if importlib.util.find_spec(name) is not None]
    settings = " or ".join(f"KERAS_BACKEND={name}" for name in installed)
    remedy = (
        f"Set the environment variable {settings}"
        if installed
        else f"Install it: pip install {error.name}. Or install another of {', '.join(backends)} "
        "and set the environment variable KERAS_BACKEND to its name"
    )
    raise ModuleNotFoundError(
        f"Keras is set to run on {error.name}, which is not installed. {remedy}.", name=error.name
    ) from None

from keras_attention._typing import Tensor

__all__ = [
    "MOST_PROGRAMS",
    "Compiling",
    "Place",
    "compiling",
    "eagerly",
    "in_graph",
    "in_loop",
    "is_loop",
    "is_symbolic",
    "on_device",
    "value_of",
]

# TensorFlow stores a compiled program, of 15 to 45 MiB, until the process ends, even when nothing
# can call it any more.
MOST_PROGRAMS = 16
_programs = set()


class Compiling(NamedTuple):
    """The compilation settings of a piece of code and of its gradients.

    Attributes:
        choice: the choice of the user; None: compile where the sizes are known.
        inside: whether this is the gradient of code that XLA compiles with its surroundings. If
            a tape outside that code asks for the gradient, TensorFlow cannot tell.
    """

    choice: bool | None = None
    inside: bool = False

    @classmethod
    def here(cls) -> "Compiling":
        """What holds now, for a gradient that runs later to restore."""
        choice, inside = _compiling.get()
        return cls(choice, inside or (in_graph() and _in_compiled_graph()))

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        """Makes this hold again. Not even this overrules `compiling(False)` around it."""
        choice, inside = _compiling.get()
        choice = choice if choice is False or self.choice is None else self.choice
        token = _compiling.set(Compiling(choice, inside or self.inside))
        try:
            yield
        finally:
            _compiling.reset(token)


_compiling = contextvars.ContextVar("keras_attention_compiling", default=Compiling())  # noqa: B039


@contextlib.contextmanager
def compiling(choice: bool | None) -> Iterator[None]:
    """Chooses, within this context, whether XLA compiles the heavy functions separately.

    This matters on TensorFlow only, and only outside functions that TensorFlow compiles as a whole;
    JAX compiles everything. By default, XLA compiles the heavy functions in eager code, in
    training, and in graphs with known shapes. A graph with unknown shapes outside training is
    probably exported, so it gets ordinary operations, which every server and converter understands.

    The choice holds for the current thread, and for the gradients of whatever it computes.

    Args:
        choice: True compiles for unknown shapes too; False never compiles; None changes nothing.
            An inner context cannot overrule a False around it.

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


class Place(NamedTuple):
    """Where a function of tensors will run.

    Attributes:
        backend: "tensorflow", "jax" or "torch".
        device: "cpu" or "gpu". Of TensorFlow and JAX, what they use by default.
        graph: whether TensorFlow is building a graph.
        fixed: whether a program that is compiled now meets no other sizes later.
        xla: where XLA compiles the function. "inside": with the code around it, which TensorFlow
            compiles as a whole. "alone": on its own; call it through `run_compiled`. "nowhere".
    """

    backend: Literal["tensorflow", "jax", "torch"]
    device: Literal["cpu", "gpu"]
    graph: bool
    fixed: bool
    xla: Literal["inside", "alone", "nowhere"]

    @classmethod
    def of(cls, *tensors: Tensor) -> "Place":
        """The place of a function that is entered with these tensors."""
        backend = keras.backend.backend()
        if backend == "jax":
            return cls(backend, _jax_device(), False, True, "alone")
        if backend == "torch":
            on_gpu = any(getattr(x, "is_cuda", False) for x in tensors)
            return cls(backend, "gpu" if on_gpu else "cpu", False, True, "nowhere")
        graph, (choice, inside) = in_graph(), _compiling.get()
        inside = inside or (graph and _in_compiled_graph())
        known = not graph or all(size is not None for x in tensors for size in x.shape)
        alone = choice is not False and (known or choice) and _has_xla()
        xla = "inside" if inside else "alone" if alone else "nowhere"
        return cls(backend, _tensorflow_device(), graph, graph and known, xla)

    @property
    def compiled(self) -> bool:
        """Whether the code around the function is compiled; JAX compiles everything."""
        return self.backend == "jax" or self.xla == "inside"

    @property
    def compiles_parts(self) -> bool:
        """Whether XLA compiles the function with its surroundings, or as a part of a graph."""
        return self.compiled or (self.graph and self.fixed and self.xla == "alone")

    @property
    def compiles_loops(self) -> bool:
        """Whether XLA compiles a loop on its own in a graph."""
        return self.graph and self.xla == "alone"

    @property
    def vectorizes(self) -> bool:
        """Whether the steps of a loop are differentiated side by side, where they can be.

        TensorFlow cannot vectorise functions that have gradients of their own. A CPU takes longer.
        """
        return self.backend == "jax" and self.device == "gpu"

    def may_compile(self, *program: Hashable) -> bool:
        """Whether a program may be compiled: eager TensorFlow gets at most `MOST_PROGRAMS`.

        Args:
            program: values that distinguish it, such as a function, sizes and a dtype.
        """
        if self.backend != "tensorflow" or self.graph or program in _programs:
            return True
        if len(_programs) < MOST_PROGRAMS:
            _programs.add(program)
            return True
        _warn_of_many(MOST_PROGRAMS)
        return False


def on_device(
    place: Place, cpu: Callable[..., Any], gpu: Callable[..., Any], *tensors: Tensor
) -> Any:
    """Calls the form for the device, a function of the tensors.

    JAX chooses when it lowers a program, so an exported program serves both devices.
    """
    if place.backend == "jax" and any(map(is_symbolic, tensors)):
        import jax

        return jax.lax.platform_dependent(*tensors, cpu=cpu, default=gpu)
    return (gpu if place.device == "gpu" else cpu)(*tensors)


@functools.cache
def _warn_of_many(count):
    warn(
        f"Eager code has called attention with more than {count} different sizes. TensorFlow keeps "
        "every program that XLA compiles, so further sizes run without XLA, which is slower and "
        "depends on which sizes came first. Pad to few sizes, or call the layer in a "
        "`tf.function`. To compile no size at all, use `keras_attention.ops.compiling(False)`.",
        UserWarning,
        stacklevel=2,
    )


@contextlib.contextmanager
def eagerly() -> Iterator[None]:
    """Computes within this context at once, also while a function is being traced."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        scope = tf.init_scope()
    elif backend == "jax":
        import jax

        scope = jax.ensure_compile_time_eval()
    else:
        scope = keras.device("cpu")  # Keras traces on the device "meta"
    with scope:
        yield


def in_graph() -> bool:
    """Whether TensorFlow is building a graph."""
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return not tf.executing_eagerly()


def in_loop() -> bool:
    """Whether this code belongs to a loop of a TensorFlow graph."""
    if not in_graph():
        return False
    import tensorflow as tf

    graph = tf.compat.v1.get_default_graph()
    while graph is not None and not is_loop(graph):
        graph = getattr(graph, "outer_graph", None)
    return graph is not None


def is_loop(graph: Any) -> bool:
    """Whether this graph of TensorFlow is the body of a loop."""
    return type(graph).__name__ == "WhileBodyFuncGraph"


def is_symbolic(x: Any) -> bool:
    """Whether the values of a tensor are unknown, because a function is being traced."""
    if isinstance(x, keras.KerasTensor):
        return True
    if keras.backend.backend() == "jax":
        import jax

        return isinstance(x, jax.core.Tracer)
    # On PyTorch, Keras traces with tensors of the device "meta".
    return getattr(x, "is_meta", False) or (hasattr(x, "graph") and not hasattr(x, "numpy"))


def value_of(variable: keras.Variable) -> Tensor:
    """Reads a variable once. TensorFlow would read it wherever it is used."""
    value = variable.value
    if keras.backend.backend() != "tensorflow":
        return value
    import tensorflow as tf

    return tf.convert_to_tensor(value)


def _in_compiled_graph():
    """Whether TensorFlow compiles the graph that is being built, or one around it, as a whole."""
    import tensorflow as tf

    # TensorFlow documents no way to ask. It exports this function for libraries such as Keras, and
    # its own `tf.cond` decides by the same context. Asking adds nothing to the graph.
    return tf.__internal__.get_enclosing_xla_context() is not None


@functools.cache
def _has_xla():
    import tensorflow as tf

    return tf.test.is_built_with_xla()


@functools.cache
def _tensorflow_device():
    import tensorflow as tf

    return "gpu" if tf.config.get_visible_devices("GPU") else "cpu"


def _jax_device():
    import jax

    return "cpu" if jax.default_backend() == "cpu" else "gpu"
