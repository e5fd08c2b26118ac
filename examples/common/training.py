"""Batches for `fit`, seeds, learning rates, and saved states from which a killed run resumes."""

import csv
import itertools
import json
import math
import pathlib
import sys
import time

import keras
import numpy as np
import tensorflow as tf

from examples.common.files import (
    check_settings,
    make_folder,
    refuse_damaged,
    remove,
    whole_file,
    write_text,
)
from keras_attention import Ensemble
from keras_attention.seq2seq import BidirectionalEnsemble

# With another backend TensorFlow only handles text, and must not reserve the memory of the GPUs.
if keras.backend.backend() != "tensorflow":
    tf.config.set_visible_devices([], "GPU")
# Whether XLA compiles the models. It compiles one program for each shape, so pad to few shapes.
COMPILED = keras.backend.backend() != "tensorflow" or tf.config.list_physical_devices("GPU")
# A task that trains several models traces several functions, and TensorFlow warns about that.
tf.get_logger().addFilter(lambda record: "triggered tf.function retracing" not in str(record.msg))

# The thread that tunes a dataset sleeps for up to a minute, and the end of an epoch waits for it.
UNTUNED = tf.data.Options()
UNTUNED.autotune.enabled = False

POOL = 32  # batches


def bucketed(lengths, size, order=None):
    """Splits `range(len(lengths))` into index arrays of at most `size`.

    Args:
        lengths: `(N,)` or `(N, keys)`, the sort keys; the last column counts first.
        order: a NumPy generator to shuffle with, or None to keep everything sorted by length.

    Returns:
        A list of index arrays that together hold every index once. With `order`, samples are
        shuffled, sorted within pools of `POOL` batches, and the batches are shuffled again.
    """
    batches = []
    for part in _sorted_pools(lengths, size, order):
        batches += [part[i : i + size] for i in range(0, len(part), size)]
    if order is not None:
        order.shuffle(batches)
    return batches


def budgeted(sizes, size, cells, order=None):
    """Like `bucketed`, with smaller batches where the samples are large.

    Args:
        sizes: `(N, axes)`, the size of each sample along the padded axes.
        size: the largest number of samples in a batch.
        cells: the largest number of cells in a padded batch. A batch of one sample may have more.
        order: as in `bucketed`.
    """
    sizes = np.asarray(sizes)
    batches = []
    for part in _sorted_pools(np.column_stack([sizes, sizes.prod(axis=1)]), size, order):
        batch, widest = [], np.zeros(sizes.shape[1], sizes.dtype)
        for n in part:
            wider = np.maximum(widest, sizes[n])
            if batch and (len(batch) == size or (len(batch) + 1) * wider.prod() > cells):
                batches.append(np.array(batch))
                batch, wider = [], sizes[n]
            batch.append(n)
            widest = wider
        batches.append(np.array(batch))
    if order is not None:
        order.shuffle(batches)
    return batches


def _sorted_pools(lengths, size, order):
    lengths = np.column_stack([lengths])  # (N, keys)
    index = np.arange(len(lengths)) if order is None else order.permutation(len(lengths))
    pool = max(len(index), 1) if order is None else POOL * size
    for start in range(0, len(index), pool):
        part = index[start : start + pool]
        yield part[np.lexsort(lengths[part].T)]


class Batches:
    """Batches for `fit`, out of endless passes over the data, each in an order of its own.

    The order of a pass depends on the seed and the number of the pass alone, so a run that resumes
    reads what the first run would have read. `Resume` sets `epoch`, the epoch to yield.

        data = Batches(lambda order: bucketed(lengths, 64, order), read, seed=1).dataset()

    Args:
        split: a function from a NumPy generator, which shuffles, to a list of index arrays, the
            batches of one pass.
        read: a function from an index array to a batch, such as `(inputs, targets)`.
        seed: the seed of all passes.
        steps: the batches of an epoch of `fit`; None for the batches of the first pass.
        size: the number of samples in a batch, if all batches have the same. Where TensorFlow knows
            it, Keras's recurrent layers are faster on a CPU.
    """

    epoch, size = 0, None

    def __init__(self, split, read, seed, steps=None, size=None):
        self.split, self.read, self.seed, self.size = split, read, seed, size
        self.sizes = {}  # the number of batches in each pass
        self.steps = steps or len(self._pass(0))

    def _pass(self, number):
        batches = self.split(np.random.default_rng([self.seed, number]))
        self.sizes[number] = len(batches)
        return batches

    def __call__(self):
        # The pass with which this epoch begins, and the first batch in it.
        number, first = 0, self.epoch * self.steps
        while first >= (size := self.sizes.get(number) or len(self._pass(number))):
            number, first = number + 1, first - size
        batches = itertools.chain.from_iterable(map(self._pass, itertools.count(number)))
        return map(self.read, itertools.islice(batches, first, first + self.steps))

    def dataset(self):
        """A `tf.data.Dataset` of one epoch."""
        signature = keras.tree.map_structure(self._describe, next(self()))
        data = tf.data.Dataset.from_generator(self, output_signature=signature)
        data = data.apply(tf.data.experimental.assert_cardinality(self.steps)).prefetch(4)
        return data.with_options(UNTUNED)

    def _describe(self, x):
        """The sizes that all batches share: `size`, and the features of a step `(B, T, D)`."""
        features = x.shape[2:] if x.dtype.kind == "f" else (None,) * (x.ndim - 2)
        return tf.TensorSpec((self.size, None)[: x.ndim] + features, x.dtype)


def pair_batches(pairs, size, seed=None, steps=None):
    """`Batches` of `size` pairs of lists of ids. The pairs of a batch have similar lengths.

    Each pass has an order of its own. Without a seed, the pairs stay sorted by length.
    """

    def split(order):
        return split_pairs(pairs, size, None if seed is None else order)

    return Batches(split, lambda rows: pad_pairs([pairs[n] for n in rows]), seed or 0, steps)


def split_pairs(pairs, size, order=None):
    """Splits the numbers of the pairs into batches of similar length. See `bucketed`."""
    return bucketed([(len(target), len(source)) for source, target in pairs], size, order)


def pad_pairs(pairs):
    """Pads pairs to a batch `((source, target), target)`."""
    source, target = (pad(side) for side in zip(*pairs, strict=True))
    return (source, target), target


def pad(rows, multiple=4):
    """Pads lists of ids with 0 to the length of the longest one, rounded up to a multiple.

    Multiples of four give few different shapes, so XLA compiles few programs.
    """
    length = max(1, *map(len, rows))
    return keras.utils.pad_sequences(rows, -(-length // multiple) * multiple, padding="post")


class Resume(keras.callbacks.Callback):
    """Lets a run that was killed at any moment go on, and end with the same weights.

    `keras.callbacks.BackupAndRestore` writes weights and epoch into two files, one after the other,
    so a kill between the two trains an epoch twice. It stores neither the states of dropout, nor
    the best loss of a `ModelCheckpoint`. Here each epoch has one file, which appears in one step.

        resume = Resume(folder, settings, batches)
        model.compile(...)
        start = resume.restore(model)
        model.fit(data, epochs=9, initial_epoch=start, callbacks=resume.callbacks("val_loss"))
        resume.load_best(model)

    Args:
        folder: a folder for this run alone. A folder of a run with other settings is refused.
        settings: everything that the weights depend on, as JSON can store it.
        batches: `Batches`, or an object with `epoch`, `get_state` and `set_state`, whose state JSON
            can store. None if the order does not depend on the epoch.
    """

    def __init__(self, folder, settings, batches=None):
        super().__init__()
        self.folder, self.batches, self.seed = pathlib.Path(folder), batches, settings["seed"]
        make_folder(self.folder)
        check_settings(self.folder / "settings.json", settings)

    def restore(self, model):
        """Loads the last saved weights into a compiled model. Returns the number of its epochs."""
        epoch = max(map(_epoch_of, self.folder.glob("epoch-[0-9]*.weights.h5")), default=0)
        if epoch > len(self.history):
            problem = f"it has {len(self.history)} epochs, and the weights are of {epoch}"
            refuse_damaged(self.folder / "log.csv", problem)
        if epoch:
            model.optimizer.build(model.trainable_variables)
            self._load(model, self._path(epoch))
            if hasattr(self.batches, "set_state"):
                state = self._path(epoch, "json").read_text(encoding="utf-8")
                self.batches.set_state(json.loads(state))
            changed = "delete it if you have changed the model"
            print(f"Resuming after epoch {epoch:,} of {self.folder} ({changed})", flush=True)
        return epoch

    def callbacks(self, monitor=None, trainings=1):
        """The callbacks of `fit`: a log, the best weights by a loss to `monitor`, and the states.

        The states come last. A run killed between two callbacks repeats its epoch for both. The log
        also estimates the minutes left, for `trainings` models that train equally long.
        """
        kept = []
        if monitor:
            best = min((row[monitor] for row in self.history), default=None)
            path = str(self.folder / "best.weights.h5")
            options = {"save_best_only": True, "save_weights_only": True}
            kept = [
                keras.callbacks.ModelCheckpoint(
                    path, monitor, mode="min", initial_value_threshold=best, **options
                )
            ]
        log = keras.callbacks.CSVLogger(str(self.folder / "log.csv"), append=True)
        return [Progress(trainings), *kept, log, self]

    def load_best(self, model):
        self._load(model, self.folder / "best.weights.h5")

    @property
    def history(self):
        """What the log says of each finished epoch, as dictionaries of numbers."""
        path = self.folder / "log.csv"
        if not path.exists():
            return []
        # Where nothing was validated, `CSVLogger` adds columns for it, and writes NA into them.
        with open(path, newline="", encoding="utf-8") as file:
            table = list(csv.DictReader(file))
        try:
            rows = [{name: float(x) for name, x in row.items() if x != "NA"} for row in table]
        except (TypeError, ValueError):
            refuse_damaged(path, "a row does not fit its first line")
        return [*{row["epoch"]: row for row in rows}.values()]

    def on_epoch_begin(self, epoch, logs=None):
        reseed(self.model, self.seed, epoch)
        if self.batches is not None:
            self.batches.epoch = epoch

    def on_epoch_end(self, epoch, logs=None):
        losses = [value for name, value in logs.items() if name in ("loss", "val_loss")]
        if not np.isfinite(losses).all():
            raise SystemExit(
                f"the training diverged: loss {logs['loss']} after epoch {epoch + 1}. Lower the "
                "learning rate, which is an option or a constant, and choose another --output."
            )
        if hasattr(self.batches, "get_state"):
            write_text(self._path(epoch + 1, "json"), json.dumps(self.batches.get_state()))
        with whole_file(self._path(epoch + 1)) as temporary:
            self.model.save_weights(temporary)
        for old in self.folder.glob("epoch-[0-9]*"):
            if _epoch_of(old) <= epoch:
                remove(old)
        for name in ("seconds", "minutes_left"):  # the bar of Keras would print 0.0000e+00
            logs.pop(name)

    def _load(self, model, path):
        try:
            model.load_weights(path)
        except (OSError, ValueError) as error:
            refuse_damaged(path, f"damaged, or of another model: {error}")

    def _path(self, epoch, end="weights.h5"):
        return self.folder / f"epoch-{epoch:04d}.{end}"


def _epoch_of(path):
    return int(path.name.split(".")[0].removeprefix("epoch-"))


class Clock(keras.callbacks.Callback):
    """Measures epochs: `seconds` of the last one, and `steady`, all without tracing and compiling.

    In the first epoch of `fit`, a step that takes more than three times as long as the median step
    counts as a median step.
    """

    async_safe = True  # so Keras does not wait for the loss of every step

    def __init__(self):
        super().__init__()
        self.steady, self.extra = 0.0, None

    def on_train_begin(self, logs=None):
        self.extra = None

    def on_epoch_begin(self, epoch, logs=None):
        self.times, self.test_times = [time.perf_counter()], []

    def on_train_batch_end(self, batch, logs=None):
        self.times.append(time.perf_counter())

    def on_test_begin(self, logs=None):
        self.test_times = [time.perf_counter()]

    def on_test_batch_end(self, batch, logs=None):
        self.test_times.append(time.perf_counter())

    def on_epoch_end(self, epoch, logs=None):
        self.seconds, extra = time.perf_counter() - self.times[0], 0.0
        if self.extra is None:
            self.extra = extra = _slow_steps(self.times) + _slow_steps(self.test_times)
        self.steady += self.seconds - extra


def _slow_steps(times):
    """How many seconds the slow ones of some steps took longer than the median step."""
    steps = np.sort(np.diff(np.sort(times)))
    median = steps[(len(steps) - 1) // 2] if len(steps) else 0.0
    return float(np.sum(steps[steps > 3 * median] - median))


class Progress(Clock):
    """Tells how far a training is: in a log every minute and at the end, else after each epoch.

    Pass `verbose=int(sys.stdout.isatty())` to `fit`: a log needs no bars.

    Args:
        trainings: the number of models that train equally long, this one included; 0 if nobody
            knows how long they train. Logs the minutes left for the next callbacks.
    """

    def __init__(self, trainings=1):
        super().__init__()
        self.trainings, self.left, self.told = trainings, None, time.perf_counter()

    def on_epoch_begin(self, epoch, logs=None):
        if self.left and sys.stdout.isatty():
            print(time_left(self.left), flush=True)
        super().on_epoch_begin(epoch)

    def on_epoch_end(self, epoch, logs=None):
        before = self.steady
        super().on_epoch_end(epoch)
        epochs, trainings = self.params["epochs"], self.trainings
        left = (trainings * epochs - epoch - 1) * (self.steady - before)
        self.left = max(0.0, left + (trainings - 1) * self.extra)
        told = [f"{name} {value:.4g}" for name, value in logs.items()]
        told += [time_left(self.left)] if self.left else []
        logs |= {"seconds": self.seconds, "minutes_left": self.left / 60}
        enough = epoch + 1 == epochs or time.perf_counter() - self.told > 60
        if enough and not sys.stdout.isatty():
            print(f"epoch {epoch + 1} of {epochs}: {', '.join(told)}", flush=True)
            self.told = time.perf_counter()


def time_left(seconds):
    """The seconds that are left, in words."""
    return f"about {seconds / 60:.0f} min left" if seconds >= 60 else "less than a minute left"


def seed_model(seed):
    """Makes the next model independent of earlier models. Call it before building each model.

    On TensorFlow this deletes the resources of existing SentencePiece tokenizers. Make new
    tokenizers after it.
    """
    keras.utils.clear_session()
    keras.utils.set_random_seed(seed)


def reseed(model, seed, step):
    """Sets the state of every random generator in a model, above all of dropout, for a step.

    Keras does not save these states with the weights, and a resumed run needs them.
    """
    weights = {id(variable) for variable in model.weights}
    generators = [variable for variable in model.variables if id(variable) not in weights]
    for index, state in enumerate(generators):
        state.assign(np.random.default_rng([seed, step, index]).integers(2**31, size=state.shape))


def warmup_cosine(highest, steps, last):
    """Rises to `highest` in a tenth of the steps, at most 200, then falls as a cosine.

    Args:
        highest: the highest learning rate.
        steps: the number of training steps.
        last: the learning rate at the end, as a fraction of the highest.
    """
    warmup = min(200, steps // 10)
    return keras.optimizers.schedules.CosineDecay(
        0.0, steps - warmup, warmup_target=highest, warmup_steps=warmup, alpha=last
    )


def moving_average(momentum, steps):
    """The options of an optimizer for moving averages of the weights.

    Short trainings get a lower momentum, so that the initial weights make up at most 5% of the
    average: (1 - 3 / steps)^steps.
    """
    return {"use_ema": True, "ema_momentum": min(momentum, max(0.0, 1 - 3 / steps))}


def explain_ema(average, steps):
    """Says why `val_loss` is high in the first epochs, of so many steps each.

    Args:
        average: what `moving_average` returns.
        steps: the steps of an epoch.
    """
    # After this many steps half of an average is from the initial weights.
    half = math.log(0.5) / math.log(max(average["ema_momentum"], 1e-9))
    print(
        "val_loss is that of moving averages of the weights. The untrained weights make up most of "
        f"them until epoch {math.ceil(half / steps)}, so it begins far above the loss.",
        flush=True,
    )


def combine(left_to_right, right_to_left):
    """One model of two lists of models, of which one may be empty."""
    each = [x[0] if len(x) == 1 else Ensemble(x) for x in (left_to_right, right_to_left) if x]
    return BidirectionalEnsemble(*each) if len(each) == 2 else each[0]


def direction(backward):
    return "right to left" if backward else "left to right"
