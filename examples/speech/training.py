"""Trains a speaker or a listener, epoch by epoch, and resumes after a kill."""

import sys
import time

import keras
import numpy as np
import tensorflow as tf

from examples.common.schedules import warmup_cosine
from examples.common.seeds import reseed
from examples.speech.data import batches, shortest


def train(model, loss, make_batch, corpora, letters, settings, checkpoint, growing):
    """Trains to the end, or resumes an earlier run. Leaves the best weights in the model.

    Alignments are learned from short utterances, and without noise: both come first.

    Args:
        model: what `build_speaker` or `build_listener` returns.
        loss: the loss of its outputs.
        make_batch: `speaker_batch` or `listener_batch`.
        corpora: the corpora "train" and "valid".
        letters: the letters of the language.
        settings: a dictionary with epochs, batch_size, learning_rate and seed.
        checkpoint: a `Checkpoint`.
        growing: the share of the epochs in which utterances grow longer.
    """
    size, epochs, seed = (settings[name] for name in ("batch_size", "epochs", "seed"))

    def dataset(corpus, order_seed=None):
        def make():
            order = None if order_seed is None else np.random.default_rng(order_seed)
            return batches(corpus, make_batch, letters, size, order)

        return _dataset(make, count(corpus))

    def count(corpus):
        return -(-len(corpus.texts) // size)

    steps = epochs * count(corpora["train"])
    rate = warmup_cosine(settings["learning_rate"], steps, last=0.01)
    model.compile(keras.optimizers.Adam(rate, global_clipnorm=1.0), loss)
    checked = dataset(corpora["valid"])
    attention = model.get_layer("decoder").attention
    noise = getattr(attention, "noise", None)
    for epoch in range(checkpoint.restore(model), epochs):
        now = 0.0 if noise and 2 * epoch < epochs else noise
        if noise and now != attention.noise:
            attention.noise = now
            model.make_train_function(force=True)
        reseed(model, seed, epoch)
        share = (epoch + 1) / (growing * epochs) if growing else 1.0
        part = shortest(corpora["train"], min(1.0, share))
        # The order depends on the epoch alone, so a resumed run has the same one.
        data = dataset(part, [seed, epoch])
        start = time.perf_counter()
        verbose = 1 if sys.stdout.isatty() else 0
        found = model.fit(data, shuffle=False, verbose=verbose).history["loss"][0]
        seconds = time.perf_counter() - start
        valid = model.evaluate(checked, verbose=0, return_dict=True)["loss"]
        entry = {"epoch": epoch + 1, "train_loss": found, "valid_loss": valid, "seconds": seconds}
        checkpoint.save(model, entry)
        print(
            f"epoch {epoch + 1}/{epochs}: training loss {found:.4f}, validation loss {valid:.4f}, "
            f"{seconds:.0f} s",
            flush=True,
        )
    checkpoint.load_best(model)
    return checkpoint.state


def _dataset(make, count):
    signature = keras.tree.map_structure(
        lambda x: tf.TensorSpec((None, *(None,) * (x.ndim > 1), *x.shape[2:]), x.dtype),
        next(make()),
    )
    found = tf.data.Dataset.from_generator(make, output_signature=signature)
    return found.apply(tf.data.experimental.assert_cardinality(count)).prefetch(4)
