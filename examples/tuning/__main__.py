"""Searches the attention of a date translator with keras-tuner.

    python -m examples.tuning

searches mechanism, score, units, dropout and normalizer of the attention, the width of the decoder,
and the learning rate, with Hyperband and Bayesian optimisation. Then the best and the default
configuration are trained for the same number of epochs and tested on unseen dates.
This takes five to seven minutes on two cores. The same command resumes an interrupted search.

Needs keras-tuner: pip install "keras-attention-layers[tuner]".
"""

import functools
import pathlib
import sys
import warnings

import keras
import keras_tuner

from examples.common.arguments import between, check_extras, count, make_parser, run, seed
from examples.common.dates import DAYS
from examples.common.files import check_settings, own_folder
from examples.tuning.model import build, load_data
from keras_attention.tuning import completed_trials

SEARCHES = ("hyperband", "bayesian")


def parse(argv):
    parser = make_parser("tuning", __doc__)
    output = pathlib.Path("output/tune")
    parser.add_argument("--output", type=pathlib.Path, default=output, help=f"default: {output}")
    parser.add_argument("--searches", nargs="+", choices=SEARCHES, default=SEARCHES)
    parser.add_argument("--epochs", type=count, default=4, help="of a trial at most (default: 4)")
    parser.add_argument("--trials", type=count, default=5, help="Bayesian trials (default: 5)")
    # The pairs of validation and test have other dates.
    pairs = between(int, 1, DAYS + 1 - 1500)
    # Whole batches: XLA compiles the decoder once more for a smaller last one.
    parser.add_argument("--pairs", type=pairs, default=2560, help="to train on (default: 2560)")
    parser.add_argument("--seed", type=seed, default=0)
    return parser.parse_args(argv)


def make_tuner(name, options):
    """The tuner of one search. It resumes after the finished trials in its folder."""
    keras.utils.set_random_seed(options.seed)  # with a seed of 0 keras-tuner draws one
    common = {
        "hypermodel": functools.partial(build, seed=options.seed),
        "objective": "val_accuracy",
        "directory": str(options.output),
        "project_name": name,
        "seed": options.seed,
        # The first failure ends the search, so that no failure is hidden.
        "max_consecutive_failed_trials": 1,
    }
    if name == "hyperband":
        # It continues with the weights of an earlier trial, but not with its optimizer.
        warnings.filterwarnings("ignore", "Skipping variable loading for optimizer")
        return keras_tuner.Hyperband(max_epochs=options.epochs, factor=3, **common)
    return keras_tuner.BayesianOptimization(
        max_trials=options.trials, num_initial_points=3, **common
    )


def find_best(tuners):
    """Prints all trials, and returns the hyperparameters of the best one."""
    best = []
    for name, tuner in tuners.items():
        trials = completed_trials(tuner)
        print(f"\n{name}, {len(trials)} trials, all completed:")
        print(f"{'trial':>6} {'letters right':>13} {'epochs':>7}  configuration")
        for trial in trials:
            epochs = trial.hyperparameters.values.get("tuner/epochs", "")
            shown = describe(trial.hyperparameters)
            print(f"{trial.trial_id:>6} {trial.score:13.3f} {epochs:>7}  {shown}")
        best.append(trials[0])
    return max(best, key=lambda trial: trial.score).hyperparameters


def describe(hp):
    """The hyperparameters that a configuration uses, in one line."""
    used = {x.name: hp.values[x.name] for x in hp.space if hp.is_active(x)}
    shown = {name: f"{x:.4g}" if isinstance(x, float) else x for name, x in used.items()}
    return ", ".join(f"{name} {x}" for name, x in shown.items())


def main(argv=None):
    options = parse(argv)
    check_extras("tensorboard", "scipy", "sklearn", extra="tuner")
    own_folder(options.output)
    settings = {name: getattr(options, name) for name in ("epochs", "trials", "pairs", "seed")}
    check_settings(options.output / "settings.json", settings)
    train, validation, test = load_data([options.pairs, 500, 1000], options.seed)
    tuners = {name: make_tuner(name, options) for name in options.searches}
    for tuner in tuners.values():
        tuner.search(
            *train,
            validation_data=validation,
            epochs=options.epochs,
            batch_size=32,
            verbose=1 if sys.stdout.isatty() else 2,
        )
    default = keras_tuner.HyperParameters()
    build(default, options.seed)  # registers the search space
    configurations, letters = {"default": default, "best": find_best(tuners)}, {}
    print(f"\nTrained again for {options.epochs} epochs. Right in {len(test[1]):,} unseen dates:")
    for title, hp in configurations.items():
        model = build(hp, options.seed)
        model.fit(*train, epochs=options.epochs, batch_size=32, verbose=0)
        right = model.evaluate(*test, verbose=0, return_dict=True)
        letters[title], whole = right["accuracy"], right["right_dates"]
        shares = f"letters {letters[title]:.3f}, whole dates {whole:.3f}"
        print(f"{title:>8}: {shares}  ({describe(hp)})", flush=True)
    ahead = letters["best"] - letters["default"]
    print(f"The best configuration is ahead by {100 * ahead:.1f} points of letters.")
    if ahead <= 0:
        raise SystemExit("The search found nothing better than the default configuration.")


if __name__ == "__main__":
    run(main)
