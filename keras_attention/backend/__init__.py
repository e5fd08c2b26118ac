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
    Function,
    leaves,
    swap_steps,
    tree_map,
    unflatten_as,
    where_valid,
)

if keras.backend.backend() == "jax":
    import keras_attention.backend.jax as chosen
elif keras.backend.backend() == "torch":
    import keras_attention.backend.torch as chosen
else:
    import keras_attention.backend.tensorflow as chosen

ops = chosen.ops
SEED_DTYPE = chosen.SEED_DTYPE
DIFFERENTIATES_LOOPS = chosen.DIFFERENTIATES_LOOPS
SORTS_FAST = chosen.SORTS_FAST
UNROLLS_WITH_MASK = chosen.UNROLLS_WITH_MASK
REVERSES_UNROLLED_MASK = chosen.REVERSES_UNROLLED_MASK
execution_context = chosen.execution_context
capture_compiling = chosen.capture_compiling
in_loop = chosen.in_loop
is_symbolic = chosen.is_symbolic
invents_sizes = chosen.invents_sizes
value_of = chosen.value_of
eagerly = chosen.eagerly
no_grad = chosen.no_grad
on_device = chosen.on_device
may_compile = chosen.may_compile
jit = chosen.jit
run_compiled = chosen.run_compiled
run_traced = chosen.run_traced
compile_function = chosen.compile_function
compiles_each_shape = chosen.compiles_each_shape
scan = chosen.scan
run_loop = chosen.run_loop
repeat = chosen.repeat
cond = chosen.cond
custom_vjp = chosen.custom_vjp
vjp = chosen.vjp
differentiate_as = chosen.differentiate_as
linearize = chosen.linearize
run_after = chosen.run_after
optimization_barrier = chosen.optimization_barrier
gather_rows = chosen.gather_rows
scatter_add = chosen.scatter_add
project = chosen.project
kernel_gradient = chosen.kernel_gradient
batched_matmul = chosen.batched_matmul
two_sums = chosen.two_sums
