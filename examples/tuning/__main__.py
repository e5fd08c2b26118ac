"""Searches the attention of a date translator with keras-tuner.

    python -m examples.tuning

searches mechanism, score, alignment, window, units, dropout and normalizer of the attention, the
width of the decoder, and the learning rate, with Hyperband and Bayesian optimisation. Then the best
and the default configuration are trained for the same number of epochs and tested on unseen dates.
This takes five to seven minutes on two cores. The same command resumes an interrupted search.

    python -m examples.tuning --distributed 2

runs every search with a chief and two workers, as processes of this machine. For several machines,
start the first command on each, with the environment variables that keras-tuner names
(KERASTUNER_TUNER_ID and so on) and one --output on a shared disk.

Needs keras-tuner: pip install "keras-attention-layers[tuner]".
"""

import os
import pathlib
import sys

from examples.common import dates
from examples.common.arguments import between, check_extras, count, fill, make_parser, run, seed
from examples.common.files import Results, make_folder
from examples.tuning.data import load_data

SEARCHES = ("hyperband", "bayesian")


def parse(argv):
    parser = make_parser("tuning", __doc__)
    output = pathlib.Path("output/tune")
    parser.add_argument("--output", type=pathlib.Path, default=output, help=f"default: {output}")
    parser.add_argument("--searches", nargs="+", choices=SEARCHES, default=SEARCHES)
    parser.add_argument("--epochs", type=count, help="largest number for a trial (default: 4)")
    parser.add_argument("--trials", type=count, help="of the Bayesian search (default: 5)")
    # The pairs of validation and test have other dates.
    pairs = between(int, 1, (dates.LAST - dates.FIRST).days + 1 - 1500, closed=True)
    parser.add_argument("--pairs", type=pairs, help="number of training pairs (default: 2560)")
    parser.add_argument("--seed", type=seed, default=0)
    parser.add_argument("--distributed", type=count, metavar="N", help="number of workers")
    parser.add_argument("--smoke", action="store_true", help="the shortest run that searches")
    options = parser.parse_args(argv)
    # Whole batches: XLA compiles the decoder once more for a smaller last one.
    sizes = (2, 2, 512) if options.smoke else (4, 5, 2560)
    return fill(options, dict(zip(("epochs", "trials", "pairs"), sizes, strict=True)))


def main(argv=None):
    argv = sys.argv[1:] if argv is None else argv
    options = parse(argv)
    check_extras("keras_tuner", "tensorboard", "scipy", "sklearn", extra="tuner")
    from examples.tuning.evaluation import compare
    from examples.tuning.search import make_tuner, search_distributed

    make_folder(options.output)
    part = "KERASTUNER_TUNER_ID" in os.environ
    settings = {name: getattr(options, name) for name in ("epochs", "trials", "pairs", "seed")}
    # A distributed search and a local one do not find the trials of each other.
    settings["distributed"] = part or bool(options.distributed)
    results = Results(options.output / "results.json", settings)
    train, validation, test = load_data([options.pairs, 500, 1000], options.seed)
    tuners = {}
    for name in options.searches:
        if options.distributed and not part:
            search_distributed(name, options.distributed, argv)
        # After a distributed search, its trials are in the folder, and `search` has nothing to do.
        tuners[name] = make_tuner(name, options)
        tuners[name].search(
            *train,
            validation_data=validation,
            epochs=options.epochs,
            batch_size=32,
            verbose=1 if sys.stdout.isatty() else 2,
        )
    if part:
        return
    shares = compare(tuners, options, train, test, results)
    ahead = shares["best"] - shares["default"]
    print(f"The best configuration is ahead by {100 * ahead:.1f} points of letters.")
    if ahead <= 0:
        raise SystemExit("The search found nothing better than the default configuration.")


if __name__ == "__main__":
    run(main)
