"""What the scripts share: their options, and a training that resumes from its checkpoint."""

import pathlib

import keras

from examples.common.arguments import check_at_least_one, make_parser
from examples.common.checkpoint import Checkpoint
from examples.common.dates import FIRST, LAST
from examples.distribution.translator import build_translator, make_data

NUMBERS = ("epochs", "steps", "batch", "units")


def script_parser(name, description):
    parser = make_parser(f"distribution.{name}", description)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=50, help="steps in an epoch")
    parser.add_argument("--batch", type=int, default=64, help="pairs in a step, on all devices")
    parser.add_argument("--units", type=int, default=64)
    parser.add_argument(
        "--output",
        type=pathlib.Path,
        default=pathlib.Path("output") / f"distribution-{name}",
        help="the folder of the checkpoint; the same command resumes from it",
    )
    return parser


def parse(parser, argv, *more):
    """Parses the command line. `more` are further options that must be at least 1."""
    options = parser.parse_args(argv)
    check_at_least_one(parser, options, (*NUMBERS, *more))
    days = (LAST - FIRST).days + 1
    if options.batch * options.steps > days:
        parser.error(
            f"--batch {options.batch} times --steps {options.steps} must be at most {days:,}: "
            "every pair is a day of its own"
        )
    return options


def check_backend(wanted):
    if keras.backend.backend() != wanted:
        raise SystemExit(
            f"This script needs KERAS_BACKEND={wanted}; Keras runs on {keras.backend.backend()}."
        )


def check_batch(parser, options, shares):
    """Checks that all devices get the same number of pairs."""
    if options.batch % shares:
        parser.error(
            f"--batch {options.batch} must be a multiple of {shares}, the number of devices that "
            "share it"
        )


def train(options, process=0, processes=1, restored=None):
    """Trains a translator under the distribution or strategy that is set.

    Args:
        options: the command line.
        process, processes: the number of this process and of all. Each reads its share of every
            batch; process 0 alone writes the checkpoint.
        restored: called with the number of epochs in the checkpoint, before the training.

    Returns:
        The model.
    """
    keras.utils.set_random_seed(0)
    model = build_translator(options.units)
    arguments = {name: getattr(options, name) for name in NUMBERS if name != "epochs"}
    checkpoint = Checkpoint(options.output, arguments)
    first = checkpoint.restore(model)
    if restored is not None:
        restored(first)
    pairs = make_data(options.batch * options.steps)
    share = options.batch // processes
    batches = [x.reshape(options.steps, processes, share, -1) for x in pairs]
    source, target = (x[:, process].reshape(options.steps * share, -1) for x in batches)
    if first >= options.epochs and process == 0:
        print(f"--epochs {options.epochs}: nothing to do")
    for epoch in range(first + 1, options.epochs + 1):
        found = model.fit(source, target, batch_size=share, epochs=1, shuffle=False, verbose=0)
        loss = float(found.history["loss"][0])
        if process == 0:
            save_alone(checkpoint, model, {"epoch": epoch, "loss": loss})
            print(f"epoch {epoch}: loss {loss:.6f}", flush=True)
    return model


def save_alone(checkpoint, model, entry):
    """Saves the state in this process, while the others continue.

    Keras makes a variable when it saves the first time. Under a distribution, that would wait for
    all processes.
    """
    distribution = keras.distribution.distribution()
    keras.distribution.set_distribution(None)
    try:
        checkpoint.save(model, entry)
    finally:
        keras.distribution.set_distribution(distribution)
