"""Batches for `fit`, seeds, learning rates, models in files, and states to resume from."""

import csv
import itertools
import pathlib
import sys

import keras
import numpy as np
import tensorflow as tf

from examples.common.files import check_settings, make_folder, refuse_damaged, whole_file
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
DIRECTIONS = "left to right", "right to left"
VERBOSE = 1 if sys.stdout.isatty() else 2  # of `fit`: a log needs no bars


def bucketed(lengths, size, order=None, cells=None):
    """Splits `range(len(lengths))` into index arrays of at most `size`, which hold every index
    once.

    `lengths` are `(N,)` or `(N, keys)`, the sort keys; the last column counts first. With `order`,
    a NumPy generator, samples are shuffled, sorted within pools of `POOL` batches, and the batches
    are shuffled again; else everything is sorted. `cells` limits the cells of a padded batch, if
    the keys are the sizes of all padded axes; they are then sorted by their product.
    """
    sizes = keys = np.column_stack([lengths])
    if cells:
        keys = np.column_stack([sizes, sizes.prod(axis=1)])
    index = np.arange(len(keys)) if order is None else order.permutation(len(keys))
    pool, batches = max(len(index), 1) if order is None else POOL * size, []
    for start in range(0, len(index), pool):
        part = index[start : start + pool]
        part = part[np.lexsort(keys[part].T)]
        while len(part):
            count = size
            if cells:  # the padded size grows with every sample
                widest = np.maximum.accumulate(sizes[part[:size]]).prod(axis=1)
                count = max(1, np.sum(widest * np.arange(1, len(widest) + 1) <= cells))
            batches.append(part[:count])
            part = part[count:]
    if order is not None:
        order.shuffle(batches)
    return batches


class Batches:
    """Batches for `fit`, out of endless passes over the data, each in an order of its own.

    The order of a pass depends on the seed and the number of the pass alone, so a run that resumes
    reads what the first run would have read. `Resume` sets `epoch`, the epoch to yield.

    `split` turns a NumPy generator into a list of index arrays, the batches of one pass, and `read`
    turns one of them into a batch, such as `(inputs, targets)`. An epoch of `fit` has so many
    `steps`, by default those of the first pass. If all batches have the same `size`, and TensorFlow
    knows it, recurrent layers are faster.
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
        """A `tf.data.Dataset` of one epoch. `fit` would take the lengths of two batches for all."""
        signature = keras.tree.map_structure(self._describe, next(self()))
        data = tf.data.Dataset.from_generator(self, output_signature=signature)
        data = data.apply(tf.data.experimental.assert_cardinality(self.steps)).prefetch(4)
        return data.with_options(UNTUNED)

    def _describe(self, x):
        """The sizes that all batches share: `size`, and the features of a step `(B, T, D)`."""
        features = x.shape[2:] if x.dtype.kind == "f" else (None,) * (x.ndim - 2)
        return tf.TensorSpec((self.size, None)[: x.ndim] + features, x.dtype)


def pair_batches(pairs, size, seed=None, steps=None):
    """`Batches` of pairs of lists of ids of similar lengths. Without a seed, they stay sorted."""

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
    """Pads lists of ids with 0 to one length: a multiple, so that XLA compiles few programs."""
    length = max(1, *map(len, rows))
    return keras.utils.pad_sequences(rows, -(-length // multiple) * multiple, padding="post")


class Resume(keras.callbacks.Callback):
    """Lets a run that was killed at any moment go on, and end with the same weights.

    `keras.callbacks.BackupAndRestore` writes the weights and the epoch into two files, so a kill
    between the two trains an epoch twice; it restores no batch within an epoch and no state of
    dropout. Here one file holds an epoch, and appears in one step: the optimizer counts the steps.

    The folder is for this run alone, and refused if it is of a run with other `settings`:
    everything that the weights depend on, as JSON can store it.
    """

    def __init__(self, folder, settings, batches):
        super().__init__()
        self.folder, self.batches = make_folder(pathlib.Path(folder)), batches
        self.path, self.seed = self.folder / "last.weights.h5", settings["seed"]
        check_settings(self.folder / "settings.json", settings)

    def restore(self, model):
        """Loads the last saved weights into a compiled model. Returns the number of its epochs."""
        if not self.path.exists():
            return 0
        model.optimizer.build(model.trainable_variables)
        self._load(model, self.path)
        epoch = int(model.optimizer.iterations.numpy()) // self.batches.steps
        changed = "delete it if you have changed the model"
        print(f"Resuming after epoch {epoch:,} of {self.folder} ({changed})", flush=True)
        return epoch

    def callbacks(self, monitor=None):
        """The callbacks of `fit`: the best weights by a loss to `monitor`, a log, and the states.

        The states come last. A run killed between two callbacks repeats its epoch for both.
        """
        log = keras.callbacks.CSVLogger(str(self.folder / "log.csv"), append=True)
        if not monitor:
            return [log, self]
        options = {"save_best_only": True, "save_weights_only": True}
        options["initial_value_threshold"] = min(self.losses(monitor).values(), default=None)
        best = str(self.folder / "best.weights.h5")
        return [keras.callbacks.ModelCheckpoint(best, monitor, mode="min", **options), log, self]

    def fit(self, model, epochs, valid=None, monitor=None, callbacks=()):
        """Fits a compiled model to the batches until it has had so many epochs."""
        model.fit(
            self.batches.dataset(),
            validation_data=valid,
            epochs=epochs,
            initial_epoch=self.restore(model),
            callbacks=[*callbacks, *self.callbacks(monitor)],
            shuffle=False,  # the batches are shuffled
            verbose=VERBOSE,
        )

    def load_best(self, model):
        self._load(model, self.folder / "best.weights.h5")

    def losses(self, monitor):
        """What the log says of each finished epoch, by its number."""
        path = self.folder / "log.csv"
        if not path.exists():
            return {}
        try:
            with open(path, newline="", encoding="utf-8") as file:
                return {int(row["epoch"]): float(row[monitor]) for row in csv.DictReader(file)}
        except (KeyError, TypeError, ValueError) as error:
            refuse_damaged(path, f"a row does not fit its first line: {error}")

    def on_epoch_begin(self, epoch, logs=None):
        reseed(self.model, self.seed, epoch)
        self.batches.epoch = epoch

    def on_epoch_end(self, epoch, logs=None):
        if not np.isfinite([logs["loss"], logs.get("val_loss", 0)]).all():
            remedy = "Lower the learning rate, an option or a constant, and choose another --output"
            loss = f"loss {logs['loss']} after epoch {epoch + 1}"
            raise SystemExit(f"the training diverged: {loss}. {remedy}.")
        with whole_file(self.path) as temporary:
            self.model.save_weights(temporary)

    def _load(self, model, path):
        try:
            model.load_weights(path)
        except (OSError, ValueError) as error:
            refuse_damaged(path, f"damaged, or of another model: {error}")


def seed_model(seed):
    """Makes the next model independent of earlier ones. Call it before building each model."""
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
    """Rises to `highest` in a tenth of the steps, at most 200, then falls to its share `last`."""
    warmup = min(200, steps // 10)
    options = {"warmup_target": highest, "warmup_steps": warmup, "alpha": last}
    return keras.optimizers.schedules.CosineDecay(0.0, steps - warmup, **options)


def moving_average(momentum, steps):
    """The options of an optimizer for moving averages of the weights.

    The initial weights make up at most 5% of the average: (1 - 3 / steps)^steps.
    """
    return {"use_ema": True, "ema_momentum": min(momentum, max(0.0, 1 - 3 / steps))}


def combine(left_to_right, right_to_left):
    """One model of two lists of models, of which one may be empty."""
    each = [x[0] if len(x) == 1 else Ensemble(x) for x in (left_to_right, right_to_left) if x]
    return BidirectionalEnsemble(*each) if len(each) == 2 else each[0]


def write_model(model, path, inputs):
    """Writes a `.keras` file. An earlier file is replaced when the new one is complete.

    The model that is loaded from it must have exactly the same weights and, but for rounding, the
    same predictions for the inputs. Returns these.
    """
    found = model.predict_on_batch(inputs)  # Keras warns of a model that was never called
    with whole_file(path) as temporary:
        model.save(temporary)
    loaded = keras.saving.load_model(path)
    weights = zip(model.get_weights(), loaded.get_weights(), strict=True)
    if not all(np.array_equal(x, y, equal_nan=True) for x, y in weights):
        raise SystemExit(f"{path} has other weights than the model that was saved")
    again = loaded.predict_on_batch(inputs)
    gaps = keras.tree.map_structure(lambda x, y: np.abs(x - y).max(), found, again)
    difference = np.max(keras.tree.flatten(gaps))  # unlike max(), it returns NaN if there is one
    # Not 0: TensorFlow optimises a graph for any length and one for this length differently.
    largest = max(np.abs(x).max() for x in keras.tree.flatten(found))
    if not difference <= 1e-5 * max(largest, 1):
        raise SystemExit(f"{path} differs by {difference:g} from the model that was saved")
    print(f"\n{path}: difference after reloading {difference:g}")
    return found
