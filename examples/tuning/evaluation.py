"""Compares the best configuration of the searches with the default one."""

import keras_tuner

from examples.tuning.model import DateTranslator
from keras_attention.tuning import completed_trials


def compare(tuners, options, train, test, results):
    """Trains the best and the default configuration alike. Returns their shares of letters."""
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
    default = keras_tuner.HyperParameters()
    DateTranslator(options.seed).build(default)  # registers the search space
    winner = max(best, key=lambda trial: trial.score).hyperparameters
    shares = {}
    print(f"\nTrained again for {options.epochs} epochs. Right in {len(test[1]):,} unseen dates:")
    for title, hp in (("default", default), ("best", winner)):
        found = results.find(title=title, values=hp.values)
        if found is None:
            model = DateTranslator(options.seed).build(hp)
            model.fit(*train, epochs=options.epochs, batch_size=32, verbose=0)
            right = model.evaluate(*test, verbose=0, return_dict=True)
            shares_of = {"letters": right["accuracy"], "dates": right["right_dates"]}
            found = {"title": title, "values": hp.values, **shares_of}
            results.add(found)
        shares[title] = found["letters"]
        print(
            f"{title:>8}: letters {found['letters']:.3f}, whole dates {found['dates']:.3f}  "
            f"({describe(hp)})",
            flush=True,
        )
    return shares


def describe(hp):
    """The hyperparameters that a configuration uses, in one line."""
    used = {x.name: hp.values[x.name] for x in hp.space if hp.is_active(x)}
    shown = {name: f"{x:.4g}" if isinstance(x, float) else x for name, x in used.items()}
    return ", ".join(f"{name} {x}" for name, x in shown.items())
