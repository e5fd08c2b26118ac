"""Trains on a corpus in memory and on shards of a corpus 50 times as large, and compares both.

    python benchmarks/shards.py --data DIR [--repeats 3] [--output FILE]

DIR holds `train.de`, `train.en`, `val.de` and `val.en` of Multi30k. The large corpus repeats the
pairs with noise: a tenth of the words change places with the next word. So a sentence has as many
words as before, and a step as much work. The benchmark makes shards of both corpora and reads each
through once. Then it trains the translator for 500 steps on Multi30k in memory, on its
shards, and on the large shards, in turn. Each run has a process of its own. The benchmark prints
the peak of the resident memory of the whole process. Steps per second and seconds of all cores per
step leave out the first hundred steps, in which TensorFlow and XLA compile. The texts need 500 MB
of disk under the folder for temporary files. Linux only.
"""

import argparse
import json
import os
import pathlib
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time

from measure import print_table, write_json

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))
COPIES, STEPS, WARM_UP = 50, 500, 100


def make_large(sources, folder, copies, seed=1):
    """Writes each text file of `sources` `copies` times, with words that changed places."""
    for path in sources:
        order = random.Random(seed)
        lines = path.read_text(encoding="utf-8").split("\n")[:-1]
        with open(folder / path.name, "w", encoding="utf-8") as file:
            for _ in range(copies):
                file.writelines(noisy(line, order) + "\n" for line in lines)


def noisy(line, order):
    words = line.split()
    for n in range(len(words) - 1):
        if order.random() < 0.1:
            words[n : n + 2] = words[n + 1], words[n]
    return " ".join(words)


def texts(folder, name):
    return [pathlib.Path(folder, f"{name}.{language}") for language in ("de", "en")]


def load(data, shards):
    """The options of the command with its defaults, the tokenizers, and the texts to train on."""
    from examples.translation.__main__ import parse
    from examples.translation.data import learn_subwords, make_tokenizers, read_pairs
    from examples.translation.shards import Shards

    train, valid = ([str(path) for path in texts(data, name)] for name in ("train", "val"))
    given = ["--shards", shards, "--steps", str(STEPS)] if shards else ["--train", *train]
    options = parse([*given, "--valid", *valid, "--test", *valid])
    pairs = Shards(shards) if shards else list(zip(*read_pairs(train), strict=True))
    sample = pairs.sample(100_000, options.seed) if shards else pairs
    subwords = [learn_subwords(side, options.vocabulary, "bpe") for side in sample]
    return options, make_tokenizers(subwords), pairs


def read_through(data, shards):
    """Makes all batches of one epoch."""
    options, tokenizers, pairs = load(data, shards)
    start = time.perf_counter()
    batches = make_batches(options, tokenizers, pairs, -(-len(pairs.pairs) // options.batch_size))
    read = sum(len(target) for _, target in batches())
    return {"pairs": read, "pairs a second": read / (time.perf_counter() - start)}


def make_batches(options, tokenizers, pairs, steps):
    """One epoch of `fit`; in memory it holds more than one pass over the pairs."""
    from examples.common.training import pair_batches
    from examples.translation.data import drop_long, encode
    from examples.translation.shards import Stream

    size, limit, seed = options.batch_size, options.max_tokens, options.seed
    if options.shards:
        return Stream(pairs, tokenizers, size, limit, seed, False, steps)
    return pair_batches(drop_long(encode(tokenizers, pairs), limit), size, seed, steps)


def train(data, shards=None):
    """Trains the translator for `STEPS` steps, as the command does."""
    import keras

    from examples.common.training import warmup_cosine
    from examples.translation.model import SmoothedCrossEntropy, build_model

    options, tokenizers, pairs = load(data, shards)
    count = len(pairs.pairs) if shards else len(pairs[0])
    batches = make_batches(options, tokenizers, pairs, STEPS)
    sizes = [int(tokenizer.vocab_size()) for tokenizer in tokenizers]
    model = build_model(sizes, options)
    rate = warmup_cosine(options.learning_rate, STEPS, last=0.01)
    optimizer = keras.optimizers.Adam(rate, global_clipnorm=1.0)
    model.compile(optimizer, SmoothedCrossEntropy(options.smoothing))
    clocks = []
    note = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda step, logs: clocks.append(
            (time.perf_counter(), time.process_time())
        )
    )
    model.fit(batches.dataset(), shuffle=False, verbose=0, callbacks=[note])
    first, last = clocks[WARM_UP - 1], clocks[-1]
    wall, cores = ((b - a) / (STEPS - WARM_UP) for a, b in zip(first, last, strict=True))
    return {"pairs": count, "steps a second": 1 / wall, "CPU s a step": cores}


def in_a_process(function, *arguments):
    """Calls a function of this module in a new process. Adds the peak of its memory, in MiB."""
    command = [sys.executable, __file__, "--child", json.dumps([function, *arguments])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{function} {arguments} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def child(job):
    function, *arguments = json.loads(job)
    found = {"read_through": read_through, "train": train}[function](*arguments)
    found["peak MiB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(found))


def run_all(data, folder, repeats):
    """Makes the shards and does all runs. Returns the results of each run as a list."""
    large, shards = folder / "large", {}
    large.mkdir()
    make_large(texts(data, "train"), large, COPIES)
    for name, source in (("Multi30k", data), ("large", large)):
        shards[name] = str(folder / f"shards-{name}")
        command = [sys.executable, "-m", "examples.translation.shards", *texts(source, "train")]
        start = time.perf_counter()
        subprocess.run([*command, "--output", shards[name]], check=True, cwd=ROOT)
        print(f"made in {time.perf_counter() - start:.1f} s", flush=True)
    found = {
        f"read {name} once": [in_a_process("read_through", str(data), path)]
        for name, path in shards.items()
    }
    runs = {
        "train, Multi30k in memory": ("train", str(data)),
        "train, Multi30k shards": ("train", str(data), shards["Multi30k"]),
        "train, large shards": ("train", str(data), shards["large"]),
    }
    for turn in range(repeats):
        for name, job in runs.items():
            found.setdefault(name, []).append(in_a_process(*job))
            print(f"turn {turn + 1}, {name}: {json.dumps(found[name][-1])}", flush=True)
    return found


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=pathlib.Path, help="the folder of Multi30k")
    parser.add_argument("--repeats", type=int, default=3, help="turns of training (default: 3)")
    parser.add_argument("--output", help="a file for the numbers, as JSON")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return child(options.child)
    if not options.data:
        parser.error("--data is needed: the folder of Multi30k")
    with tempfile.TemporaryDirectory() as folder:
        found = run_all(options.data.resolve(), pathlib.Path(folder), options.repeats)
    median = {
        name: {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        for name, runs in found.items()
    }
    keys = ("peak MiB", "pairs a second", "steps a second", "CPU s a step")
    rows = [
        [name, f"{run['pairs']:,.0f}", *(run.get(key, "") for key in keys)]
        for name, run in median.items()
    ]
    print_table(["run, median", "pairs", *keys], rows)
    ratios = {}
    for kind, base in (
        ("train, large shards", "train, Multi30k in memory"),
        ("train, large shards", "train, Multi30k shards"),
        ("read large once", "read Multi30k once"),
    ):
        for key in keys:
            if key in median[kind]:
                name = f"{key}: {kind} / {base}"
                ratios[name] = median[kind][key] / median[base][key]
                print(f"{name}: {ratios[name]:.3f}")
    if options.output:
        write_json(options.output, {"runs": found, "ratios": ratios})
    return 0


if __name__ == "__main__":
    sys.exit(main())
