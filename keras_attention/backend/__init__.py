"""Every difference between backends, and nothing else.

`tensorflow.py`, `jax.py` and `torch.py` have the same names; the one on which Keras runs is chosen
here, once. The others are not imported. `structures.py` and `context.py` serve all of them.
"""

import importlib.util

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

from keras_attention.backend.context import Compiling, ExecutionContext, compiling
from keras_attention.backend.structures import (
    Body,
    leaves,
    swap_steps,
    tree_map,
    unflatten_as,
    where_valid,
)

if keras.backend.backend() == "jax":
    from keras_attention.backend import jax as chosen
elif keras.backend.backend() == "torch":
    from keras_attention.backend import torch as chosen
else:
    from keras_attention.backend import tensorflow as chosen

__all__ = [
    "DIFFERENTIATES_LOOPS",
    "REVERSES_UNROLLED_MASK",
    "SEED_DTYPE",
    "SORTS_FAST",
    "UNROLLS_WITH_MASK",
    "Body",
    "Compiling",
    "ExecutionContext",
    "batched_matmul",
    "capture_compiling",
    "compile_function",
    "compiles_each_shape",
    "compiling",
    "cond",
    "custom_vjp",
    "differentiate_as",
    "eagerly",
    "execution_context",
    "gather_rows",
    "in_graph",
    "in_loop",
    "invents_sizes",
    "is_symbolic",
    "jit",
    "kernel_gradient",
    "leaves",
    "linearize",
    "may_compile",
    "no_grad",
    "on_device",
    "ops",
    "optimization_barrier",
    "project",
    "repeat",
    "run_after",
    "run_compiled",
    "run_loop",
    "run_traced",
    "scan",
    "scatter_add",
    "swap_steps",
    "traces_loops",
    "tree_map",
    "two_sums",
    "unflatten_as",
    "value_of",
    "vjp",
    "where_valid",
]

DIFFERENTIATES_LOOPS = chosen.DIFFERENTIATES_LOOPS
REVERSES_UNROLLED_MASK = chosen.REVERSES_UNROLLED_MASK
SEED_DTYPE = chosen.SEED_DTYPE
SORTS_FAST = chosen.SORTS_FAST
UNROLLS_WITH_MASK = chosen.UNROLLS_WITH_MASK
batched_matmul = chosen.batched_matmul
capture_compiling = chosen.capture_compiling
compile_function = chosen.compile_function
compiles_each_shape = chosen.compiles_each_shape
cond = chosen.cond
custom_vjp = chosen.custom_vjp
differentiate_as = chosen.differentiate_as
eagerly = chosen.eagerly
execution_context = chosen.execution_context
gather_rows = chosen.gather_rows
in_graph = chosen.in_graph
in_loop = chosen.in_loop
invents_sizes = chosen.invents_sizes
is_symbolic = chosen.is_symbolic
jit = chosen.jit
kernel_gradient = chosen.kernel_gradient
linearize = chosen.linearize
may_compile = chosen.may_compile
no_grad = chosen.no_grad
on_device = chosen.on_device
ops = chosen.ops
optimization_barrier = chosen.optimization_barrier
project = chosen.project
repeat = chosen.repeat
run_after = chosen.run_after
run_compiled = chosen.run_compiled
run_loop = chosen.run_loop
run_traced = chosen.run_traced
scan = chosen.scan
scatter_add = chosen.scatter_add
traces_loops = chosen.traces_loops
two_sums = chosen.two_sums
value_of = chosen.value_of
vjp = chosen.vjp
