"""Every layer, forward and backward, and both searches lower for CUDA, without a GPU."""

import jax
import pytest
from cuda_programs import PROGRAMS, lowered, outside_calls, program_of
from keras import ops

from keras_attention.ops.loops import leaves
from tests.conformance.layers import CASES


def assert_lowered(program):
    """The program calls nothing outside of XLA: no callback into Python, no library of a CPU."""
    assert program.platforms == ("cuda",)
    assert outside_calls(program) == []


@pytest.mark.parametrize("name", PROGRAMS)
def test_sizes_of_real_use(name):
    assert_lowered(program_of(name))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_case(case):
    layer, inputs = case.built(), case.tensors(3)
    weights, others = (
        [x.value for x in xs] for xs in (layer.trainable_variables, layer.non_trainable_variables)
    )
    floats = [x for x in inputs if x.dtype == "float32"]

    def loss(weights, floats):
        rest = iter(floats)
        given = [next(rest) if x.dtype == "float32" else x for x in inputs]
        given = case.named(given).values()
        outputs, _ = layer.stateless_call(weights, others, *given, training=True)
        return sum(ops.sum(ops.sin(x)) for x in leaves(outputs))

    gradient = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))
    assert_lowered(lowered(gradient, weights, floats))


def test_a_library_is_found():
    matrix = jax.ShapeDtypeStruct((3, 3), "float32")
    assert outside_calls(lowered(jax.jit(jax.numpy.linalg.eigh), matrix))


def test_a_callback_is_refused():
    shape = jax.ShapeDtypeStruct((3,), "float32")
    called = jax.jit(lambda x: jax.pure_callback(lambda x: x, shape, x))
    # JAX refuses one in any exported program, and one for a device that this machine lacks sooner.
    with pytest.raises((NotImplementedError, ValueError), match=r"callback|lowering platform cuda"):
        lowered(called, shape)
