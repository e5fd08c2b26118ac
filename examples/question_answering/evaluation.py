"""Answers a test set, scores it as SQuAD v1.1 does, and writes and checks all files of a model."""

import collections
import re
import string

import numpy as np
import tensorflow as tf

from examples.common.files import remove, save_figure
from examples.common.saving import can_export, check_saved_model, write_model, write_saved_model
from examples.common.text import to_dense, tokenize
from examples.question_answering.data import Questions
from keras_attention.plotting import plot_attention

ARTICLES = re.compile(r"\b(?:an?|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)


def answer(answerer, data, size=60):
    """Answers all questions: a dictionary from ids to texts."""
    answers = {}
    for rows in data.split(size):
        found = answerer.predict_on_batch(data.inputs(rows))
        for n, first, last in zip(rows, found["start"], found["end"], strict=True):
            answers[data.examples[n].id] = data.cut(n, first, last)
    return answers


def normalize(text):
    """Removes what the comparison ignores: case, ASCII punctuation, articles, extra white space."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def exact_match(prediction, answers):
    """Whether a prediction equals one of the gold answers."""
    return any(normalize(prediction) == normalize(answer) for answer in answers)


def f1(prediction, answers):
    """The F1 of the words of a prediction and of a gold answer, the highest of all gold answers.

    Without a word in common it is 0, even if both are empty, as in the published definition.
    """
    scores = [0.0]
    for gold in answers:
        words = [normalize(text).split() for text in (prediction, gold)]
        common = (collections.Counter(words[0]) & collections.Counter(words[1])).total()
        scores.append(2 * common / max(1, len(words[0]) + len(words[1])))
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
    print(
        f"\n{summary['attention']}: {summary['steps']:,} steps, {summary['epochs']:.1f} epochs, "
        f"{summary['seconds_a_step']:.2f} s a step, answering {summary['answer_seconds']:.0f} s"
    )
    scores = {"": summary, "the same model without attention: ": summary.get("without_attention")}
    for name, x in scores.items():
        if x:
            print(f"{name}exact match {x['exact_match']:.2f}, F1 {x['f1']:.2f}", end=" ")
            print(f"of {summary['questions']:,} unseen questions")


def save(answerer, vocabulary, examples, output):
    """Writes and checks all files of a trained model; `examples` are shown and compared."""
    picture = output / "attention.png"
    remove(picture)  # from an earlier run: this one may draw none
    data = Questions(examples, vocabulary)
    found = write_model(answerer, output / "model.keras", data.inputs(np.arange(len(examples))))
    if not can_export():
        return
    serve, path = make_serve(answerer, vocabulary), output / "saved_model"
    write_saved_model(path, serve, ["passage", "question"], [answerer, vocabulary])
    print(f"{path}: takes passages and questions, returns answers, bytes and attention")
    texts = {name: [getattr(e, name) for e in examples] for name in ("passage", "question")}
    answers = [data.cut(n, found["start"][n], found["end"][n]) for n in range(len(examples))]
    expected = {"answer": answers, "probability": found["probability"]}
    reply = check_saved_model(path, texts, expected)
    if "context_to_query" in reply and reply["answer"][0]:
        reply = {name: value[0] for name, value in reply.items() if name != "absent"}
        draw_flow(reply, examples[0].passage.encode(), picture)
        print(f"{picture}: which words of the question each word looked at")


def make_serve(answerer, vocabulary):
    """Makes the function of the SavedModel, from raw strings to answers."""

    def serve(passage, question):
        size = tf.shape(passage)[0]
        passage_tokens, starts, ends = tokenize(passage)
        question_tokens = tokenize(question)[0]
        each = (*vocabulary(passage_tokens), *vocabulary(question_tokens))
        found = dict(answerer([to_dense(ids) for ids in each], training=False))
        start, end = (
            tf.gather(to_dense(offsets), found.pop(name), batch_dims=1)[:size]
            for name, offsets in (("start", starts), ("end", ends))
        )
        length = tf.cast(end - start, "int32")
        result = {
            "answer": tf.strings.substr(passage, tf.cast(start, "int32"), length),
            "start_byte": start,
            "end_byte": end,
            "passage_tokens": passage_tokens.to_tensor(),
            "question_tokens": question_tokens.to_tensor(),
            **found,
        }
        return {name: value[:size] for name, value in result.items()}

    return serve


def draw_flow(reply, passage, path):
    """Draws the T x J map of one answer as a PNG, with the passage in lines."""
    words, asked = ([x for x in reply[f"{text}_tokens"] if x] for text in ("passage", "question"))
    weights = np.array(reply["context_to_query"])[: len(words), : len(asked)].T
    if "query_to_context" in reply:
        summary = np.array(reply["query_to_context"])[: len(words)]
        # Relative to the largest: a passage has many more words than a question.
        weights = np.concatenate([weights, summary[None] / max(summary.max(), 1e-30)])
        asked.append("query to context")
    end, marked = 0, []
    for number, word in enumerate(words):
        end = passage.index(word.encode(), end) + len(word.encode())
        if reply["start_byte"] < end <= reply["end_byte"]:
            marked.append(number)
    title = f"answer: {reply['answer']}"
    figure = plot_attention(weights, words, asked, title=title, marked=marked, per_line=28)
    save_figure(path, figure)
