"""What the scripts share: their options, the translator of written dates, and its training."""

import pathlib
import string

import keras

from examples.common.arguments import count, make_parser
from examples.common.dates import DAYS, END, START, encode_pairs, make_pairs
from examples.common.files import check_settings, own_folder, whole_file
from keras_attention import AttentionRNN, BahdanauAttention, RecurrentEncoder, Seq2Seq

CHARACTERS = "^$" + string.ascii_letters + string.digits + " ,.-/"
VOCABULARY = 72  # 8 devices can share it evenly


def script_parser(name, description):
    parser = make_parser(f"distribution.{name}", description)
    parser.add_argument("--epochs", type=count, default=3)
    parser.add_argument("--steps", type=count, default=50, help="steps in an epoch")
    parser.add_argument("--batch", type=count, default=64, help="pairs in a step, on all devices")
    parser.add_argument("--units", type=count, default=64)
    parser.add_argument(
        "--output",
        type=pathlib.Path,
        default=f"output/distribution-{name}",
        help="the folder of the checkpoint; the same command resumes from it",
    )
    return parser


def check_sizes(parser, options, shares):
    """Checks that there are enough pairs, and that all devices get the same number of them."""
    if options.batch * options.steps > DAYS:
        parser.error(
            f"--batch {options.batch} times --steps {options.steps} must be at most {DAYS:,}: "
            "every pair is a day of its own"
        )
    if options.batch % shares:
        parser.error(
            f"--batch {options.batch} must be a multiple of {shares}, the number of devices that "
            "share it"
        )


def build_translator(units):
    """An encoder of both directions, and a decoder that attends to it at every step."""
    embedding = keras.layers.Embedding(VOCABULARY, units, name="source_embedding")
    gru = keras.layers.GRU(units, return_sequences=True)
    model = Seq2Seq(
        RecurrentEncoder(embedding, keras.layers.Bidirectional(gru)),
        AttentionRNN(keras.layers.GRUCell(2 * units), BahdanauAttention(units)),
        keras.layers.Embedding(VOCABULARY, units, name="target_embedding"),
        keras.layers.Dense(VOCABULARY, name="logits"),
        start_token=START,
        end_token=END,
    )
    model.compile(keras.optimizers.Adam(0.003))
    # A checkpoint can only be read into a model that has its weights.
    ids = keras.Input((None,), dtype="int32")
    model((ids, ids))
    return model


def train(options, process=0, processes=1):
    """Trains a translator under the distribution or strategy that is set. Returns the model.

    Each process reads its share of every batch; process 0 alone writes.
    """
    keras.utils.set_random_seed(0)
    saved = Saved(options.output / "last.weights.h5", options.steps)
    if process == 0:
        own_folder(options.output)
        settings = {name: getattr(options, name) for name in ("steps", "batch", "units")}
        check_settings(options.output / "settings.json", settings)
    model = build_translator(options.units)
    first = saved.restore(model)
    [pairs] = make_pairs([options.batch * options.steps])
    source, target = (x[process::processes] for x in encode_pairs(*pairs, CHARACTERS))
    log = keras.callbacks.CSVLogger(str(options.output / "log.csv"), append=True)
    model.fit(
        source,
        target,
        batch_size=options.batch // processes,
        shuffle=False,
        epochs=options.epochs,
        initial_epoch=first,
        callbacks=[log, saved] if process == 0 else None,
        verbose=2 if process == 0 else 0,
    )
    return model


class Saved(keras.callbacks.Callback):
    """Saves the weights after each epoch, with the state of the optimizer, into one file.

    `keras.callbacks.BackupAndRestore` does so on one machine. If it is killed between its two
    files, it trains an epoch twice.
    """

    def __init__(self, path, steps):
        super().__init__()
        self.path, self.steps = path, steps

    def restore(self, model):
        """Loads the last weights. Returns the number of their epochs."""
        if not self.path.exists():
            return 0
        model.optimizer.build(model.trainable_variables)
        model.load_weights(self.path)
        epochs = int(model.optimizer.iterations.numpy()) // self.steps
        print(f"Resuming after epoch {epochs}", flush=True)
        return epochs

    def on_epoch_end(self, epoch, logs=None):
        # Keras makes a variable when it saves the first time. Under a distribution, that would wait
        # for all processes.
        distribution = keras.distribution.distribution()
        keras.distribution.set_distribution(None)
        with whole_file(self.path) as temporary:
            self.model.save_weights(temporary)
        keras.distribution.set_distribution(distribution)
