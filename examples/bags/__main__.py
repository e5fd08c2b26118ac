"""Classes of bags of instances, and which instances decide (Ilse, Tomczak and Welling, 2018).

    python -m examples.bags

learns which bags of 10 to 60 images of digits hold a 9, from 200 bags whose images have no labels.
It compares gated attention with plain attention, mean pooling, max pooling, and scikit-learn on
pooled features. The largest weights lie on the nines. The command draws a bag, and writes a
`.keras` file and a SavedModel that takes one bag. Where the instances with the largest weights
matter no more than random ones, the picture says so.

    python -m examples.bags --data bags.csv --repeats 5

does the same on your bags by cross-validation. The file has a row for each instance: the columns
bag and label, and features. `--data FOLDER --labels labels.csv` reads an HDF5 file for each bag, as
CLAM and TRIDENT write them: a dataset `features`, and `coords` if you like. The same command
resumes a run that was stopped or killed. The files come from the first fold.
"""

import collections
import pathlib
import time

import keras
import numpy as np

from examples.bags import data, evaluation
from examples.bags.model import POOLINGS, build_model, restart
from examples.common import arguments as types
from examples.common.files import Results, fingerprint, make_folder, own_folder
from examples.common.records import add_record, write_record
from examples.common.training import Clock, reseed, time_left, warmup_cosine

TRAIN, TEST = 200, 500  # bags of digits
EPOCHS = 5  # the parts of a training
WEIGHT_DECAY = 0.1  # times the learning rate
FREE = ("data", "labels", "pooling", "repeats", "output", "record")


def parse(argv):
    parser = types.make_parser("bags", __doc__)
    add = parser.add_argument
    add("--data", metavar="PATH", help="your bags: a .csv, or a folder of .h5 (default: digits)")
    add("--labels", metavar="FILE", help="a .csv with the columns bag and label, for a folder")
    add("--pooling", nargs="+", choices=POOLINGS, default=list(POOLINGS), help="(all)")
    add("--folds", type=types.between(int, 2), default=10, help="(%(default)s)")
    add(
        "--repeats",
        type=types.count,
        default=1,
        help="of all folds, in another order (%(default)s)",
    )
    add("--seed", type=types.seed, default=1, help="of all random numbers (%(default)s)")
    add("--output", default="output/bags", help="folder for the results (%(default)s)")
    group = parser.add_argument_group("training")
    add = group.add_argument
    text = f"batches of a training (%(default)s); rounded up to a multiple of {EPOCHS}"
    add("--steps", type=types.count, default=500, help=text)
    add("--learning-rate", type=types.number, default=0.003, help="the highest (%(default)s)")
    add(
        "--hidden",
        nargs="*",
        type=types.count,
        default=[64],
        help="widths before the pooling (%(default)s)",
    )
    add("--drop-instances", type=types.share, help="share hidden in training (digits 0.3, else 0)")
    add("--members", type=types.count, default=5, help="networks that vote (%(default)s)")
    add_record(parser)
    options = parser.parse_args(argv)
    if options.data == "" or (options.labels and not options.data):
        parser.error("--data needs a path, and --labels needs --data")
    options.steps = EPOCHS * -(-options.steps // EPOCHS)
    return types.fill(options, {"drop_instances": 0.0 if options.data else 0.3})


def build(bags, pooling, options):
    """A compiled model, its reader, and a function that makes twins of the model."""
    sizes = bags.instances.shape[1], len(bags.classes), pooling, options.hidden
    sizes += options.drop_instances, options.members
    model, reader = build_model(*sizes)
    rate = warmup_cosine(options.learning_rate, options.steps, last=0.0)
    optimizer = keras.optimizers.AdamW(rate, weight_decay=WEIGHT_DECAY)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss)
    return model, reader, lambda: build_model(*sizes)[0]


def train(model, make_twin, bags, chosen, seed, options):
    """Fits a compiled model to some bags, from new weights. Returns its seconds after tracing."""
    keras.utils.set_random_seed(seed)
    restart(model, make_twin())
    reseed(model, seed, 0)
    batches = bags.training(chosen, options.members, options.steps // EPOCHS, seed)
    clock = Clock()  # the batches are shuffled
    model.fit(batches, epochs=EPOCHS, shuffle=False, verbose=0, callbacks=[clock])
    return clock.steady


def main(argv=None):
    options = parse(argv)
    types.check_extras("sklearn", "matplotlib")
    if options.data:
        bags, source = data.read(options.data, options.labels), options.data
    else:
        bags, source = data.make_digits(TRAIN, TEST, options.seed), "digits"
    data.check_classes(source, bags, options.folds)
    parts = [({"repeat": 1, "fold": 1}, *np.split(np.arange(TRAIN + TEST), [TRAIN]))]
    if options.data:
        parts = data.parts(bags, options.folds, options.repeats, options.seed)
    settings = {name: x for name, x in vars(options).items() if name not in FREE}
    settings |= {"bags": fingerprint(bags.instances, bags.sizes, bags.labels)}
    settings |= {"backend": keras.backend.backend()}
    output = own_folder(pathlib.Path(options.output))
    results = Results(output / "results.json", settings)
    models = {pooling: build(bags, pooling, options) for pooling in options.pooling}
    todo = ((x, names) for names, *_ in parts for x in models)
    left = collections.Counter(x for x, names in todo if not results.find(pooling=x, **names))
    left["baselines"], seconds = len(parts), {}
    try:
        for names, chosen, test in parts:
            scaled, scaling = bags.scaled(chosen)
            for pooling, (model, reader, make_twin) in models.items():
                if results.find(pooling=pooling, **names):
                    continue
                begin = time.perf_counter()
                seed = 1000 * (options.seed + names["repeat"]) + names["fold"]
                taken = train(model, make_twin, scaled, chosen, seed % 2**32, options)
                entry = evaluation.evaluate(reader, scaled, test)
                if names == {"repeat": 1, "fold": 1}:
                    folder = make_folder(output / pooling)
                    evaluation.save(reader, bags, scaled, test, scaling, folder)
                results.add({"pooling": pooling, **names, **entry})
                # The first time also traces the model, and saves it.
                seconds[pooling] = time.perf_counter() - begin if pooling in seconds else taken
                left[pooling] -= 1
                mean = np.mean([*seconds.values()])
                rest = time_left(sum(n * seconds.get(x, mean) for x, n in left.items()))
                place = f"repeat {names['repeat']}, fold {names['fold']} of {parts[-1][0]['fold']}"
                right = f"{entry['accuracy']:.1f}% right, {rest}"
                print(f"{pooling}, {place}: {right}", flush=True)
            begin = time.perf_counter()
            evaluation.add_baselines(results, names, scaled, chosen, test, options.seed)
            seconds["baselines"] = time.perf_counter() - begin
            left["baselines"] -= 1
    finally:  # after Ctrl-C too
        table = evaluation.report(results, options.pooling, bags)
    write_record(options.record, tables={"bags": table}, seeds=[options.seed])


if __name__ == "__main__":
    types.run(main)
