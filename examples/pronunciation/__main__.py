"""Letters to phones (Wu and Cotterell, 2019; the shared task of SIGMORPHON 2021).

    python -m examples.pronunciation

learns an invented spelling in two minutes on two cores. Its attention is hard and monotonic: each
phone is read from one letter, left to right. At least 97% of 1,000 unseen words come out right. The
command writes pictures of the letters that each phone was read from, a `.keras` file, and a
SavedModel from words to phones, which it then runs in a process without keras.

    python -m examples.pronunciation --data DIR --language dut --ensemble 5 --backward 2

does the same for the files `dut_train.tsv`, `dut_dev.tsv` and `dut_test.tsv` in DIR or below it,
whose lines are a word, a tab, and phones with spaces between them, as in the shared task,
https://github.com/sigmorphon/2021-task1. Five models decide together. Two of them pronounce from
the last letter to the first. The same command resumes an interrupted run.
"""

import json
import pathlib
import sys

import keras

from examples.common import arguments as types
from examples.common.files import fingerprint, own_folder, write_text
from examples.common.records import add_record, write_record
from examples.common.training import (
    COMPILED,
    Resume,
    direction,
    pair_batches,
    seed_model,
    warmup_cosine,
)
from examples.pronunciation import data
from examples.pronunciation.evaluation import judge, report
from examples.pronunciation.export import save
from examples.pronunciation.model import ATTENTIONS, Pronouncer, build_model

EPOCH = 250  # steps, after which the dev loss is printed and the state is saved
# Options that the weights of one model do not depend on.
FREE = ("data", "output", "ensemble", "backward", "beam", "seed", "record")


def parse(argv=None):
    parser = types.make_parser("pronunciation", __doc__)
    add = parser.add_argument
    add("--data", metavar="DIR", help="folder of LANGUAGE_{train,dev,test}.tsv")
    add("--language", metavar="NAME", help="how the names of its files begin")
    add("--attention", choices=ATTENTIONS, default="hard-monotonic")
    types.add_directions(parser)
    add("--beam", type=types.count, default=5, metavar="N", help="width of the search (default: 5)")
    text = "of the decoder, and of each direction of the encoder (default: 128; invented: 64)"
    add("--units", type=types.count, help=text)
    add("--layers", type=types.count, default=1, help="of the encoder (default: 1)")
    text = "default: 0.3, or 0.5 with fewer than 4,000 words to train on; invented: 0.1"
    add("--dropout", type=types.share, help=text)
    text = "of training (default: 20 passes through the words, at least 2,000; invented: 1,000)"
    add("--steps", type=types.count, help=text)
    add("--batch-size", type=types.count, default=32, help="words of a step (default: 32)")
    add("--learning-rate", type=types.number, default=2e-3, help="highest; default: 0.002")
    add("--seed", type=types.seed, default=1)
    add("--output", default="output/pronunciation", help="folder for the results")
    add_record(parser)
    arguments = parser.parse_args(argv)
    if bool(arguments.data) != bool(arguments.language):
        parser.error("--data and --language belong together: give both or none")
    types.check_directions(parser, arguments)
    return arguments


def choose(arguments, words):
    """Sets options that were not given, by the number of words to train on."""
    recipe = {"units": 64, "embedding": 48, "dropout": 0.1, "steps": 1_000}
    if arguments.data:
        steps = max(2_000, 20 * -(-words // arguments.batch_size))
        dropout = 0.3 if words >= 4_000 else 0.5
        recipe = {"units": 128, "embedding": 96, "dropout": dropout, "steps": steps}
    return types.fill(arguments, recipe)


def train(words, letters, phones, arguments, seed, backward):
    """Trains one model, or resumes. Returns it and the seconds of its epochs."""
    epochs = -(-arguments.steps // EPOCH)
    steps = -(-arguments.steps // epochs)
    ids = {split: data.encode(words[split], letters, phones, backward) for split in words}
    batches = pair_batches(ids["train"], arguments.batch_size, seed, steps)
    dev = pair_batches(ids["dev"], arguments.batch_size)
    settings = {name: x for name, x in vars(arguments).items() if name not in FREE}
    # The letters too: the way in which words become letters may change.
    known = json.dumps([words["train"], words["dev"], letters.names])
    settings |= {"seed": seed, "backward": backward, "words": fingerprint(known.encode())}
    folder = f"checkpoint-{arguments.attention}{'-backward' * backward}-{seed}"
    resume = Resume(pathlib.Path(arguments.output) / folder, settings, batches)

    print(f"\n{arguments.attention}, {direction(backward)}, seed {seed}", flush=True)
    seed_model(seed)
    model = build_model(arguments, len(letters.names), len(phones.names), backward)
    model(next(batches())[0])  # builds the weights
    rate = warmup_cosine(arguments.learning_rate, epochs * steps, last=0.01)
    optimizer = keras.optimizers.Adam(rate, beta_2=0.98, global_clipnorm=1.0)
    model.compile(optimizer, jit_compile=COMPILED)
    model.fit(
        batches.dataset(),
        epochs=epochs,
        initial_epoch=resume.restore(model),
        validation_data=dev.dataset(),
        callbacks=resume.callbacks(),
        shuffle=False,
        verbose=int(sys.stdout.isatty()),
    )
    return model, sum(row["seconds"] for row in resume.history)


def main(argv=None):
    arguments = parse(argv)
    types.check_extras("tensorflow_text", "matplotlib")
    words = data.load(arguments.data, arguments.language, arguments.seed)
    choose(arguments, len(words["train"]))
    output = own_folder(pathlib.Path(arguments.output))
    letters, phones = data.find_symbols(words["train"])
    longest = 2 * max(len(sounds) for _, sounds in words["train"])
    options = letters, phones, arguments.beam, longest
    models, summaries = [], []
    for seed, backward in types.members(arguments):
        model, seconds = train(words, letters, phones, arguments, seed, backward)
        models.append((model, backward))
        found, scores = judge(Pronouncer(models[-1:], *options), words)
        identity = {"seed": seed, "direction": direction(backward), "train_seconds": seconds}
        summaries.append({**identity, **scores})
    pronouncer = Pronouncer(models, *options)
    if len(models) > 1:
        found, scores = judge(pronouncer, words)
    summary = {
        "attention": arguments.attention,
        "language": arguments.language or "invented",
        "command": types.command_line("pronunciation"),
        "keras": keras.__version__,
        "parameters": sum(model.count_params() for model, _ in models),
        "models": summaries,
        **scores,
    }
    write_text(output / "summary.json", json.dumps(summary, indent=1, ensure_ascii=False) + "\n")
    report(summary, words["test"], found, output / "test.tsv")
    write_record(arguments.record, summary, seeds=[x for x, _ in types.members(arguments)])
    save(pronouncer, [word for word, _ in words["test"]], output)


if __name__ == "__main__":
    types.run(main)
