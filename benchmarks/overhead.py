"""What small eager calls, tracing, and gradients without `training=True` cost on TensorFlow.

    python benchmarks/overhead.py [--repeats N]

Prints median times. Eager calls, at (8, 5, 32) by (8, 20, 32), stand beside
`keras.layers.Attention`. So do a step of a decoder and its cell. A gradient without
`training=True` stands beside one with it, for decoders of B 32, T 50 and U 512. Tracing is that of
the training step of the same decoder with unknown sizes, the median of three.
"""

import argparse
import os
import statistics
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf
from measure import interleaved_times, print_table

from keras_attention import AttentionRNN, BahdanauAttention, LuongAttention

PLAIN, CALLS = "keras.layers.Attention", 50
BATCH, STEPS, UNITS = 32, 50, 512


def eager_calls():
    """Functions that make `CALLS` eager calls each."""
    query, value = tf.ones((8, 5, 32)), tf.ones((8, 20, 32))
    mask = tf.ones((8, 20), tf.bool)
    additive, plain, dot = BahdanauAttention(32), keras.layers.Attention(), LuongAttention("dot")
    decoder = AttentionRNN(keras.layers.GRUCell(64), BahdanauAttention(32))
    decoder.build((None, None, 16), (None, None, 32))
    memory = decoder.prepare(value, mask)
    state, inputs = decoder.get_initial_state(memory), tf.ones((8, 16))
    calls = {
        PLAIN: lambda: plain([query, value]),
        "BahdanauAttention": lambda: additive(query, value),
        "BahdanauAttention, with a mask": lambda: additive(query, value, value_mask=mask),
        'LuongAttention("dot")': lambda: dot(query, value),
        "a step of GRU with Bahdanau": lambda: decoder.step(inputs, state, memory),
        "its GRU cell alone": lambda: decoder.cell(tf.ones((8, 48)), state.cells),
    }
    return {name: lambda call=call: [call() for _ in range(CALLS)] for name, call in calls.items()}


def make_decoder(layers, cell, attention, **options):
    cells = [cell(UNITS) for _ in range(layers)]
    decoder = AttentionRNN(cells if layers > 1 else cells[0], attention, **options)
    decoder.build((None, None, UNITS), (None, None, UNITS))
    return decoder


DECODERS = {
    "GRU, Bahdanau": lambda: make_decoder(1, keras.layers.GRUCell, BahdanauAttention(UNITS)),
    "two LSTMs, Luong, fed": lambda: make_decoder(
        2, keras.layers.LSTMCell, LuongAttention("general", units=UNITS), input_feeding=True
    ),
}


def gradients(decoder, training, compiled, unknown=False):
    """A function that computes all gradients of the outputs of a decoder."""

    def step(sequences, memory):
        with tf.GradientTape() as tape:
            outputs = decoder(sequences, memory, training=training)
            loss = tf.reduce_sum(outputs)
        return tape.gradient(loss, decoder.trainable_variables)

    sizes = (None, None, UNITS) if unknown else (BATCH, STEPS, UNITS)
    specs = [tf.TensorSpec(sizes), tf.TensorSpec(sizes)]
    return tf.function(step, specs, jit_compile=compiled, autograph=False)


def trace_seconds(decoder):
    times = []
    for _ in range(3):
        start = time.perf_counter()
        gradients(decoder, True, False, unknown=True).get_concrete_function()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=25)
    repeats = parser.parse_args().repeats
    times = interleaved_times(eager_calls(), repeats)
    rows = [[name, 1e6 * x / CALLS, x / times[PLAIN]] for name, x in times.items()]
    print_table(["eager call", "us", "ratio"], rows)

    tensors = [
        tf.constant(np.random.default_rng(n).normal(0, 1, (BATCH, STEPS, UNITS)), "float32")
        for n in range(2)
    ]
    rows = []
    for name, make in DECODERS.items():
        decoder = make()
        row = [name, trace_seconds(decoder)]
        for compiled in (False, True):
            steps = {x: gradients(decoder, x, compiled) for x in (True, None)}
            functions = {x: lambda step=step: step(*tensors) for x, step in steps.items()}
            times = interleaved_times(functions, max(1, repeats // 2))
            row += [1e3 * times[True], times[None] / times[True]]
        rows.append(row)
    header = ["decoder", "tracing, s", "graph, ms", "without training", "XLA, ms"]
    print_table([*header, "without training"], rows)


if __name__ == "__main__":
    main()
