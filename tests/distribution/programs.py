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
from keras_attention.search import beam_search
from tests.conformance.layers import CASES

BATCH = 4 * 23  # no other size below is a multiple of 23
WORDS = 61
COLLECTIVE = r"= (.*?) (?:all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter)"


def compiled_step(model, arguments, devices):
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


def samples(program):
    results = " ".join(re.findall(COLLECTIVE, program.as_text()))
    shapes = re.findall(r"\[([\d,]*)\]", results)
    sizes = [[int(n) for n in shape.split(",") if n] for shape in shapes]
    return [x for x in sizes if any(n % (BATCH // 4) == 0 for n in x)]


def compiled_shared(function, *shape):
    devices = jax.sharding.Mesh(np.array(jax.devices()), ("batch",))
    shared = NamedSharding(devices, PartitionSpec("batch"))
    function = jax.jit(function, in_shardings=shared, out_shardings=shared)
    return function.lower(jax.ShapeDtypeStruct((BATCH, *shape), "float32")).compile()


def search():
    embedding, head = keras.layers.Embedding(WORDS, 13), keras.layers.Dense(WORDS)
    decoder = AttentionRNN(keras.layers.GRUCell(13), BahdanauAttention(11))
    embedding.build((None,))
    head.build((None, 13))
    decoder.build((BATCH, 3, 13), (BATCH, 7, 17))

    def step(tokens, state, memory):
        output, state, weights = decoder.step(embedding(tokens), state, memory)
        return head(output), state, weights

    def function(memory):
        memory = decoder.prepare(memory)
        options = {"start_token": 1, "end_token": 2, "max_length": 5, "beam_width": 3}
        found = beam_search(step, decoder.get_initial_state(memory), memory, **options)
        return tuple(found)

    return compiled_shared(function, 7, 17)


def large():
    """Layers with sizes for which the score has a loop, and windows are gathered."""
    query, memory = np.zeros((BATCH, 17, 32), "float32"), np.zeros((BATCH, 67, 32), "float32")
    local = {"alignment": "local-p", "half_width": 2}
    gru, lstm = keras.layers.GRUCell(32), keras.layers.LSTMCell(32)
    windows = LuongAttention(units=32, **local)
    attentions = {
        "additive": BahdanauAttention(32),
        "additive windows": LuongAttention("concat", **local),
        "wide windows": LuongAttention("dot", "local-m", half_width=33),
        "attending decoder": AttentionRNN(gru, BahdanauAttention(32)),
        "decoder with windows": AttentionRNN(lstm, windows, input_feeding=True),
    }
    for name, layer in attentions.items():
        layer.build(query.shape, memory.shape)
        long = np.zeros((BATCH, 700, 32), "float32") if name == "wide windows" else memory
        yield name, layer, (query, long)


def main():
    found = {
        "reversed batch": {"samples": samples(compiled_shared(lambda x: x[::-1], 5))},
        "search": {"samples": samples(search())},
    }
    for name, layer, arguments in large():
        programs = [compiled_step(layer, arguments, n) for n in (1, 4)]
        sizes = [x.memory_analysis().temp_size_in_bytes for x in programs]
        found[name] = {"samples": samples(programs[1]), "share": sizes[1] / sizes[0]}
    for name, case in CASES.items():
        if case.first:
            model = case.model()
            sizes = {size for weight in model.weights for size in weight.shape}
            assert not any(size and size % (BATCH // 4) == 0 for size in sizes), name
            program = compiled_step(model, (case.inputs(BATCH),), 4)
            found[name] = {"samples": samples(program)}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
