"""Writes the `.keras` file, the SavedModel and the picture, and checks each of them."""

import keras
import numpy as np
import tensorflow as tf

from examples.common.files import save_figure
from examples.common.saving import ask_saved_model, write_model, write_saved_model
from examples.translation.data import END, PAD
from examples.translation.search import detokenize
from keras_attention.plotting import plot_attention


def save(translator, tokenizers, texts, output):
    """Writes and checks all files of a trained translator."""
    model = keras.Model(translator.model.inputs, translator.model.outputs)  # without the optimizer
    sample = [np.arange(12).reshape(2, 6) % 9 + END, np.arange(10).reshape(2, 5) % 7 + END]
    write_model(model, output / "model.keras", sample)

    serve = export(translator, tokenizers, output / "saved_model")
    print(f"{output / 'saved_model'}: takes strings, returns strings and alignments")
    texts = texts[:4]
    answer = check_saved_model(output / "saved_model", serve, texts)
    (output / "alignment.png").unlink(missing_ok=True)
    if "alignments" in answer:
        draw_alignment({**answer, "text": texts[0]}, output / "alignment.png")
        print(f"{output / 'alignment.png'}: which source the words of a translation looked at")


def export(translator, tokenizers, path):
    """Writes a SavedModel from texts to translations, scores, alignments and tokens."""
    source_tokenizer, target_tokenizer = tokenizers

    def serve(texts):
        source = source_tokenizer.tokenize(texts).to_tensor(PAD)
        found = translator(source)
        result = {
            "translation": detokenize(target_tokenizer, found),
            "score": found.scores[:, 0],
            "source_tokens": source_tokenizer.id_to_string(source),
            "target_tokens": target_tokenizer.id_to_string(found.tokens[:, 0]),
        }
        if found.weights is not None:
            result["alignments"] = found.weights[:, 0]
        return result

    write_saved_model(path, serve, ["texts"], [translator.model, *tokenizers])
    return serve


def check_saved_model(path, serve, texts):
    """Compares `serve` with the SavedModel in a process without keras. Returns its answer."""
    answer = ask_saved_model(path, {"texts": texts})
    expected = serve(tf.constant(texts))
    same = [text.decode() for text in expected["translation"].numpy()] == answer["translation"]
    difference = np.abs(np.array(answer["score"]) - expected["score"].numpy()).max()
    if "alignments" in expected:
        gap = np.abs(np.array(answer["alignments"]) - expected["alignments"].numpy()).max()
        difference = max(difference, gap)
    if not same or not difference <= 1e-5:
        raise SystemExit(
            f"the SavedModel differs in a new process: translations equal: {same}, scores and "
            f"alignments by {difference:.2g}"
        )
    print(
        f"The reloaded SavedModel agrees: {len(texts)} translations equal, scores and alignments "
        f"within {difference:.1g}; the process had no {' and no '.join(answer['absent'])}."
    )
    return answer


def draw_alignment(answer, path):
    """Draws the attention map of the first translation as a PNG."""
    source, target = (_labels(answer[side][0]) for side in ("source_tokens", "target_tokens"))
    weights = np.array(answer["alignments"][0])[: len(target), : len(source)]
    title = f"{answer['text']}  →  {answer['translation'][0]}"
    save_figure(path, plot_attention(weights, source, target, title=title))


def _labels(tokens):
    """Tokens up to the end, with visible signs for spaces and for the end."""
    tokens = [token for token in tokens if token != "<pad>"]
    if "</s>" in tokens:
        tokens = [*tokens[: tokens.index("</s>")], "⏎"]
    return [token.replace("▁", "␣") for token in tokens]
