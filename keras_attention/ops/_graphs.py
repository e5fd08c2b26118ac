"""Tells what TensorFlow is building at this moment: a graph, and compiled code or not."""

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

import keras

from keras_attention._typing import Tensor

# The answer that `treated_as_compiled` gives; None: look at the graph.
_answer: contextvars.ContextVar[bool | None] = contextvars.ContextVar(
    "keras_attention_compiled", default=None
)


def in_graph() -> bool:
    """Whether TensorFlow is building a graph."""
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return not tf.executing_eagerly()


def is_loop(graph: Any) -> bool:
    """Whether this graph of TensorFlow is the body of a loop."""
    return type(graph).__name__ == "WhileBodyFuncGraph"


def value_of(variable: keras.Variable) -> Tensor:
    """Reads a variable once. TensorFlow would read it wherever it is used."""
    value = variable.value
    if keras.backend.backend() != "tensorflow":
        return value
    import tensorflow as tf

    return tf.convert_to_tensor(value)


def in_compiled_code() -> bool:
    """Whether the code that is being traced will be compiled as a whole."""
    if keras.backend.backend() == "jax":
        return True
    if _answer.get() is not None:
        return bool(_answer.get())
    return in_graph() and _in_compiled_graph()


def is_symbolic(x: Any) -> bool:
    """Whether the values of a tensor are unknown, because a function is being traced."""
    if isinstance(x, keras.KerasTensor):
        return True
    if keras.backend.backend() == "jax":
        import jax

        return isinstance(x, jax.core.Tracer)
    # On PyTorch, Keras traces with tensors of the device "meta".
    return getattr(x, "is_meta", False) or (hasattr(x, "graph") and not hasattr(x, "numpy"))


@contextlib.contextmanager
def treated_as_compiled(answer: bool) -> Iterator[None]:
    """Fixes the answer of `in_compiled_code` in a gradient, where TensorFlow cannot tell."""
    token = _answer.set(answer)
    try:
        yield
    finally:
        _answer.reset(token)


def _in_compiled_graph():
    import tensorflow as tf

    # TensorFlow marks conditionals for lowering, except in functions that it compiles.
    result = tf.cond(tf.constant(True), lambda: tf.constant(0), lambda: tf.constant(1))
    branch = result.op.inputs[0].op if result.op.type == "Identity" else result.op
    return "_lower_using_switch_merge" not in branch.node_def.attr
