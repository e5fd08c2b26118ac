"""
Train on several devices
========================

A translator of written dates learns on all devices of a machine, or of several, with
`keras.distribution` on JAX. Every device has a copy of the model and a share of each batch. With
--model-parallel 2, two devices also share the weights (`keras_attention.distribution`). Without
GPUs, four simulated devices share the processor.

On several machines, start this script once for each process, under srun or with the variables of
docs/howto/devices.md. Process 0 writes a checkpoint after each epoch into --output, which every
machine must see. If a process dies, the others stop, and the same command resumes.
"""

import argparse
import datetime
import os
import pathlib
import string
import traceback

os.environ["KERAS_BACKEND"] = "jax"
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "4")  # simulated, where JAX finds no others

import jax
import keras
import numpy as np

from keras_attention import AttentionRNN, BahdanauAttention, RecurrentEncoder, Seq2Seq
from keras_attention.distribution import get_layout_map

STEPS, BATCH_SIZE, UNITS = 50, 64, 64  # all devices together make a step
FORMATS = ("%d %B %Y", "%B %d, %Y", "%A, %d %B %Y", "%d %b %Y", "%Y, %B %d", "%d/%m/%Y")
CHARACTERS = "^$" + string.ascii_letters + string.digits + " ,-/"  # "^" begins, "$" ends
SIZE, START, END = 72, 1, 2  # eight devices can share a vocabulary of 72


def make_dates():
    rng = np.random.default_rng(0)
    days = rng.choice(73_000, STEPS * BATCH_SIZE, replace=False)
    dates = [datetime.date(1900, 1, 1) + datetime.timedelta(int(day)) for day in days]
    sides = [x.strftime(rng.choice(FORMATS)) for x in dates], [f"{x}$" for x in dates]
    ids = [[[CHARACTERS.index(x) + 1 for x in text] for text in side] for side in sides]
    return [keras.utils.pad_sequences(x, padding="post") for x in ids]


def make_distribution(split, processes):
    if split == 1:  # each process passes its own share of a batch
        return keras.distribution.DataParallel(auto_shard_dataset=processes == 1)
    devices = keras.distribution.list_devices()
    shape = len(devices) // split, split
    layout_map = get_layout_map(keras.distribution.DeviceMesh(shape, ("batch", "model"), devices))
    # The layers of Keras around the attention are ours to place.
    layout_map["(.*/)?(source|target)_embedding/embeddings"] = (None, "model")
    layout_map["(.*/)?logits/kernel"] = (None, "model")
    return keras.distribution.ModelParallel(layout_map=layout_map, batch_dim_name="batch")


def build():
    keras.utils.set_random_seed(0)  # all processes draw the same weights
    gru = keras.layers.Bidirectional(keras.layers.GRU(UNITS, return_sequences=True))
    encoder = RecurrentEncoder(keras.layers.Embedding(SIZE, UNITS, name="source_embedding"), gru)
    decoder = AttentionRNN(keras.layers.GRUCell(2 * UNITS), BahdanauAttention(UNITS))
    embedding = keras.layers.Embedding(SIZE, UNITS, name="target_embedding")
    head = keras.layers.Dense(SIZE, name="logits")
    model = Seq2Seq(encoder, decoder, embedding, head, START, END)
    model.compile(keras.optimizers.Adam(0.003))
    ids = keras.Input((None,), dtype="int32")
    model((ids, ids))  # makes the weights
    return model


def save(model, path):
    """Saves weights and optimizer in one step.

    `keras.callbacks.BackupAndRestore` would do so in two, and wait for the other processes.
    """
    distribution, temporary = keras.distribution.distribution(), path.with_stem("tmp.weights")
    keras.distribution.set_distribution(None)  # saving makes a variable of this process
    model.save_weights(temporary)
    temporary.replace(path)
    keras.distribution.set_distribution(distribution)


def main():
    kind = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=kind)
    parser.add_argument("--model-parallel", type=int, default=1, metavar="N")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--output", type=pathlib.Path, default="output/train_on_devices")
    options = parser.parse_args()
    if {"KERAS_DISTRIBUTION_NUM_PROCESSES", "SLURM_PROCID"} & {*os.environ}:
        keras.distribution.initialize()  # before anything else that uses JAX
    process, processes = jax.process_index(), jax.process_count()
    distribution = make_distribution(options.model_parallel, processes)
    keras.distribution.set_distribution(distribution)  # before the model is made
    model = build()
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / "last.weights.h5"
    if path.exists():
        model.optimizer.build(model.trainable_variables)
        model.load_weights(path)
    saving = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: save(model, path))
    model.fit(
        *(x[process::processes] for x in make_dates()),
        batch_size=BATCH_SIZE // processes,
        shuffle=False,
        epochs=options.epochs,
        initial_epoch=int(model.optimizer.iterations.numpy()) // STEPS,
        callbacks=[saving] if process == 0 else None,
        verbose=2 if process == 0 else 0,
    )
    if process == 0:
        values = [weight.value for weight in model.weights]
        held = sum(x.addressable_shards[0].data.size for x in values)
        print(f"{distribution.device_mesh}")
        print(f"each device holds {held:,} of {sum(x.size for x in values):,} weights")


if __name__ == "__main__":
    try:
        main()
    except Exception:
        try:
            traceback.print_exc()
        finally:
            os._exit(1)  # a usual exit would wait minutes for a process that died
