"""Searches the attention of a date translator with keras-tuner.

    python -m examples.tuning

reads "the third of May, 1998" letter by letter and writes "1998-05-03" with an `AttentionRNN`.
Hyperband and Bayesian optimisation search the mechanism, score, alignment, window, units, dropout
and normalizer of its attention, the width of the decoder, and the learning rate. Then the best and
the default configuration are trained for the same number of epochs and tested on unseen dates. This
takes five to seven minutes on two cores, and the best one is far ahead. An interrupted search
resumes when the same command is run again. A trial that fails stops the search with its cause.

    python -m examples.tuning --distributed 2

runs every search with a chief and two workers, as processes of this machine. If one of them dies,
or after `--timeout` seconds, the search ends with a message and keeps all finished trials.

Needs keras-tuner: pip install "keras-attention-layers[tuner]".
"""

import argparse
import pathlib
import signal
import sys

from examples.common import dates
from examples.common.arguments import check_at_least_one, check_seed, fill, make_parser
from examples.common.extras import check_extras
from examples.common.files import make_folder
from examples.common.results import Results
from examples.tuning.comparison import compare
from examples.tuning.data import load_data
from examples.tuning.distributed import follow_parent, search_distributed
from examples.tuning.search import SEARCHES, open_tuner, search
from examples.tuning.tuner_files import kept


def parse(argv):
    parser = make_parser("tuning", __doc__)
    parser.add_argument(
        "--output",
        type=pathlib.Path,
        default=pathlib.Path("output/tune"),
        help="folder for the results (default: output/tune)",
    )
    parser.add_argument("--searches", nargs="+", choices=SEARCHES, default=list(SEARCHES))
    parser.add_argument("--epochs", type=int, help="largest number for a trial (default: 4)")
    parser.add_argument("--trials", type=int, help="of the Bayesian search (default: 5)")
    parser.add_argument("--pairs", type=int, help="number of training pairs (default: 2560)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--distributed", type=int, metavar="N", help="number of workers")
    parser.add_argument(
        "--timeout", type=float, help="seconds for a distributed search (default: 1800)"
    )
    parser.add_argument("--smoke", action="store_true", help="the shortest run that searches")
    parser.add_argument("--part", choices=SEARCHES, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    check_at_least_one(parser, options, ("epochs", "trials", "pairs", "distributed"))
    check_seed(parser, options)
    most = (dates.LAST - dates.FIRST).days + 1 - 1500
    if (options.pairs or 0) > most:
        parser.error(f"--pairs must be at most {most:,}: there are no more dates")
    if options.timeout is not None:
        if not options.distributed:
            parser.error("--timeout goes with --distributed")
        if not options.timeout > 0:
            parser.error("--timeout must be positive")
    options.timeout = options.timeout or 1800.0
    # Whole batches: XLA compiles the decoder once more for a smaller last one.
    smallest, usual = (2, 2, 512), (4, 5, 2560)
    sizes = smallest if options.smoke else usual
    return fill(options, dict(zip(("epochs", "trials", "pairs"), sizes, strict=True)))


def settings_of(options):
    """The settings that must be the same when a search resumes."""
    settings = {name: getattr(options, name) for name in ("epochs", "trials", "pairs", "seed")}
    # A distributed search and a local one do not find the trials of each other.
    return {**settings, "distributed": bool(options.distributed)}


def main(argv=None):
    argv = sys.argv[1:] if argv is None else argv
    options = parse(argv)
    # SIGTERM acts as Ctrl-C, so that the processes of a distributed search are stopped too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if options.part:
        follow_parent()
    check_extras("keras_tuner", "tensorboard", "scipy", "sklearn", extra="tuner")
    data = load_data([options.pairs, 500, 1000], options.seed)
    if options.part:
        search(options.part, options, data)
        return
    make_folder(options.output)
    for name in (*options.searches, *(["logs"] if options.distributed else [])):
        make_folder(options.output / name)
    results = Results(options.output / "results.json", settings_of(options))
    results.save()
    tuners = {}
    for name in options.searches:
        if options.distributed:
            search_distributed(name, options, argv)
            tuners[name] = open_tuner(name, options)
            # The chief has searched, so its files are read again.
            tuners[name].oracle.reload()
            continue
        try:
            tuners[name] = search(name, options, data)
        except KeyboardInterrupt:
            raise SystemExit(kept(options, name, "interrupted")) from None
    try:
        shares = compare(tuners, options, data, results)
    except KeyboardInterrupt:
        raise SystemExit("interrupted; run the same command to resume the comparison") from None
    ahead = shares["best"] - shares["default"]
    print(f"The best configuration is ahead by {100 * ahead:.1f} points of letters.")
    if ahead <= 0:
        raise SystemExit("The search found nothing better than the default configuration.")


if __name__ == "__main__":
    main()
