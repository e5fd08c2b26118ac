"""Every layer lowers for CUDA, forward and backward, without a GPU.

`benchmarks/gpu_programs.py --check` compiles layers, decoders and searches at sizes of real use.
"""

import importlib.util
import re
import sys

import jax
import pytest
from jax import export
from keras import ops

from keras_attention.backend import leaves
from tests import python
from tests.conformance.layers import every_case


def lowered(function, *arguments):
    """The program that JAX would run on a CUDA device."""
    return export.export(function, platforms=["cuda"])(*arguments)


def outside_calls(program):
    """The functions outside of XLA that a program calls."""
    calls = set(re.findall(r'custom_call @"?([\w.$]+)', program.mlir_module()))
    return sorted(calls - {"mhlo.topk"})  # how JAX 0.6 writes XLA's own operation


@every_case
def test_every_case(case):
    layer, inputs = case.built(), case.tensors(3)
    both = layer.trainable_variables, layer.non_trainable_variables
    weights, others = ([x.value for x in xs] for xs in both)
    floats = [x for x in inputs if x.dtype == "float32"]

    def loss(weights, floats):
        rest = iter(floats)
        given = [next(rest) if x.dtype == "float32" else x for x in inputs]
        given = case.named(given).values()
        outputs, _ = layer.stateless_call(weights, others, *given, training=True)
        return sum(ops.sum(ops.sin(x)) for x in leaves(outputs))

    gradient = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))
    program = lowered(gradient, weights, floats)
    assert program.platforms == ("cuda",)
    assert outside_calls(program) == []  # no callback into Python, no library of a CPU


def test_what_is_outside_of_xla_is_found():
    shape = jax.ShapeDtypeStruct((3, 3), "float32")
    assert outside_calls(lowered(jax.jit(jax.numpy.linalg.eigh), shape))
    called = jax.jit(lambda x: jax.pure_callback(lambda x: x, shape, x))
    # JAX refuses one in any exported program, and one for a device that this machine lacks sooner.
    with pytest.raises((NotImplementedError, ValueError), match=r"callback|lowering platform cuda"):
        lowered(called, shape)


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("jax_cuda12_plugin") is None,
    reason="the CUDA plugin of JAX is not installed: benchmarks/gpu_programs.py says how",
)
def test_limits():
    """The programs that XLA compiles for a GPU stay within the limits of `gpu_programs.py`."""
    other = importlib.util.find_spec("tensorflow") and ["--tensorflow", sys.executable]
    python("benchmarks/gpu_programs.py", "--check", *(other or ()))
