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
the official evaluation. A run that was stopped or killed resumes when the same command is run
again. Measured figures are in docs/results/questions.md.
"""

import json
import pathlib
import statistics
import sys
import time

import keras

from examples.common import arguments as options
from examples.common.files import fingerprint, own_folder, write_text
from examples.common.records import add_record, write_record
from examples.common.training import Resume, moving_average, seed_model, warmup_cosine
from examples.question_answering.data import load_data, prepare
from examples.question_answering.evaluation import answer, report, save, score
from examples.question_answering.model import FLOWS, build_model

SETTINGS = ("units", "vocabulary", "max_passage", "max_question", "steps", "save_every")
SETTINGS += ("batch_size", "learning_rate", "average", "dropout", "seed")


def parse(argv):
    parser = options.make_parser("question_answering", __doc__)
    add, count = parser.add_argument, options.count
    add("--data", metavar="DIR", help="folder of SQuAD v1.1, or download")
    add("--flow", choices=FLOWS, default="both", help="directions of attention")
    add("--units", type=count, help="d (default: 50; SQuAD: 100)")
    add("--vocabulary", type=count, default=30_000, help="largest number of words")
    add("--max-passage", type=count, default=400, help="tokens, in training")
    add("--max-question", type=count, default=50, help="tokens, in training")
    add("--max-answer", type=count, default=20, help="tokens")
    add("--steps", type=count, help="default: 800; SQuAD: 12 epochs; rounded up to equal saves")
    add("--batch-size", type=count, help="default: 32; SQuAD: 60")
    add("--learning-rate", type=options.number, help="the highest (default: 0.002)")
    add("--dropout", type=options.share, help="default: 0.1; SQuAD: 0.2")
    add("--save-every", type=count, default=200, metavar="STEPS", help="the most between saves")
    add("--seed", type=options.seed, default=1)
    add("--output", default="output/answer", help="folder for the results")
    add_record(parser)
    arguments = parser.parse_args(argv)
    if arguments.data == "":
        parser.error("--data is empty: give a folder, or leave it out for generated passages")
    # The average is the highest momentum of the moving averages of the weights.
    defaults = {"units": 50, "batch_size": 32, "average": 0.99, "dropout": 0.1, "steps": 800}
    if arguments.data:
        defaults = {"units": 100, "batch_size": 60, "average": 0.999, "dropout": 0.2}
    return options.fill(arguments, {"learning_rate": 0.002, **defaults})


def train(flow, data, test, watched, sizes, arguments):
    """Trains one model and answers the test set: the model, its answers, a summary."""
    size = min(arguments.batch_size, len(data.kept))
    steps = arguments.steps or 12 * (len(data.kept) // size)
    epochs = -(-steps // arguments.save_every)  # an epoch of `fit` ends with a save
    steps = -(-steps // epochs)
    settings = {name: getattr(arguments, name) for name in SETTINGS}
    words = (texts.words.flat_values.numpy() for texts in (data.passages, data.questions))
    settings["training data"] = fingerprint(*words, data.passage_of, data.spans)
    batches = data.batches(size, arguments.seed, steps)
    resume = Resume(pathlib.Path(arguments.output) / flow / "checkpoint", settings, batches)

    seed_model(arguments.seed)
    model, answerer = build_model(
        sizes, arguments.units, flow, arguments.dropout, arguments.max_answer
    )
    rates = warmup_cosine(arguments.learning_rate, epochs * steps, last=0.05)
    # At its end `fit` puts the moving averages of the weights into the model.
    average = moving_average(arguments.average, epochs * steps)
    optimizer = keras.optimizers.Adam(rates, global_clipnorm=5.0, **average)
    cross_entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss={"start": cross_entropy, "end": cross_entropy})
    model.fit(
        batches.dataset(),
        epochs=epochs,
        initial_epoch=resume.restore(model),
        validation_data=watched,
        shuffle=False,
        callbacks=[keras.callbacks.SwapEMAWeights(), *resume.callbacks()],
        verbose=int(sys.stdout.isatty()),
    )
    seconds = statistics.median(row["seconds"] for row in resume.history)
    start = time.perf_counter()
    answers = answer(answerer, test)
    summary = {
        "attention": flow,
        "command": options.command_line("question_answering"),
        "keras": keras.__version__,
        "backend": keras.backend.backend(),
        "parameters": model.count_params(),
        "steps": epochs * steps,
        "epochs": epochs * steps * size / len(data.kept),
        "seconds_a_step": seconds / steps,
        "answer_seconds": time.perf_counter() - start,
        **score(answers, test.examples),
    }
    return answerer, answers, summary


def main(argv=None):
    arguments = parse(argv)
    options.check_extras("tensorflow_text", "matplotlib")
    sets = load_data(arguments)
    data, test, watched, vocabulary = prepare(sets, arguments)
    output = own_folder(pathlib.Path(arguments.output)) / arguments.flow
    given = data, test, watched, vocabulary.sizes, arguments

    answerer, answers, summary = train(arguments.flow, *given)
    write_text(output / "predictions.json", json.dumps(answers, ensure_ascii=False) + "\n")
    if not arguments.data and arguments.flow != "none":
        *_, baseline = train("none", *given)
        summary["without_attention"] = {name: baseline[name] for name in ("exact_match", "f1")}
    report(summary, sets[1], answers)
    write_record(arguments.record, summary, seeds=[arguments.seed])
    write_text(output / "summary.json", json.dumps(summary, indent=1, ensure_ascii=False) + "\n")
    # Some questions that have an answer, to show and to compare with the saved model.
    shown = [e for e in sets[1] if answers[e.id] and e.question.strip()][:4]
    save(answerer, vocabulary, shown or sets[1][:4], output)


if __name__ == "__main__":
    options.run(main)
