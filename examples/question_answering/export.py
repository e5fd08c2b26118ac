"""Writes the `.keras` file, the SavedModel and the picture, and checks each of them."""

import keras
import numpy as np
import tensorflow as tf

from examples.common.files import save_figure
from examples.common.saving import ask_saved_model, write_model, write_saved_model
from examples.common.tokens import tokenize
from examples.question_answering.data import cut, prepare
from keras_attention.plotting import plot_attention


def save(answerer, vocabulary, examples, output):
    """Writes and checks all files of a trained model; `examples` are shown and compared."""
    picture = output / "attention.png"
    picture.unlink(missing_ok=True)  # from an earlier run: this one may draw none
    data, _ = prepare(examples, vocabulary)
    inputs = data.inputs(np.arange(len(examples)))
    found = write_model(answerer, output / "model.keras", inputs)
    if keras.backend.backend() != "tensorflow":
        print(
            "The SavedModel is written with the TensorFlow backend: run the same command with it."
        )
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


def make_serve(answerer, vocabulary):
    """Makes the function of the SavedModel, from raw strings to answers."""

    def encode_batch(texts):
        tokens, starts, ends = tokenize(texts)
        words, characters = (
            tokens.with_flat_values(flat).to_tensor(0) for flat in vocabulary(tokens.flat_values)
        )
        # A text without a word becomes one word of padding.
        more = tf.maximum(1 - tf.shape(words)[1], 0)
        words = tf.pad(words, [[0, 0], [0, more]])
        characters = tf.pad(characters, [[0, 0], [0, more], [0, 0]])
        return [words, characters], [x.to_tensor() for x in (tokens, starts, ends)]

    def serve(passage, question):
        size = tf.shape(passage)[0]
        # The model needs at least one text: an empty batch gets one, which is cut off at the end.
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


def draw_flow(reply, passage, path):
    """Draws the T x J map of one answer as a PNG, with the passage in lines."""
    words = [word for word in reply["passage_tokens"] if word]
    asked = [word for word in reply["question_tokens"] if word]
    weights = np.array(reply["context_to_query"])[: len(words), : len(asked)].T
    if "query_to_context" in reply:
        summary = np.array(reply["query_to_context"])[: len(words)]
        # Relative to the largest: a passage has many more words than a question.
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
