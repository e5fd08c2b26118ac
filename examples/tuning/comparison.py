"""Compares the best configuration of the searches with the default one."""

from examples.common.seeds import seed_model
from examples.tuning.model import make_hypermodel


def compare(tuners, options, data, results):
    """Trains the best and the default configuration alike. Returns their shares of letters."""
    import keras_tuner

    from keras_attention.tuning import completed_trials

    best = {}
    for name, tuner in tuners.items():
        try:
            trials = completed_trials(tuner)
        except RuntimeError as error:
            raise SystemExit(
                f"{name}: {error}\nA failed trial is not tried again. Delete "
                f"{options.output / name} to start the search again."
            ) from None
        print_trials(name, trials)
        best[name] = trials[0]
    winner = max(best.values(), key=lambda trial: trial.score).hyperparameters.values
    default = keras_tuner.HyperParameters()
    make_hypermodel().build(default)  # registers the search space
    shares = {}
    count = len(data[2][1])
    print(f"\nTrained again for {options.epochs} epochs. Right in {count:,} unseen dates:")
    for title, values in (("default", default.values), ("best", winner)):
        found = results.find(title=title, values=values)
        if found is None:
            found = {"title": title, "values": values, **train(values, options, data)}
            results.add(found)
        shares[title] = found["letters"]
        print(
            f"{title:>8}: letters {found['letters']:.3f}, whole dates {found['dates']:.3f}  "
            f"({describe(values)})",
            flush=True,
        )
    return shares


def train(values, options, data):
    """Trains a new model. Returns the shares of right letters and dates in the test data."""
    import keras_tuner

    seed_model(options.seed)
    hp = keras_tuner.HyperParameters()
    hp.values = dict(values)
    model = make_hypermodel().build(hp)
    model.fit(*data[0], epochs=options.epochs, batch_size=32, verbose=0)
    found = model.evaluate(*data[2], verbose=0, return_dict=True)
    return {"letters": found["accuracy"], "dates": found["right_dates"]}


def print_trials(name, trials):
    print(f"\n{name}, {len(trials)} trials, all completed:")
    print(f"{'trial':>6} {'letters right':>13} {'epochs':>7}  configuration")
    for trial in trials:
        values = trial.hyperparameters.values
        epochs = values.get("tuner/epochs", "")
        print(f"{trial.trial_id:>6} {trial.score:13.3f} {epochs:>7}  {describe(values)}")


def describe(values):
    """Hyperparameters in one line, without those that the mechanism does not use."""
    other = {"bahdanau": "luong", "luong": "bahdanau"}[values["attention_mechanism"]]
    skip = {
        "bahdanau": ("attention_units", "attention_weight_norm", "attention_use_bias"),
        "luong": (
            *("attention_score_mode", "attention_alignment", "attention_half_width"),
            *("attention_vector", "attention_vector_units"),
        ),
    }[other]
    shown = {
        name: value
        for name, value in values.items()
        if not name.startswith("tuner/") and name not in skip
    }
    if shown.get("attention_alignment") == "global":
        shown.pop("attention_half_width", None)
    if shown.get("attention_vector") is False:
        shown.pop("attention_vector_units", None)
    texts = []
    for name, value in shown.items():
        # The prefix stays only where it is needed: the decoder has units, too.
        short = name.removeprefix("attention_")
        short = name if short != name and short in shown else short
        texts.append(f"{short} {value:.4g}" if isinstance(value, float) else f"{short} {value}")
    return ", ".join(texts)
