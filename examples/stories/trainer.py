"""Trains models of one task as in the paper."""

import math
import time

import keras
import numpy as np
import tensorflow as tf

from examples.common.workers import Stopped, asked_to_stop
from examples.stories.model import answers, build_model, compile_model, predict

# The linear start ends when the validation loss has not fallen for this number of epochs.
PATIENCE = 10


class Trainer:
    """Trains models of one task, one after the other, with one compiled program.

    Args:
        task: a `Task`.
        hops: the number of hops.
        settings: a dictionary with units, tying, encoding, null_memories, linear_start, noise,
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
        """Trains one model. Returns a dictionary of results, and the weights."""
        # The weights of a new model after this seed, so that earlier models do not matter.
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
        # Without the first epoch, in which the model is compiled.
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
        """Endless batches, with a new order and new noise in every epoch."""
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
        """Percentage of wrong answers, and mean cross-entropy of the known answers."""
        if not len(data.answers):
            return float("nan"), float("nan")
        logits = predict(self.model, data, self.task.memory).astype("float64")
        known = data.answers >= 0
        wrong = answers(logits) != data.answers
        logits -= logits.max(axis=1, keepdims=True)
        losses = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(logits)), data.answers]
        return 100 * float(wrong.mean()), float(losses[known].mean())


class _Schedule(keras.callbacks.Callback):
    """A linear start without the softmax, then a learning rate that is halved three times."""

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
