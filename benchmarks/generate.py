"""Compares the time of `Seq2Seq.generate` with a bare beam search on 1,000 sentences.

    python benchmarks/generate.py [--repeats N] [--small]

A translator of the size of docs/results/multi30k.md, with random weights, searches 1,000 random
sentences with the lengths of captions and beams of 5. The bare search is a compiled function,
called on batches that were sorted, cut and made into tensors before. A `BidirectionalEnsemble` of
two such translators also searches these sentences. The three take turns. Prints seconds, and their
ratios to the bare search, in a TensorFlow graph, with XLA and on JAX.
"""

import argparse
import os
import subprocess
import sys
import time

BATCH, LENGTH, WIDTH = 64, 30, 5
COLUMNS = "TensorFlow", "XLA", "JAX"


def make_translator(words, units):
    import keras
    from keras import layers

    from keras_attention import AttentionRNN, LuongAttention, RecurrentEncoder, Seq2Seq
    from keras_attention.seq2seq import Readout

    keras.utils.set_random_seed(1)
    rnn = layers.GRU(units // 2, return_sequences=True, return_state=True, use_cudnn=False)
    return Seq2Seq(
        RecurrentEncoder(layers.Embedding(words, units), layers.Bidirectional(rnn)),
        AttentionRNN(layers.GRUCell(units), LuongAttention("general", units=units)),
        layers.ReversibleEmbedding(words, units),
        Readout(units),
        start_token=1,
        end_token=2,
    )


def make_sentences(count, words):
    import numpy as np

    rng = np.random.default_rng(1)
    lengths = np.clip(rng.normal(14, 4.5, count), 4, 40).astype(int)
    ids = rng.integers(3, words, (count, lengths.max()))
    return np.where(np.arange(ids.shape[1]) < lengths[:, None], ids, 0).astype("int32")


def bare(model, sentences, jit):
    """Makes a function that searches batches made in advance."""
    import keras
    import numpy as np
    from keras import ops

    lengths = (sentences > 0).sum(axis=1)
    order = np.argsort(lengths, kind="stable")
    batches = []
    for start in range(0, len(order), BATCH):
        rows = order[start : start + BATCH]
        width = lengths[rows].max()
        if jit:
            width = -(-width // 16) * 16
        batches.append(ops.convert_to_tensor(sentences[rows][:, :width]))

    def search(batch):
        return tuple(model.search_batch(batch, LENGTH, beam_width=WIDTH))

    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        ids = tf.TensorSpec((None, None), "int32")
        search = tf.function(search, input_signature=[ids], autograph=False, jit_compile=jit)
    else:
        import jax

        search = jax.jit(search)

    def run():
        for batch in batches:
            ops.convert_to_numpy(search(batch)[0])

    return run


def column(arguments):
    import statistics

    from keras_attention.seq2seq import BidirectionalEnsemble

    words, units, count = (50, 16, 100) if arguments.small else (8000, 512, 1000)
    sentences, jit = make_sentences(count, words), arguments.column != "TensorFlow"
    models = [make_translator(words, units) for _ in range(2)]
    for model in models:
        model((sentences[:1], sentences[:1]))
    both = BidirectionalEnsemble(*models)
    for model in (models[0], both):
        model.compile(jit_compile=jit)

    def generate(model):
        return lambda: model.generate(sentences, LENGTH, beam_width=WIDTH, batch_size=BATCH)

    functions = {
        "bare": bare(models[0], sentences, jit),
        "generate": generate(models[0]),
        "both directions": generate(both),
    }
    found = {name: [] for name in functions}
    for _ in range(arguments.repeats + 1):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            found[name].append(time.perf_counter() - start)
    seconds = {name: statistics.median(times[1:]) for name, times in found.items()}
    ratios = [f"{name} {x:.2f} s ({x / seconds['bare']:.3f})" for name, x in seconds.items()]
    print(f"{arguments.column}: {', '.join(ratios)}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--small", action="store_true", help="to try the command")
    parser.add_argument("--column", choices=COLUMNS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.column:
        column(arguments)
        return
    for name in COLUMNS:
        backend = "jax" if name == "JAX" else "tensorflow"
        environment = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
        command = [sys.executable, __file__, *sys.argv[1:], "--column", name]
        subprocess.run(command, env=environment, check=True)


if __name__ == "__main__":
    main()
