"""Answers a test set, scores it as SQuAD v1.1 does, and writes the files of a model."""

import collections
import re
import string

import numpy as np

from examples.common.files import remove, save_figure
from examples.common.text import tokenize
from examples.common.training import write_model
from examples.question_answering.data import Questions
from keras_attention.plotting import plot_attention

ARTICLES = re.compile(r"\b(?:an?|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)


def answer(reader, data, limit, size=60):
    """Answers all questions: a dictionary from ids to texts."""
    answers = {}
    for rows in data.split(size):
        found = reader.predict_on_batch(data.inputs(rows))
        spans = find_spans(found["start"], found["end"], limit)
        for n, first, last in zip(rows, *spans, strict=True):
            answers[data.examples[n].id] = data.cut(n, first, last)
    return answers


def find_spans(start, end, limit):
    """The spans k .. l of at most `limit` tokens with the largest p1[k] p2[l]."""
    end = np.pad(end, [(0, 0), (0, limit - 1)], constant_values=-np.inf)
    scores = start[:, :, None] + np.lib.stride_tricks.sliding_window_view(end, limit, axis=1)
    first, more = np.divmod(scores.reshape(len(scores), -1).argmax(axis=1), limit)
    return first, first + more


def normalize(text):
    """Removes what the comparison ignores: case, ASCII punctuation, articles, extra white space."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def exact_match(prediction, answers):
    """Whether a prediction equals one of the gold answers."""
    return any(normalize(prediction) == normalize(answer) for answer in answers)


def f1(prediction, answers):
    """The highest F1 of the words of a prediction and of a gold answer; 0 if none is common."""
    scores, found = [0.0], collections.Counter(normalize(prediction).split())
    for wanted in (collections.Counter(normalize(gold).split()) for gold in answers):
        scores.append(2 * (found & wanted).total() / max(1, found.total() + wanted.total()))
    return max(scores)


def score(answers, examples):
    """Exact match and F1 in percent, as in the official evaluation. No answer counts as wrong."""
    pairs = [(answers[e.id], e.answers) for e in examples if e.id in answers]
    return {
        "exact_match": 100 * sum(exact_match(*pair) for pair in pairs) / len(examples),
        "f1": 100 * sum(f1(*pair) for pair in pairs) / len(examples),
        "questions": len(examples),
    }


def report(summary, examples, answers):
    """Prints samples of the test set, the times and the scores."""
    print("\nSamples of the test set:")
    for example in examples[:6]:
        print(f"  {example.question} -> {answers[example.id]}    (answer: {example.answers[0]})")
    print(f"\n{summary['attention']}: {summary['steps']:,} steps, {summary['epochs']:.1f} epochs")
    scores = {"": summary, "the same model without attention: ": summary.get("without_attention")}
    for name, x in scores.items():
        if x:
            print(f"{name}exact match {x['exact_match']:.2f}, F1 {x['f1']:.2f}", end=" ")
            print(f"of {summary['questions']:,} unseen questions")


def save(reader, vocabulary, examples, limit, output):
    """Writes and checks the `.keras` file of a trained model; the first example is drawn."""
    picture = output / "attention.png"
    remove(picture)  # from an earlier run: this one may draw none
    data = Questions(examples, vocabulary)
    found = write_model(reader, output / "model.keras", data.inputs(np.arange(len(examples))))
    if "context_to_query" in found and len(data.passages.starts[0]):
        span = [int(x[0]) for x in find_spans(found["start"], found["end"], limit)]
        draw_flow({name: value[0] for name, value in found.items()}, examples[0], span, picture)
        print(f"{picture}: which words of the question each word looked at")


def draw_flow(found, example, span, path):
    """Draws the T x J map of one answer as a PNG, with the passage in lines."""
    tokens, asked = tokenize(example.passage), [x[0] for x in tokenize(example.question)]
    weights = found["context_to_query"][: len(tokens), : len(asked)].T
    if "query_to_context" in found:
        summary = found["query_to_context"][: len(tokens)]
        # Relative to the largest: a passage has many more words than a question.
        weights = np.concatenate([weights, summary[None] / max(summary.max(), 1e-30)])
        asked.append("query to context")
    first, last = span
    answer = example.passage[tokens[first].start() : tokens[last].end()]
    words, marked = [token[0] for token in tokens], range(first, last + 1)
    options = {"title": f"answer: {answer}", "marked": [*marked], "per_line": 28}
    save_figure(path, plot_attention(weights, words, asked, **options))
