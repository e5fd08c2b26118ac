"""The memory network of Sukhbaatar et al. (2015), and its training."""

import functools
import math
import os

import joblib
import keras
import numpy as np
import tensorflow as tf

from examples.common.files import whole_file
from examples.common.training import VERBOSE, seed_model
from keras_attention import MemoryNetwork

CORES = joblib.cpu_count()
# Only one process can use the GPU.
ALONE = keras.backend.backend() != "tensorflow" or tf.config.list_physical_devices("GPU")
JOBS = 1 if ALONE else min(CORES, 8)


def build_model(sizes, hops, units):
    """Builds the model that is trained, and a reader on the same layers that shows the weights.

    Both take word ids of a story `(B, N, W)` and a question `(B, W')`. The model returns logits
    `(B, words)`, the reader `probabilities` and `hop_weights` `(B, K, N)`. `Task` has the sizes.
    """
    words, length, memory = sizes
    story = keras.Input((None, None), dtype="int32", name="story")
    question = keras.Input((None,), dtype="int32", name="question")
    # As in the published code: the place of a word is that in the longest sentence, and the empty
    # places of the memory are read too, as zeros.
    options = {"position_encoding": length, "memory_size": memory, "null_memories": True}
    network = MemoryNetwork(words, units, hops, **options, name="network")
    # One call for both models: Keras 3.15 accepts no second call with other outputs.
    logits, weights = network(story, question, return_attention_scores=True)
    probabilities = keras.layers.Softmax(name="probabilities")(logits)
    outputs = {"probabilities": probabilities, "hop_weights": weights}
    return keras.Model([story, question], logits), keras.Model([story, question], outputs)


@functools.lru_cache(maxsize=1)
def compiled_model(sizes, hops, units, steps):
    """A compiled model, which later repeats use again: compiling takes as long as training."""
    seed_model(0)
    model, _ = build_model(sizes, hops, units)
    optimizer = keras.optimizers.SGD(global_clipnorm=40.0)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")
    model.compile(optimizer, loss, jit_compile=True, steps_per_execution=steps)
    return model


def fit_model(task, hops, repeat, settings):
    """Trains a model of a `Task` as in the paper. Returns it, and the number of linear epochs."""
    batch = min(settings["batch_size"], len(task.train.answers))
    steps = len(task.train.answers) // batch
    model = compiled_model(task.sizes, hops, settings["units"], steps)
    # New weights, which depend on no earlier model.
    seed = (settings["seed"] * 1000 + repeat) % 2**32
    keras.utils.set_random_seed(seed)
    model.set_weights(build_model(task.sizes, hops, settings["units"])[0].get_weights())
    network = model.get_layer("network")
    rate, epochs = settings["learning_rate"], settings["epochs"]

    def fit(part, epochs, schedule, *callbacks):
        schedule = keras.callbacks.LearningRateScheduler(schedule)
        return model.fit(
            task.batches(batch, settings["noise"], [seed, part]),
            epochs=epochs,
            steps_per_epoch=steps,
            callbacks=[schedule, *callbacks, keras.callbacks.TerminateOnNaN()],
            # The models of single tasks are many, and train in seconds.
            verbose=VERBOSE if task.name == "joint" else 0,
            shuffle=False,
        )

    def validate(epoch, logs):
        logs["val_loss"] = float(np.nanmean(answers(model, task.valid, task.sizes[2])[1]))

    # The linear start: without the softmax, until the validation loss no longer falls.
    network.linear = True
    validation = keras.callbacks.LambdaCallback(on_epoch_end=validate)
    patience = keras.callbacks.EarlyStopping("val_loss", patience=10)
    start = fit(0, settings["linear_epochs"], lambda epoch: rate / 2, validation, patience)
    # Then with the softmax. The learning rate is halved three times.
    network.linear = False
    fit(1, epochs, lambda epoch: rate / 2 ** (4 * epoch // epochs))
    return model, len(start.epoch)


def answers(model, data, memory, size=500):
    """Answers an `Encoded`: the guessed words `(Q,)`, and the cross-entropy of each true answer.

    The first id is padding and the last the unknown word, so neither is an answer. NaN: unknown.
    """
    logits = []
    for start in range(0, len(data.answers), size):
        inputs = data.select(slice(start, start + size)).inputs(memory)
        logits.append(keras.ops.convert_to_numpy(model(inputs, training=False)))
    logits = np.concatenate(logits).astype("float64")
    logits -= logits.max(axis=1, keepdims=True)
    losses = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(logits)), data.answers]
    return 1 + logits[:, 1:-1].argmax(axis=1), np.where(data.answers < 0, np.nan, losses)


def train(task, hops, repeat, settings, path):
    """Trains one model, and writes its weights. Returns their path, and the results."""
    model, linear_epochs = fit_model(task, hops, repeat, settings)
    found = {"": task.train, "valid": task.valid, **task.test}
    found = {name: (answers(model, x, task.sizes[2]), x.answers) for name, x in found.items()}
    errors = {n: 100 * float(np.mean(words != true)) for n, ((words, _), true) in found.items()}
    loss = float(np.mean(found[""][0][1]))
    with whole_file(path) as temporary:
        model.save_weights(temporary)
    found = {"train_error": errors.pop(""), "train_loss": loss if math.isfinite(loss) else None}
    found |= {"valid_error": errors.pop("valid"), "linear_epochs": linear_epochs}
    return path, {**found, "test_errors": errors}


def train_all(jobs, processes):
    """Yields the path and the results of each model, in the order in which they are finished."""
    processes = max(1, min(processes, len(jobs)))
    # The processes that train read it when they start.
    os.environ["TF_NUM_INTRAOP_THREADS"] = str(max(1, CORES // processes))
    parallel = joblib.Parallel(processes, return_as="generator_unordered")
    return parallel(joblib.delayed(train)(*job) for job in jobs)
