"""Letters to phones (Wu and Cotterell, 2019; the shared task of SIGMORPHON 2021).

    python -m examples.pronunciation

learns an invented spelling with silent letters, digraphs and context rules, in two minutes on two
cores. Its attention is hard and monotonic: each phone is read from one letter, left to right, and
the loss sums over all places it may be read from. At least 97% of 1,000 unseen words come out
right. The command writes pictures of the letters that each phone was read from, a `.keras` file,
and a SavedModel from words to phones, which it then runs in a process without keras.

    python -m examples.pronunciation --data DIR --language dut --ensemble 5

does the same for the files `dut_train.tsv`, `dut_dev.tsv` and `dut_test.tsv` in DIR or below it,
whose lines are a word, a tab, and phones with spaces between them. The files of the shared task are
at https://github.com/sigmorphon/2021-task1. The models read a letter and its accent as two letters;
the files may hold them together or apart. Five models with seeds that follow each other decide
together. An interrupted run resumes when the same command is run again. With `--backward 2`, two of
the five pronounce from the last letter to the first, and the models of both directions score what
the others find. docs/results/pronunciation.md compares the figures with the shared task.
"""

import json
import pathlib

from examples.common.arguments import (
    add_directions,
    check_at_least_one,
    check_directions,
    check_ranges,
    check_seed,
    fill,
    make_parser,
)
from examples.common.extras import check_extras
from examples.common.files import make_folder, write_text
from examples.pronunciation.data import load
from examples.pronunciation.evaluation import report
from examples.pronunciation.export import save
from examples.pronunciation.model import ATTENTIONS
from examples.pronunciation.training import run

DEFAULTS = {"units": 128, "embedding": 96, "epochs": 20, "dropout": 0.3}
INVENTED = {"units": 64, "embedding": 48, "epochs": 8, "dropout": 0.1}


def parse(argv):
    parser = make_parser("pronunciation", __doc__)
    parser.add_argument("--data", metavar="DIR", help="folder of LANGUAGE_{train,dev,test}.tsv")
    parser.add_argument("--language", metavar="NAME", help="how the names of its files begin")
    parser.add_argument("--attention", choices=ATTENTIONS, default="hard-monotonic")
    add_directions(parser)
    parser.add_argument("--beam", type=int, default=5, metavar="N", help="width of the search")

    def add(name, kind, text):
        text += f" (default: {DEFAULTS[name]}; invented: {INVENTED[name]})"
        parser.add_argument(f"--{name}", type=kind, help=text)

    add("units", int, "of the decoder, and of each direction of the encoder")
    add("embedding", int, "width of letters and phones")
    add("epochs", int, "rounds through the training words")
    add("dropout", float, "of embeddings, encoder, decoder and readout")
    parser.add_argument("--layers", type=int, default=1, help="of the encoder (default: 1)")
    parser.add_argument("--batch-size", type=int, default=32, help="default: 32")
    parser.add_argument("--learning-rate", type=float, default=2e-3, help="highest; default: 0.002")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", default="output/pronunciation", help="folder for the results")
    parser.add_argument("--smoke", action="store_true", help="few invented words, in a minute")
    arguments = parser.parse_args(argv)
    if bool(arguments.data) != bool(arguments.language):
        parser.error("--data and --language belong together: give both or none")
    if arguments.smoke and arguments.data:
        parser.error("--smoke uses invented words: leave out --data and --language")
    positive = ["ensemble", "beam", "units", "embedding", "epochs", "layers", "batch_size"]
    check_at_least_one(parser, arguments, positive)
    ranges = {"dropout": 1, "learning_rate": float("inf")}
    check_ranges(parser, arguments, ranges)
    check_seed(parser, arguments)
    check_directions(parser, arguments)
    if arguments.smoke:
        fill(arguments, {"epochs": 4})
    return fill(arguments, DEFAULTS if arguments.data else INVENTED)


def main(argv=None):
    arguments = parse(argv)
    check_extras("tensorflow_text", "matplotlib")
    words = load(arguments)
    output = make_folder(pathlib.Path(arguments.output))
    pronouncer, found, summary = run(words, arguments)
    report(summary, words["test"], found)
    write_text(output / "summary.json", json.dumps(summary, indent=1, ensure_ascii=False) + "\n")
    pairs = zip(words["test"], found, strict=True)
    lines = [f"{word}\t{' '.join(phones)}\n" for (word, _), phones in pairs]
    write_text(output / "test.tsv", "".join(lines))
    save(pronouncer, [word for word, _ in words["test"]], output)
    if arguments.smoke and summary["test"]["word_error_rate"] > 50:
        raise SystemExit(f"smoke run: {summary['test']['word_error_rate']:.1f}% of words wrong")


if __name__ == "__main__":
    main()
