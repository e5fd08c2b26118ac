"""What the scripts share: their options, the translator of written dates, and its training."""

import pathlib
import string

import keras

from examples.common.arguments import count, make_parser
from examples.common.dates import FIRST, LAST, make_pairs
from examples.common.files import check_settings, make_folder, remove, whole_file
from keras_attention import AttentionRNN, BahdanauAttention, RecurrentEncoder, Seq2Seq

CHARACTERS = "^$" + string.ascii_letters + string.digits + " ,.-/"  # "^" begins, "$" ends
VOCABULARY = 72  # 0 is padding, and 8 devices can share it evenly
START, END = 1, 2
LONGEST = 40  # characters of a written date


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


def parse(parser, argv, backend):
    """Reads the command line, and checks that Keras runs on this backend."""
    options, days = parser.parse_args(argv), (LAST - FIRST).days + 1
    if options.batch * options.steps > days:
        parser.error(
            f"--batch {options.batch} times --steps {options.steps} must be at most {days:,}: "
            "every pair is a day of its own"
        )
    if keras.backend.backend() != backend:
        parser.error(f"Keras runs on {keras.backend.backend()}. Set KERAS_BACKEND={backend}.")
    return options


def check_batch(parser, options, shares):
    """Checks that all devices get the same number of pairs."""
    if options.batch % shares:
        parser.error(
            f"--batch {options.batch} must be a multiple of {shares}, the number of devices that "
            "share it"
        )


def make_data(size):
    """Makes ids of written dates, and of ISO dates. All have one length, so XLA compiles once."""
    [(sources, targets)] = make_pairs([size])
    return _encode(sources, LONGEST), _encode([target + "$" for target in targets])


def _encode(texts, length=None):
    ids = [[CHARACTERS.index(character) + 1 for character in text] for text in texts]
    return keras.utils.pad_sequences(ids, length, padding="post")


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
    model((keras.Input((LONGEST,), dtype="int32"), keras.Input((11,), dtype="int32")))
    return model


def train(options, process=0, processes=1):
    """Trains a translator under the distribution or strategy that is set. Returns the model.

    Each process reads its share of every batch; process 0 alone writes.
    """
    keras.utils.set_random_seed(0)
    saved = Saved(options.output)
    if process == 0:
        settings = {name: getattr(options, name) for name in ("steps", "batch", "units")}
        check_settings(options.output / "settings.json", settings)
    model = build_translator(options.units)
    first = saved.restore(model)
    pairs = make_data(options.batch * options.steps)
    share = options.batch // processes
    batches = [x.reshape(options.steps, processes, share, -1) for x in pairs]
    source, target = (x[:, process].reshape(options.steps * share, -1) for x in batches)
    log = keras.callbacks.CSVLogger(str(options.output / "log.csv"), append=True)
    model.fit(
        source,
        target,
        batch_size=share,
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

    def __init__(self, folder):
        super().__init__()
        self.folder = make_folder(folder)

    def restore(self, model):
        """Loads the last weights. Returns the number of their epochs."""
        # From epoch 10,000 on, the last name in alphabetical order is not of the last epoch.
        paths = self.folder.glob("epoch-*.weights.h5")
        saved = {int(path.name.split(".")[0].removeprefix("epoch-")): path for path in paths}
        if not saved:
            return 0
        epochs = max(saved)
        model.optimizer.build(model.trainable_variables)
        model.load_weights(saved[epochs])
        print(f"Resuming after epoch {epochs}", flush=True)
        return epochs

    def on_epoch_end(self, epoch, logs=None):
        # Keras makes a variable when it saves the first time. Under a distribution, that would wait
        # for all processes.
        distribution = keras.distribution.distribution()
        keras.distribution.set_distribution(None)
        with whole_file(self.folder / f"epoch-{epoch + 1:04d}.weights.h5") as temporary:
            self.model.save_weights(temporary)
        keras.distribution.set_distribution(distribution)
        remove(self.folder / f"epoch-{epoch:04d}.weights.h5")
