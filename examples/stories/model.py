"""The memory network of Sukhbaatar et al. (2015) and its training."""

import math
import time
from typing import NamedTuple

import keras
import memories
import numpy as np
import tensorflow as tf
from keras import ops
from workers import Stopped, asked_to_stop

from keras_attention import MemoryNetwork

ENCODINGS = ("position", "own-length", "bag")
# Epochs in which the validation loss may fail to fall before the softmax is put back.
PATIENCE = 10


class Task(NamedTuple):
    """What one model is trained on and tested on.

    name: "1" to "20", or "joint". words: how many ids there are. length: words of the longest
    sentence. memory: the number of sentences that are remembered. train, valid: `memories.Encoded`.
    test: one for each task, by their names.
    """

    name: str
    words: int
    length: int
    memory: int
    train: memories.Encoded
    valid: memories.Encoded
    test: dict


def build_model(task, hops, settings):
    """The model that is trained, and one on the same layers that also returns the weights.

    Args:
        task: a `Task`.
        settings: as in `Trainer`.

    Returns:
        `(model, reader)`: word ids of a story `(B, N, W)` and a question `(B, W')` to logits
        `(B, words)`, and to a dictionary of `probabilities` and `hop_weights` `(B, K, N)`.
    """
    story = keras.Input((None, None), dtype="int32", name="story")
    question = keras.Input((None,), dtype="int32", name="question")
    network = MemoryNetwork(
        task.words,
        settings["units"],
        hops,
        tying=settings["tying"],
        position_encoding={"position": task.length, "own-length": True, "bag": False}[
            settings["encoding"]
        ],
        memory_size=task.memory,
        null_memories=settings["null_memories"],
        name="network",
    )
    network.linear = settings["linear_start"]
    # One call for both models: Keras 3.15 takes no second one that has other outputs.
    logits, weights = network(story, question, return_attention_scores=True)
    probabilities = keras.layers.Softmax(name="probabilities")(logits)
    outputs = {"probabilities": probabilities, "hop_weights": weights}
    return keras.Model([story, question], logits), keras.Model([story, question], outputs)


def compile_model(model, learning_rate, **options):
    """The loss and the optimizer of the paper: the sum over a batch, gradients of at most 40."""
    model.compile(
        keras.optimizers.SGD(learning_rate, global_clipnorm=40.0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum"),
        **options,
    )


def predict(model, data, memory, size=500):
    """Logits `(Q, words)` of an `Encoded`; not compiled, for sizes are of all kinds."""
    found = []
    for start in range(0, len(data.answers), size):
        inputs = data.select(slice(start, start + size)).inputs(memory)
        found.append(ops.convert_to_numpy(model(inputs, training=False)))
    return np.concatenate(found)


def answers(logits):
    """The most probable words: neither padding, the first, nor the unknown one, the last."""
    return 1 + logits[:, 1:-1].argmax(axis=1)


class Trainer:
    """Trains models of one task, one after the other, with one compiled program.

    Args:
        task: a `Task`.
        hops: of the model.
        settings: dictionary with units, tying, encoding, null_memories, linear_start, noise,
            epochs, linear_epochs, learning_rate, batch_size and seed.
    """

    def __init__(self, task, hops, settings):
        self.task, self.hops, self.settings = task, hops, settings
        self.batch = min(settings["batch_size"], len(task.train.answers))
        self.steps = len(task.train.answers) // self.batch
        self.model, _ = build_model(task, hops, settings)
        self.network = self.model.get_layer("network")
        compile_model(
            self.model,
            settings["learning_rate"],
            jit_compile=True,
            steps_per_execution=self.steps,
        )

    def run(self, repeat):
        """Trains one model; returns what is to be known of it, and its weights."""
        # As a new model would be that was made after this seed.
        keras.utils.set_random_seed((self.settings["seed"] * 1000 + repeat) % 2**32)
        fresh, _ = build_model(self.task, self.hops, self.settings)
        self.model.set_weights(fresh.get_weights())
        schedule = _Schedule(self, f"task {self.task.name}, {self.hops} hops, repeat {repeat}")
        start = time.perf_counter()
        self.model.fit(
            self.batches(repeat),
            epochs=self.settings["epochs"] + self.settings["linear_epochs"],
            steps_per_epoch=self.steps,
            callbacks=[schedule],
            verbose=0,
            shuffle=False,
        )
        if schedule.stopped:
            raise Stopped
        seconds = time.perf_counter() - start
        # Without the first, in which it is compiled.
        epoch = float(np.median(schedule.seconds[1:] or schedule.seconds))
        train_error, train_loss = self.error(self.task.train)
        return {
            "task": self.task.name,
            "hops": self.hops,
            "repeat": repeat,
            "diverged": not math.isfinite(train_loss),
            "train_error": train_error,
            "train_loss": train_loss if math.isfinite(train_loss) else None,
            "valid_error": self.error(self.task.valid)[0],
            "test_errors": {name: self.error(data)[0] for name, data in self.task.test.items()},
            "linear_epochs": schedule.linear,
            "epochs": len(schedule.seconds),
            "seconds": seconds,
            "step_ms": 1e3 * epoch / self.steps,
            "compile_seconds": max(0.0, schedule.seconds[0] - epoch),
        }, self.model.get_weights()

    def batches(self, repeat):
        """Endless batches, a new order and new noise every epoch."""
        size, data = self.steps * self.batch, self.task.train

        def epochs():
            epoch = 0
            while True:
                rng = np.random.default_rng([self.settings["seed"], repeat, epoch])
                chosen = data.select(rng.permutation(len(data.answers))[:size])
                noise = self.settings["noise"]
                story, question = chosen.inputs(self.task.memory, noise, rng)
                yield tuple(
                    x.reshape(self.steps, self.batch, *x.shape[1:])
                    for x in (story, question, chosen.answers)
                )
                epoch += 1

        shapes = [x.shape for x in next(epochs())]
        signature = tuple(tf.TensorSpec(shape, "int32") for shape in shapes)
        dataset = tf.data.Dataset.from_generator(epochs, output_signature=signature)
        dataset = dataset.unbatch().map(lambda story, question, answer: ((story, question), answer))
        return dataset.prefetch(8)

    def error(self, data):
        """Percentage of wrong answers, and mean cross-entropy of the known ones."""
        if not len(data.answers):
            return float("nan"), float("nan")
        logits = predict(self.model, data, self.task.memory).astype("float64")
        known = data.answers >= 0
        wrong = answers(logits) != data.answers
        logits -= logits.max(axis=1, keepdims=True)
        losses = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(logits)), data.answers]
        return 100 * float(wrong.mean()), float(losses[known].mean())


class _Schedule(keras.callbacks.Callback):
    """A linear start, then a learning rate that is halved three times."""

    def __init__(self, trainer, name):
        super().__init__()
        self.trainer, self.name = trainer, name
        self.linear, self.done, self.seconds = 0, 0, []
        self.losses, self.stopped = [], False
        self.told = time.perf_counter()

    def on_epoch_begin(self, epoch, logs=None):
        settings, rate = self.trainer.settings, self.trainer.settings["learning_rate"]
        if self.trainer.network.linear:
            rate /= 2
        else:
            rate /= 2 ** (4 * self.done // settings["epochs"])
        self.model.optimizer.learning_rate = rate
        self.start = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        now, trainer = time.perf_counter(), self.trainer
        self.seconds.append(now - self.start)
        if trainer.network.linear:
            self.linear += 1
            self.losses.append(trainer.error(trainer.task.valid)[1])
            best = int(np.argmin(self.losses))
            late = len(self.losses) - 1 - best >= PATIENCE
            if late or self.linear >= trainer.settings["linear_epochs"]:
                trainer.network.linear = False
        else:
            self.done += 1
        diverged = not math.isfinite(logs["loss"])
        self.stopped = asked_to_stop()
        if self.stopped or diverged or self.done >= trainer.settings["epochs"]:
            self.model.stop_training = True
        elif now - self.told > 20:
            self.told = now
            left = trainer.settings["epochs"] - self.done
            minutes = left * float(np.median(self.seconds)) / 60
            print(
                f"  {self.name}: epoch {len(self.seconds)}, loss {logs['loss']:.3f}, "
                f"{minutes:.1f} min left",
                flush=True,
            )
