"""Compiles training steps for a batch on four devices, and prints as JSON what they exchange.

Run in a process of its own, with JAX and four devices.
"""

import json
import re

import jax
import keras
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from keras import ops, tree

from keras_attention import AttentionRNN, BahdanauAttention, LuongAttention
from tests.conformance.layers import CASES

BATCH = 4 * 23  # no other size below is a multiple of 23
COLLECTIVE = r"= (.*?) (?:all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter)"


def compiled_step(model, arguments, devices):
    """The value and gradients of a loss, compiled for devices that share the batch."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:devices]), ("batch",))
    copied, shared = (NamedSharding(mesh, PartitionSpec(*x)) for x in ((), ("batch",)))
    weights = [x.value for x in model.trainable_variables]
    others = [x.value for x in model.non_trainable_variables]

    def loss(weights, others, arguments):
        outputs, _ = model.stateless_call(weights, others, *arguments, training=True)
        outputs = [ops.cast(x, "float32") for x in tree.flatten(outputs)]
        return sum(ops.mean(ops.square(x)) for x in outputs)

    step = jax.value_and_grad(loss)
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), arguments)
    step = jax.jit(step, in_shardings=(copied, copied, shared), out_shardings=copied)
    return step.lower(weights, others, shapes).compile()


def exchanged(program):
    """The shapes of tensors that devices exchange and that hold samples, all or a share of them."""
    found = set()
    for results in re.findall(COLLECTIVE, program.as_text()):
        for shape in re.findall(r"\[([\d,]*)\]", results):
            sizes = [int(n) for n in shape.split(",") if n]
            if any(n % (BATCH // 4) == 0 for n in sizes):
                found.add(shape)
    return sorted(found)


def reversed_batch():
    """A program whose devices must exchange samples."""
    devices = jax.sharding.Mesh(np.array(jax.devices()), ("batch",))
    shared = NamedSharding(devices, PartitionSpec("batch"))
    function = jax.jit(lambda x: x[::-1], in_shardings=shared, out_shardings=shared)
    return function.lower(jax.ShapeDtypeStruct((BATCH, 5), "float32")).compile()


def sizes_of(model):
    return {size for weight in model.weights for size in weight.shape}


def large():
    """Layers with sizes for which the score has a loop, and windows are gathered."""
    query, memory = np.zeros((BATCH, 17, 32), "float32"), np.zeros((BATCH, 67, 32), "float32")
    local = {"alignment": "local-p", "half_width": 2}
    attentions = {
        "additive": BahdanauAttention(32),
        "windows": LuongAttention("general", **local),
        "additive windows": LuongAttention("concat", **local),
        "wide windows": LuongAttention("dot", "local-m", half_width=33),
        "attending decoder": AttentionRNN(keras.layers.GRUCell(32), BahdanauAttention(32)),
        "decoder with windows": AttentionRNN(
            keras.layers.LSTMCell(32), LuongAttention(units=32, **local), input_feeding=True
        ),
    }
    for name, layer in attentions.items():
        layer.build(query.shape, memory.shape)
        long = np.zeros((BATCH, 700, 32), "float32") if name == "wide windows" else memory
        yield name, layer, (query, long)


def main():
    found = {"reversed batch": {"exchanged": exchanged(reversed_batch())}}
    for name, layer, arguments in large():
        programs = [compiled_step(layer, arguments, n) for n in (1, 4)]
        sizes = [x.memory_analysis().temp_size_in_bytes for x in programs]
        found[name] = {"exchanged": exchanged(programs[1]), "share": sizes[1] / sizes[0]}
    for name, case in CASES.items():
        if case.first:
            model = case.model()
            assert not any(size and size % (BATCH // 4) == 0 for size in sizes_of(model)), name
            inputs = case.inputs(BATCH)
            program = compiled_step(model, (inputs,), 4)
            found[name] = {"exchanged": exchanged(program)}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
