"""Question answering by attention flow (BiDAF; Seo, Kembhavi, Farhadi and Hajishirzi, 2017).

    python -m examples.question_answering

learns to answer questions about generated passages ("Where was Mira Solberg born?"). Beside it, the
same model learns without attention. This takes about five minutes on two cores, and at least 95% of
the answers about unseen passages are exactly right. The command writes the predictions, a picture
of the attention and a `.keras` file.

    python -m examples.question_answering --data DIR --steps 6000

does the same on SQuAD v1.1: DIR holds `train-v1.1.json` and `dev-v1.1.json`. `--data download`
downloads the official files. All questions of the dev file are scored by exact match and F1, as in
the official evaluation. A run that was stopped or killed resumes when the same command is run
again. Measured figures are in docs/results/questions.md.
"""

import pathlib

import keras

from examples.common import arguments as options
from examples.common.files import fingerprint, own_folder, write_json
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
    add("--max-passage", type=count, default=400, help="tokens, in training")
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
    # The largest number of words, and the longest question in training.
    defaults |= {"vocabulary": 30_000, "max_question": 50, "learning_rate": 0.002}
    return options.fill(arguments, defaults)


def train(flow, data, test, sizes, arguments):
    """Trains one model and answers the test set: the model, its answers, a summary."""
    size = min(arguments.batch_size, len(data.kept))
    steps = arguments.steps or 12 * (len(data.kept) // size)
    epochs = -(-steps // arguments.save_every)  # an epoch of `fit` ends with a save
    steps = -(-steps // epochs)
    settings = {name: getattr(arguments, name) for name in SETTINGS}
    rows = [*data.passages.rows, *data.questions.rows]
    settings["training data"] = fingerprint(*rows, data.passage_of, data.spans)
    batches = data.batches(size, arguments.seed, steps)
    resume = Resume(pathlib.Path(arguments.output) / flow / "checkpoint", settings, batches)

    seed_model(arguments.seed)
    model, reader = build_model(sizes, arguments.units, flow, arguments.dropout)
    rates = warmup_cosine(arguments.learning_rate, epochs * steps, last=0.05)
    # At its end `fit` puts the moving averages of the weights into the model.
    average = moving_average(arguments.average, epochs * steps)
    optimizer = keras.optimizers.Adam(rates, global_clipnorm=5.0, **average)
    cross_entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss={"start": cross_entropy, "end": cross_entropy})
    resume.fit(model, epochs)
    answers = answer(reader, test, arguments.max_answer)
    summary = {"attention": flow, "parameters": model.count_params(), "steps": epochs * steps}
    summary["epochs"] = epochs * steps * size / len(data.kept)
    return reader, answers, {**summary, **score(answers, test.examples)}


def main(argv=None):
    arguments = parse(argv)
    options.check_extras("regex", "matplotlib")
    sets = load_data(arguments)
    data, test, vocabulary = prepare(sets, arguments)
    output = own_folder(pathlib.Path(arguments.output)) / arguments.flow
    given = data, test, vocabulary.sizes, arguments

    reader, answers, summary = train(arguments.flow, *given)
    write_json(output / "predictions.json", answers)
    if not arguments.data and arguments.flow != "none":
        *_, baseline = train("none", *given)
        summary["without_attention"] = {name: baseline[name] for name in ("exact_match", "f1")}
    report(summary, sets[1], answers)
    write_json(output / "summary.json", summary)
    write_record(arguments.record, summary, seeds=[arguments.seed])
    # Some questions that have an answer, to show and to compare with the saved model.
    shown = [e for e in sets[1] if answers[e.id] and e.question.strip()][:4]
    save(reader, vocabulary, shown or sets[1][:4], arguments.max_answer, output)


if __name__ == "__main__":
    options.run(main)
