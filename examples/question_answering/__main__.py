"""Question answering by attention flow (BiDAF; Seo, Kembhavi, Farhadi and Hajishirzi, 2017).

    python -m examples.question_answering

learns to answer questions about generated passages ("Where was Mira Solberg born?"). Beside it, the
same model learns without attention. This takes about five minutes on two cores, and at least 95% of
the answers about unseen passages are exactly right. The command writes the predictions, a picture
of the attention, a `.keras` file, and a SavedModel from strings to strings, which it then runs in a
process without keras.

    python -m examples.question_answering --data DIR --steps 6000

does the same on SQuAD v1.1: DIR holds `train-v1.1.json` and `dev-v1.1.json`. `--data download`
downloads the official files. All questions of the dev file are scored by exact match and F1, as in
the official evaluation. `--vectors glove.6B.100d.txt` starts from word vectors that stay fixed. A
run that was interrupted or killed resumes when the same command is run again. Measured figures are
in docs/results/questions.md.
"""

import json
import pathlib

from examples.common.arguments import (
    check_at_least_one,
    check_ranges,
    check_seed,
    fill,
    make_parser,
)
from examples.common.extras import check_extras
from examples.common.files import make_folder, write_text
from examples.common.tokens import count_tokens
from examples.common.vectors import first_vectors, read_vectors
from examples.question_answering.data import describe, load_data, prepare
from examples.question_answering.evaluation import report
from examples.question_answering.export import save
from examples.question_answering.model import FLOWS
from examples.question_answering.training import run
from examples.question_answering.vocabulary import learn_vocabulary


def parse(argv):
    parser = make_parser("question_answering", __doc__)
    parser.add_argument("--data", metavar="DIR", help="folder of SQuAD v1.1, or download")
    parser.add_argument("--vectors", metavar="FILE", help="word vectors, a GloVe text file")
    parser.add_argument("--flow", choices=FLOWS, default="both", help="directions of attention")
    parser.add_argument("--units", type=int, help="d (default: 50; SQuAD: 100)")
    parser.add_argument("--vocabulary", type=int, default=30_000, help="largest number of words")
    parser.add_argument("--max-passage", type=int, default=400, help="tokens, in training")
    parser.add_argument("--max-question", type=int, default=50, help="tokens, in training")
    parser.add_argument("--max-answer", type=int, default=20, help="tokens")
    parser.add_argument("--steps", type=int, help="default: 800; SQuAD: 12 epochs")
    parser.add_argument("--batch-size", type=int, help="default: 32; SQuAD: 60")
    parser.add_argument("--optimizer", choices=("adam", "adadelta"), default="adam")
    parser.add_argument("--learning-rate", type=float, help="default: 0.002; adadelta: 0.5")
    parser.add_argument("--average", type=float, help="of weights (default: 0.99; SQuAD: 0.999)")
    parser.add_argument("--dropout", type=float, help="default: 0.1; SQuAD: 0.2")
    parser.add_argument("--save-every", type=int, default=200, metavar="STEPS")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", default="output/answer", help="folder for the results")
    parser.add_argument("--smoke", action="store_true", help="generated data, in about a minute")
    arguments = parser.parse_args(argv)
    if arguments.data == "":
        parser.error("--data is empty: give a folder, or leave it out for generated passages")
    if arguments.smoke and arguments.data:
        parser.error("--smoke uses the generated passages: leave out --data")
    positive = ["units", "vocabulary", "max_passage", "max_question", "max_answer", "steps"]
    check_at_least_one(parser, arguments, [*positive, "batch_size", "save_every"])
    ranges = {"dropout": 1, "average": 1, "learning_rate": float("inf")}
    check_ranges(parser, arguments, ranges)
    check_seed(parser, arguments)
    rate = 0.5 if arguments.optimizer == "adadelta" else 0.002
    if arguments.data:
        defaults = {"units": 100, "batch_size": 60, "average": 0.999, "dropout": 0.2}
    else:
        defaults = {"units": 50, "batch_size": 32, "average": 0.99, "dropout": 0.1, "steps": 800}
    if arguments.smoke:
        defaults |= {"steps": 350, "average": 0.9, "dropout": 0.0}
        rate = 0.003
    return fill(arguments, {**defaults, "learning_rate": rate})


def main(argv=None):
    arguments = parse(argv)
    check_extras("tensorflow_text", "matplotlib")
    texts = load_data(arguments)
    output = pathlib.Path(arguments.output) / arguments.flow
    train_lines, test_lines = (
        list(dict.fromkeys(t for e in examples for t in (e.passage, e.question)))
        for examples in texts
    )
    found = {}
    if arguments.vectors:
        found = read_vectors(arguments.vectors, count_tokens([*train_lines, *test_lines])[0])
    vocabulary, words = learn_vocabulary(train_lines, arguments.vocabulary, found)
    vectors = None
    if found:
        vectors = first_vectors(words, found, vocabulary.sizes[0], arguments.seed)
        print(f"{arguments.vectors}: vectors of {len(found):,} words, fixed")
    limits = arguments.max_passage, arguments.max_question
    data, left_out = prepare(texts[0], vocabulary, limits)
    if left_out:
        print(f"left out of training: {describe(left_out)}")
    test, _ = prepare(texts[1], vocabulary)
    given = data, test, vocabulary.sizes, vectors, arguments
    make_folder(output)
    compared = not arguments.data and arguments.flow != "none" and not arguments.smoke
    if compared:
        make_folder(output.with_name("none"))

    answerer, answers, summary = run(arguments.flow, *given)
    write_text(output / "predictions.json", json.dumps(answers, ensure_ascii=False) + "\n")
    if compared:
        *_, baseline = run("none", *given)
        summary["without_attention"] = {name: baseline[name] for name in ("exact_match", "f1")}
    report(summary, texts[1], answers)
    write_text(output / "summary.json", json.dumps(summary, indent=1, ensure_ascii=False) + "\n")
    # Some questions that have an answer, to show and to compare with the saved model.
    shown = [e for e in texts[1] if answers[e.id] and e.question.strip()][:4]
    save(answerer, vocabulary, shown or texts[1][:4], output)
    wanted = 0 if arguments.flow == "none" else 50
    if arguments.smoke and summary["exact_match"] < wanted:
        raise SystemExit(
            f"smoke run: only {summary['exact_match']:.1f}% right, expected at least {wanted}%"
        )


if __name__ == "__main__":
    main()
