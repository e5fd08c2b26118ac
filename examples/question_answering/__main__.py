"""Question answering by attention flow (BiDAF; Seo, Kembhavi, Farhadi and Hajishirzi, 2017).

    python examples/answer.py

learns to answer questions about generated passages ("Where was Mira Solberg born?"), beside the
same model without attention, in about five minutes on two cores; at least 95% of the answers about
unseen passages come out exactly right. It writes the predictions, a picture of the attention, a
`.keras` file and a SavedModel from strings to strings, which a process without keras then runs.

    python examples/answer.py --data DIR --steps 6000

does the same on SQuAD v1.1: DIR holds `train-v1.1.json` and `dev-v1.1.json`; with `--data download`
the official files are downloaded. All questions of the dev file are scored by exact match and F1,
as the official evaluation does it. `--vectors glove.6B.100d.txt` starts from word vectors that stay
fixed. A run that was stopped, by Ctrl-C or a kill, goes on when it is started again with the same
arguments. Measured figures are in docs/results.md.
"""

import argparse
import collections
import contextlib
import json
import os
import pathlib
import shlex
import sys
import time
from typing import NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import passages
import squad
import tensorflow as tf
from arguments import check_at_least_one, check_ranges, check_seed, fill
from batching import bucketed
from bidaf import FLOWS, build_model
from checkpoint import (
    Checkpoint,
    Interrupt,
    fingerprint,
    make_folder,
    reseed,
    save_figure,
    seed_model,
    write_text,
)
from extras import check_extras
from keras import ops
from schedules import warmup_cosine
from serving import ask_saved_model, write_model, write_saved_model
from tokens import (
    Encoded,
    count_tokens,
    encode,
    first_vectors,
    learn_vocabulary,
    read_vectors,
    tokenize,
)

from keras_attention.plotting import plot_attention

FILES = ("train-v1.1.json", "dev-v1.1.json")
SOURCE = "https://rajpurkar.github.io/SQuAD-explorer/dataset/"
if keras.backend.backend() != "tensorflow":
    # Only text is left to TensorFlow; it would take the memory of the GPU.
    tf.config.set_visible_devices([], "GPU")
# Lengths are padded to multiples of this. A program of XLA has fixed shapes: few of them there.
COMPILED = keras.backend.backend() != "tensorflow" or tf.config.list_physical_devices("GPU")
MULTIPLE = 64 if COMPILED else 8


# --- data ----------------------------------------------------------------------------------------


class Questions(NamedTuple):
    """Encoded questions about encoded passages.

    passage_of: `(Q,)`, the number of the passage of each question. spans: `(Q, 2)`, the first and
    the last token of the answer, zeros in a test set.
    """

    examples: list
    passages: Encoded
    questions: Encoded
    passage_of: np.ndarray
    spans: np.ndarray

    def inputs(self, index):
        texts = (self.passages, self.passage_of[index]), (self.questions, index)
        return [ids for text, rows in texts for ids in text.padded(rows, MULTIPLE)]

    def batches(self, size, order=None, chosen=None):
        """Index arrays of questions of similar length: all of them, or those `chosen`."""
        chosen = np.arange(len(self.examples)) if chosen is None else chosen
        lengths = [self.questions.lengths, self.passages.lengths[self.passage_of]]
        batches = bucketed(np.transpose(lengths)[chosen], size, order)
        return [chosen[batch] for batch in batches]


def prepare(examples, vocabulary, limits=None):
    """Encodes examples; for training with `limits`, the largest numbers of tokens in a passage and
    a question. Returns `Questions` and a Counter of what was left out."""
    texts = list(dict.fromkeys(example.passage for example in examples))
    numbers = {text: n for n, text in enumerate(texts)}
    passage_of = np.array([numbers[example.passage] for example in examples])
    data = Questions(
        examples,
        encode(texts, vocabulary),
        encode([example.question for example in examples], vocabulary),
        passage_of,
        np.zeros((len(examples), 2), "int32"),
    )
    if limits is None:
        return data, collections.Counter()
    # Not in the loop: `lengths` is calculated anew, for all texts, whenever it is asked for.
    passage_lengths = data.passages.lengths[passage_of]
    question_lengths = data.questions.lengths
    left_out, kept = collections.Counter(), []
    for n, example in enumerate(examples):
        first, last = find_span(example, data.passages, passage_of[n])
        data.spans[n] = first, last
        if passage_lengths[n] > limits[0]:
            left_out[f"passage of more than {limits[0]} tokens"] += 1
        elif question_lengths[n] > limits[1]:
            left_out[f"question of more than {limits[1]} tokens"] += 1
        elif question_lengths[n] == 0:
            left_out["question without a word"] += 1
        elif last < first:
            left_out["answer without a word"] += 1
        else:
            kept.append(n)
    if not kept:
        raise SystemExit(f"no question is left to train on: {describe(left_out)}")
    if left_out:
        data = Questions(
            [examples[n] for n in kept],
            data.passages,
            data.questions.select(kept),
            passage_of[kept],
            data.spans[kept],
        )
    return data, left_out


def find_span(example, passages, number):
    """The first and the last token that share a byte with the answer."""
    begin = len(example.passage[: example.start].encode())
    end = begin + len(example.answers[0].encode())
    tokens = passages.tokens(number)
    first = np.searchsorted(passages.ends[tokens], begin, side="right")
    last = np.searchsorted(passages.starts[tokens], end, side="left") - 1
    return first, last


def describe(counter):
    return ", ".join(f"{count:,} with {reason}" for reason, count in counter.items())


# --- training ------------------------------------------------------------------------------------


def make_optimizer(settings):
    options = {"use_ema": True, "ema_momentum": settings["average"]}
    if settings["optimizer"] == "adadelta":
        return keras.optimizers.Adadelta(settings["learning_rate"], **options)
    rate = warmup_cosine(settings["learning_rate"], settings["steps"], last=0.05)
    return keras.optimizers.Adam(rate, global_clipnorm=5.0, **options)


def train(model, data, settings, checkpoint, every, watch=None):
    """Trains to the end or goes on with an earlier run.

    Args:
        every: number of steps after which a checkpoint is written.
        watch: called with the number of the epoch after each but the last one, for a look at the
            progress.
    """
    cross_entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(make_optimizer(settings), [cross_entropy, cross_entropy])
    done, steps = checkpoint.restore(model), settings["steps"]
    size, seed = settings["batch_size"], settings["seed"]
    epoch_steps = -(-len(data.examples) // size)
    losses, clock, before = [], time.perf_counter(), done
    epoch, batches = None, []
    with Interrupt() as interrupt:
        for step in range(done, steps):
            if step // epoch_steps != epoch:
                epoch = step // epoch_steps
                # An order of its own for every epoch, whether or not the run was interrupted.
                batches = data.batches(size, np.random.default_rng([seed, epoch]))
            batch = batches[step % epoch_steps]
            reseed(model, seed, step)
            model.reset_metrics()
            targets = [data.spans[batch, side] for side in (0, 1)]
            losses.append(float(model.train_on_batch(data.inputs(batch), targets)[0]))
            if not np.isfinite(losses[-1]):
                raise SystemExit(
                    f"the training diverged: loss {losses[-1]} in step {step + 1}. Choose a lower "
                    "--learning-rate and another --output."
                )
            done, stop = step + 1, interrupt.asked
            seconds = (time.perf_counter() - clock) / (done - before)
            place = f"step {done:,}/{steps:,}, epoch {done / epoch_steps:.2f}"
            rest = f"{seconds:.2f} s a step, {(steps - done) * seconds / 60:.0f} min left"
            save = done % every == 0 or done == steps or stop
            if save:
                entry = {"step": done, "loss": float(np.mean(losses)), "seconds_a_step": seconds}
                checkpoint.save(model, entry)
                print(f"{place}: loss {entry['loss']:.4f}, {rest}", flush=True)
            elif sys.stdout.isatty():
                print(f"{place}: {rest}", end="          \r", flush=True)
            if stop and done < steps:
                raise SystemExit(
                    f"stopped and saved after step {done:,} of {steps:,}; the same command goes on."
                )
            if watch and done % epoch_steps == 0 and done < steps:
                with averaged(model):
                    watch(done // epoch_steps)
            if save:
                losses, clock, before = [], time.perf_counter(), done
    take_averages(model)
    return checkpoint.state


def take_averages(model):
    """Gives the weights the values of their moving averages."""
    model.optimizer.finalize_variable_values(model.trainable_variables)
    for variable in model.trainable_variables:
        # A copy: JAX would let weight and average share one buffer, and delete it in the next step.
        variable.assign(np.array(ops.convert_to_numpy(variable)))


@contextlib.contextmanager
def averaged(model):
    """For a while the weights are their moving averages."""
    kept = [np.array(ops.convert_to_numpy(v)) for v in model.trainable_variables]
    take_averages(model)
    try:
        yield
    finally:
        for variable, value in zip(model.trainable_variables, kept, strict=True):
            variable.assign(value)


# --- answering -----------------------------------------------------------------------------------


def answer(answerer, data, size=60, chosen=None):
    """Answers of all questions, or of those `chosen` by number: a dictionary id -> text."""
    answers = {}
    for batch in data.batches(size, chosen=chosen):
        found = answerer.predict_on_batch(data.inputs(batch))
        for n, first, last in zip(batch, found["start"], found["end"], strict=True):
            answers[data.examples[n].id] = cut(data, n, first, last)
    return answers


def cut(data, n, first, last):
    """The text from one token to another, out of the original passage."""
    tokens = data.passages.tokens(data.passage_of[n])
    if tokens.start == tokens.stop:
        return ""
    begin = data.passages.starts[tokens.start + first]
    end = data.passages.ends[tokens.start + last]
    return data.examples[n].passage.encode()[begin:end].decode()


def make_serve(answerer, vocabulary):
    """Raw strings to answers, for a SavedModel."""

    def encode_batch(texts):
        tokens, starts, ends = tokenize(texts)
        words, characters = (
            tokens.with_flat_values(flat).to_tensor(0) for flat in vocabulary(tokens.flat_values)
        )
        # A text without a word is one of padding.
        more = tf.maximum(1 - tf.shape(words)[1], 0)
        words = tf.pad(words, [[0, 0], [0, more]])
        characters = tf.pad(characters, [[0, 0], [0, more], [0, 0]])
        return [words, characters], [x.to_tensor() for x in (tokens, starts, ends)]

    def serve(passage, question):
        size = tf.shape(passage)[0]
        # Of an empty batch too: it gets a text that is cut off again.
        filler = tf.fill([tf.maximum(1 - size, 0)], "")
        passage, question = (tf.concat([text, filler], 0) for text in (passage, question))
        passage_ids, (passage_tokens, starts, ends) = encode_batch(passage)
        question_ids, (question_tokens, *_) = encode_batch(question)
        found = dict(answerer([*passage_ids, *question_ids], training=False))
        more = tf.maximum(1 - tf.shape(starts)[1], 0)
        start, end = (
            tf.gather(tf.pad(offsets, [[0, 0], [0, more]]), found.pop(name), batch_dims=1)
            for name, offsets in (("start", starts), ("end", ends))
        )
        length = tf.cast(end - start, "int32")
        result = {
            "answer": tf.strings.substr(passage, tf.cast(start, "int32"), length),
            "start_byte": start,
            "end_byte": end,
            "passage_tokens": passage_tokens,
            "question_tokens": question_tokens,
            **found,
        }
        return {name: value[:size] for name, value in result.items()}

    return serve


# --- saving --------------------------------------------------------------------------------------


def save(answerer, vocabulary, examples, output):
    """The `.keras` file, the SavedModel and the picture; each checked after it was written."""
    picture = output / "attention.png"
    picture.unlink(missing_ok=True)  # of an earlier run: this one may draw none
    data, _ = prepare(examples, vocabulary)
    inputs = data.inputs(np.arange(len(examples)))
    found = write_model(answerer, output / "model.keras", inputs)
    if keras.backend.backend() != "tensorflow":
        print("The SavedModel is written with the TensorFlow backend: start the command with it.")
        return

    serve, path = make_serve(answerer, vocabulary), output / "saved_model"
    write_saved_model(path, serve, ["passage", "question"], [answerer, vocabulary])
    print(f"{path}: takes passages and questions, returns answers, bytes and attention")
    texts = {
        "passage": [example.passage for example in examples],
        "question": [example.question for example in examples],
    }
    reply = ask_saved_model(path, texts)
    texts = [cut(data, n, found["start"][n], found["end"][n]) for n in range(len(examples))]
    gap = np.abs(np.array(reply["probability"]) - found["probability"]).max()
    if reply["answer"] != texts or not gap <= 1e-5:
        raise SystemExit(
            f"the SavedModel differs in a new process: {reply['answer']} for {texts}, "
            f"probabilities by {gap:.2g}"
        )
    print(
        f"The reloaded SavedModel agrees: {len(texts)} answers equal, probabilities within "
        f"{gap:.1g}; the process had no {' and no '.join(reply['absent'])}."
    )
    if "context_to_query" in reply and reply["answer"][0]:
        draw_flow(
            {name: value[0] for name, value in reply.items() if name != "absent"},
            examples[0].passage,
            picture,
        )
        print(f"{picture}: which words of the question each word looked at")


def draw_flow(reply, passage, path):
    """The T x J map of one answer, the passage in lines, as a PNG."""
    words = [word for word in reply["passage_tokens"] if word]
    asked = [word for word in reply["question_tokens"] if word]
    weights = np.array(reply["context_to_query"])[: len(words), : len(asked)].T
    if "query_to_context" in reply:
        summary = np.array(reply["query_to_context"])[: len(words)]
        # To the largest: there are many more words in a passage than in a question.
        weights = np.concatenate([weights, summary[None] / max(summary.max(), 1e-30)])
        asked.append("query to context")
    begin, marked = 0, []
    for number, word in enumerate(words):
        begin = passage.encode().index(word.encode(), begin) + len(word.encode())
        if reply["start_byte"] < begin <= reply["end_byte"]:
            marked.append(number)
    title = f"answer: {reply['answer']}"
    figure = plot_attention(weights, words, asked, title=title, marked=marked, per_line=28)
    save_figure(path, figure)


# --- command line --------------------------------------------------------------------------------


def parse(argv):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", metavar="DIR", help="with SQuAD v1.1, or download")
    parser.add_argument("--vectors", metavar="FILE", help="word vectors, a GloVe text file")
    parser.add_argument("--flow", choices=FLOWS, default="both", help="directions of attention")
    parser.add_argument("--units", type=int, help="d (default: 50; SQuAD: 100)")
    parser.add_argument("--vocabulary", type=int, default=30_000, help="words at most")
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
    parser.add_argument("--output", default="output/answer", help="where results are written")
    parser.add_argument("--smoke", action="store_true", help="generated data, about a minute")
    arguments = parser.parse_args(argv)
    if arguments.data == "":
        parser.error("--data is empty: give a folder, or leave it out for generated passages")
    if arguments.smoke and arguments.data:
        parser.error("--smoke runs on the generated passages, without --data")
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


def load_data(arguments):
    """Examples to train on and to test on; what cannot be used is counted and printed."""
    if not arguments.data:
        sizes = (8_000, 200) if arguments.smoke else (8_000, 1_000)
        return passages.split(sizes, seed=arguments.seed)
    if arguments.data == "download":
        paths = [keras.utils.get_file(name, SOURCE + name) for name in FILES]
    else:
        paths = [pathlib.Path(arguments.data) / name for name in FILES]
    sets = []
    for path, training in zip(paths, (True, False), strict=True):
        examples, left_out = squad.read(path, training)
        print(f"{path}: {len(examples):,} questions")
        if left_out:
            print(f"  left out: {describe(left_out)}")
        if not examples:
            raise SystemExit(
                f"{path}: no question of it can be used: {describe(left_out)}. Nothing was written."
            )
        sets.append(examples)
    return sets


def run(flow, data, test, sizes, vectors, arguments):
    """Trains one model and answers the test set: the model, its answers, a summary."""
    steps = arguments.steps or 12 * -(-len(data.examples) // arguments.batch_size)
    settings = {**vars(arguments), "flow": flow, "steps": steps}
    for free in ("output", "save_every", "vectors", "smoke", "max_answer", "data"):
        settings.pop(free)
    arrays = [*data.passages, *data.questions, data.passage_of, data.spans]
    settings["training data"] = fingerprint(*arrays, *([] if vectors is None else [vectors]))
    checkpoint = Checkpoint(
        pathlib.Path(arguments.output) / flow / "checkpoint", settings, unit="step"
    )
    seed_model(arguments.seed)
    model, answerer = build_model(
        sizes, arguments.units, flow, arguments.dropout, arguments.max_answer, vectors
    )
    print(
        f"\nattention: {flow}, {model.count_params():,} parameters, {len(data.examples):,} "
        f"questions to train on, {len(test.examples):,} to test on",
        flush=True,
    )
    # For a look at the progress; nothing is chosen by it.
    sample = np.random.default_rng(0).permutation(len(test.examples))[:1000]

    def watch(epoch):
        score = squad.evaluate(
            answer(answerer, test, chosen=sample), [test.examples[n] for n in sample]
        )
        print(
            f"epoch {epoch}: exact match {score['exact_match']:.1f}, F1 {score['f1']:.1f} "
            f"of {len(sample):,} test questions",
            flush=True,
        )

    every = arguments.save_every
    state = train(model, data, settings, checkpoint, every, watch if arguments.data else None)
    start = time.perf_counter()
    answers = answer(answerer, test)
    summary = {
        "attention": flow,
        "command": shlex.join(["python", *sys.argv]),
        "keras": keras.__version__,
        "backend": keras.backend.backend(),
        "parameters": model.count_params(),
        "steps": steps,
        "epochs": steps * arguments.batch_size / len(data.examples),
        "seconds_a_step": float(np.median([e["seconds_a_step"] for e in state["history"]])),
        "answer_seconds": time.perf_counter() - start,
        **squad.evaluate(answers, test.examples),
    }
    return answerer, answers, summary


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
    # To look at, and to compare with what was saved: some with a question and an answer.
    shown = [e for e in texts[1] if answers[e.id] and e.question.strip()][:4]
    save(answerer, vocabulary, shown or texts[1][:4], output)
    wanted = 0 if arguments.flow == "none" else 50
    if arguments.smoke and summary["exact_match"] < wanted:
        raise SystemExit(
            f"smoke run: only {summary['exact_match']:.1f}% right, expected at least {wanted}%"
        )


def report(summary, examples, answers):
    print("\nSamples of the test set:")
    for example in examples[:6]:
        print(f"  {example.question} -> {answers[example.id]}    (answer: {example.answers[0]})")
    print(
        f"\n{summary['attention']}: {summary['steps']:,} steps, {summary['epochs']:.1f} epochs, "
        f"{summary['seconds_a_step']:.2f} s a step, answering {summary['answer_seconds']:.0f} s"
    )
    print(
        f"exact match {summary['exact_match']:.2f}, F1 {summary['f1']:.2f} "
        f"of {summary['questions']:,} unseen questions"
    )
    if "without_attention" in summary:
        score = summary["without_attention"]
        print(
            f"the same model without attention: exact match {score['exact_match']:.2f}, "
            f"F1 {score['f1']:.2f}"
        )


if __name__ == "__main__":
    main()
