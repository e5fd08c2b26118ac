"""Classes of bags of instances, and which instances decide (Ilse, Tomczak and Welling, 2018).

    python -m examples.bags

learns which bags of 10 to 60 images of digits hold a 9, from 200 bags whose images have no labels.
It compares gated attention with plain attention, mean pooling, max pooling, and scikit-learn on
pooled features. The largest weights lie on the nines. The command draws a bag, and writes a
`.keras` file. Where the instances with the largest weights matter no more than random ones, the
picture says so.

    python -m examples.bags --data bags.csv --repeats 5

does the same on your bags by cross-validation. The file has a row for each instance: the columns
bag and label, and features. The same command resumes a run that was stopped or killed. The files
come from the first fold.
"""

import pathlib

import keras
import numpy as np

from examples.bags import data, evaluation
from examples.bags.model import POOLINGS, build_model, restart
from examples.common import arguments as types
from examples.common.files import Results, check_classes, fingerprint, make_folder, own_folder
from examples.common.records import add_record, write_record
from examples.common.training import reseed, warmup_cosine

TRAIN, TEST = 200, 500  # bags of digits
EPOCHS, STEPS = 5, 100  # a training has five parts
LEARNING_RATE, WEIGHT_DECAY = 0.003, 0.1  # the highest; times the learning rate
HIDDEN, MEMBERS = (64,), 5  # widths before the pooling; networks that vote
FREE = ("data", "pooling", "repeats", "output", "record")


def parse(argv):
    parser = types.make_parser("bags", __doc__)
    add = parser.add_argument
    add("--data", metavar="FILE.csv", help="your bags (default: digits)")
    add("--pooling", nargs="+", choices=POOLINGS, default=list(POOLINGS), help="(all)")
    add("--folds", type=types.between(int, 2), default=10, help="(%(default)s)")
    add("--repeats", type=types.count, default=1, help="of all folds, reordered (%(default)s)")
    add("--drop-instances", type=types.share, help="share hidden in training (digits 0.3, else 0)")
    add("--seed", type=types.seed, default=1, help="of all random numbers (%(default)s)")
    add("--output", default="output/bags", help="folder for the results (%(default)s)")
    add_record(parser)
    options = parser.parse_args(argv)
    if options.data == "":
        parser.error("--data needs a path")
    return types.fill(options, {"drop_instances": 0.0 if options.data else 0.3})


def build(bags, pooling, options):
    """A compiled model, its reader, and a function that makes twins of the model."""
    sizes = bags.instances.shape[1], len(bags.classes), pooling, HIDDEN
    sizes += options.drop_instances, MEMBERS
    model, reader = build_model(*sizes)
    rate = warmup_cosine(LEARNING_RATE, EPOCHS * STEPS, last=0.0)
    optimizer = keras.optimizers.AdamW(rate, weight_decay=WEIGHT_DECAY)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model, reader, lambda: build_model(*sizes)[0]


def train(model, make_twin, bags, chosen, seed):
    """Fits a compiled model to some bags, from new weights."""
    keras.utils.set_random_seed(seed)
    restart(model, make_twin())
    reseed(model, seed, 0)
    batches = bags.training(chosen, MEMBERS, STEPS, seed)
    model.fit(batches, epochs=EPOCHS, shuffle=False, verbose=0)  # the batches are shuffled


def main(argv=None):
    options = parse(argv)
    types.check_extras("sklearn", "matplotlib")
    if options.data:
        bags, source = data.read(options.data), options.data
    else:
        bags, source = data.make_digits(TRAIN, TEST, options.seed), "digits"
    labels = [bags.classes[n] for n in bags.labels]
    check_classes(source, labels, options.folds, "bags")
    parts = [({"repeat": 1, "fold": 1}, *np.split(np.arange(TRAIN + TEST), [TRAIN]))]
    if options.data:
        parts = data.parts(bags, options.folds, options.repeats, options.seed)
    settings = {name: x for name, x in vars(options).items() if name not in FREE}
    digest = fingerprint(bags.instances, bags.sizes, bags.labels)
    settings |= {"bags": digest, "backend": keras.backend.backend()}
    output = own_folder(pathlib.Path(options.output))
    results = Results(output / "results.json", settings)
    models = {pooling: build(bags, pooling, options) for pooling in options.pooling}
    try:
        for names, chosen, test in parts:
            scaled, scaling = bags.scaled(chosen)
            for pooling, (model, reader, make_twin) in models.items():
                if results.find(pooling=pooling, **names):
                    continue
                seed = 1000 * (options.seed + names["repeat"]) + names["fold"]
                train(model, make_twin, scaled, chosen, seed % 2**32)
                entry = evaluation.evaluate(reader, scaled, test)
                if names == {"repeat": 1, "fold": 1}:
                    folder = make_folder(output / pooling)
                    evaluation.save(reader, bags, scaled, test, scaling, folder)
                results.add({"pooling": pooling, **names, **entry})
                place = f"repeat {names['repeat']}, fold {names['fold']} of {parts[-1][0]['fold']}"
                print(f"{pooling}, {place}: {entry['accuracy']:.1f}% right", flush=True)
            evaluation.add_baselines(results, names, scaled, chosen, test, options.seed)
    finally:  # after Ctrl-C too
        table = evaluation.report(results, options.pooling, bags)
    write_record(options.record, tables={"bags": table}, seeds=[options.seed])


if __name__ == "__main__":
    types.run(main)
