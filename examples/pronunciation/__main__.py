"""Letters to phones (Wu and Cotterell, 2019; the shared task of SIGMORPHON 2021).

    python -m examples.pronunciation --data DIR --language dut --ensemble 5 --backward 2

learns the files `dut_train.tsv`, `dut_dev.tsv` and `dut_test.tsv` in DIR or below it, whose lines
are a word, a tab, and phones with spaces between them, as in the shared task,
https://github.com/sigmorphon/2021-task1. Its attention is hard and monotonic: each phone is read
from one letter, left to right. Five models decide together. Two of them pronounce from the last
letter to the first. The command writes pictures of the letters that each phone was read from, and a
`.keras` file. The same command resumes an interrupted run.
"""

import pathlib

import keras

from examples.common import arguments as types
from examples.common.files import fingerprint, own_folder, write_json
from examples.common.records import add_record, write_record
from examples.common.training import (
    COMPILED,
    DIRECTIONS,
    Resume,
    pair_batches,
    seed_model,
    warmup_cosine,
)
from examples.pronunciation import data
from examples.pronunciation.evaluation import judge, report, save
from examples.pronunciation.model import ATTENTIONS, Pronouncer, build_model

EPOCH = 250  # steps, after which the dev loss is printed and the state is saved
# Options that the weights of one model do not depend on.
FREE = ("data", "output", "ensemble", "backward", "beam", "seed", "record")


def parse(argv=None):
    parser = types.make_parser("pronunciation", __doc__)
    add = parser.add_argument
    add("--data", metavar="DIR", required=True, help="folder of LANGUAGE_{train,dev,test}.tsv")
    add("--language", metavar="NAME", required=True, help="how the names of its files begin")
    add("--attention", choices=ATTENTIONS, default="hard-monotonic")
    types.add_directions(parser)
    add("--beam", type=types.count, default=5, metavar="N", help="width of the search (default: 5)")
    add("--units", type=types.count, default=128, help="of the decoder (default: 128)")
    add("--dropout", type=types.share, help="default: 0.3, or 0.5 with fewer than 4,000 words")
    add("--steps", type=types.count, help="default: 20 passes through the words, at least 2,000")
    add("--seed", type=types.seed, default=1)
    add("--output", default="output/pronunciation", help="folder for the results")
    add_record(parser)
    arguments = parser.parse_args(argv)
    types.check_directions(parser, arguments)
    # The layers of the encoder, the words of a step, and the highest rate.
    return types.fill(arguments, {"layers": 1, "batch_size": 32, "learning_rate": 2e-3})


def choose(arguments, words):
    """Sets options that were not given, by the number of words to train on."""
    steps = max(2_000, 20 * -(-words // arguments.batch_size))
    dropout = 0.3 if words >= 4_000 else 0.5
    return types.fill(arguments, {"embedding": 96, "dropout": dropout, "steps": steps})


def train(words, letters, phones, arguments, seed, backward):
    """Trains one model, or resumes. Returns it."""
    epochs = -(-arguments.steps // EPOCH)
    steps = -(-arguments.steps // epochs)
    ids = {split: data.encode(words[split], letters, phones, backward) for split in words}
    batches = pair_batches(ids["train"], arguments.batch_size, seed, steps)
    dev = pair_batches(ids["dev"], arguments.batch_size)
    settings = {name: x for name, x in vars(arguments).items() if name not in FREE}
    known = fingerprint(words["train"], words["dev"], letters.tokens)
    settings |= {"seed": seed, "backward": backward, "words": known}
    folder = f"checkpoint-{arguments.attention}{'-backward' * backward}-{seed}"
    resume = Resume(pathlib.Path(arguments.output) / folder, settings, batches)

    print(f"\n{arguments.attention}, {DIRECTIONS[backward]}, seed {seed}", flush=True)
    seed_model(seed)
    model = build_model(arguments, letters, phones, backward)
    model(next(batches())[0])  # builds the weights
    rate = warmup_cosine(arguments.learning_rate, epochs * steps, last=0.01)
    optimizer = keras.optimizers.Adam(rate, beta_2=0.98, global_clipnorm=1.0)
    model.compile(optimizer, jit_compile=COMPILED)
    resume.fit(model, epochs, dev.dataset())
    return model


def main(argv=None):
    arguments = parse(argv)
    types.check_extras("matplotlib")
    words = data.load(arguments.data, arguments.language)
    choose(arguments, len(words["train"]))
    output = own_folder(pathlib.Path(arguments.output))
    letters, phones = data.find_symbols(words["train"])
    longest = 2 * max(len(sounds) for _, sounds in words["train"])
    options = arguments.beam, longest
    models, summaries = [], []
    for seed, backward in types.members(arguments):
        model = train(words, letters, phones, arguments, seed, backward)
        models.append((model, backward))
        found, scores = judge(Pronouncer(models[-1:], *options), words)
        summaries.append({"seed": seed, "direction": DIRECTIONS[backward], **scores})
    pronouncer = Pronouncer(models, *options)
    if len(models) > 1:
        found, scores = judge(pronouncer, words)
    summary = {"attention": arguments.attention, "language": arguments.language}
    summary["parameters"] = sum(model.count_params() for model, _ in models)
    summary |= {"models": summaries, **scores}
    write_json(output / "summary.json", summary)
    report(summary, words["test"], found, output / "test.tsv")
    write_record(arguments.record, summary, seeds=[x for x, _ in types.members(arguments)])
    save(pronouncer, [word for word, _ in words["test"]], output)


if __name__ == "__main__":
    types.run(main)
