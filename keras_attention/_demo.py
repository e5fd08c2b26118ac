"""Translate written dates with a small trained model, and print its attention."""

import io
import sys
from collections.abc import Sequence

import keras

from keras_attention.seq2seq import Seq2Seq, TextResult

EXAMPLES = "the third of May, 1998", "12/25/07"
ADDRESS = (
    "https://github.com/keras-attention-layers/keras-attention-layers/raw/main/models/dates.keras"
)
SHA256 = "7630b38f4d8063341f979f085c4d1a7c70aee2197dc2612eac3bc5be1614faad"
SHADES = " ░▒▓█", " .:*#"  # for terminals with and without Unicode


def run_demo(texts: Sequence[str], path: str | None = None) -> None:
    """Print the ISO form of written dates, and where each of its characters was read.

    Args:
        texts: the dates.
        path: the file of another model from texts to texts, or None to download that of dates.
    """
    model = load(path)
    try:
        result = model.generate([*texts])
    except ValueError as error:
        raise SystemExit(str(error)) from None
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    for n, text in enumerate(texts):
        print(f"{text} -> {result.texts[n]}", *shaded(result, n), sep="\n", end="\n\n")
    print("Rows are the characters of the output. Darker blocks have more weight.")


def load(path: str | None) -> Seq2Seq:
    """Load a model, or end the program with what is wrong and what to do."""
    if path is None:
        remedy = f"Check the connection and the version of this package, or download {ADDRESS} "
        remedy += "in another way and run: python -m keras_attention demo --model dates.keras"
        try:
            path = keras.utils.get_file(origin=ADDRESS, file_hash=SHA256)
        except Exception as error:  # `get_file` raises just that
            raise SystemExit(f"The model could not be downloaded: {error}\n{remedy}") from None
    remedy = "Give a .keras file of a Seq2Seq with tokenizers, or no --model."
    try:
        model = keras.saving.load_model(path, compile=False)
    except Exception as error:  # of zipfile, json, h5py and Keras
        raise SystemExit(f"{path} could not be loaded: {error}\n{remedy}") from None
    if not isinstance(model, Seq2Seq) or None in (model.source_text, model.target_text):
        raise SystemExit(f"{path} is no model from texts to texts, but {model!r:.80}\n{remedy}")
    return model


def shaded(result: TextResult, index: int) -> list[str]:
    """Return lines of text: a column for each source token, a row for each target token."""
    weights, source, target = result.alignment(index)
    try:
        (shades := SHADES[0]).encode(sys.stdout.encoding)
    except UnicodeEncodeError:
        shades = SHADES[1]
    source, target = (["⏎" if x == "[END]" else x for x in side] for side in (source, target))
    rows = ("".join(shades[round(4 * float(x))] for x in row) for row in weights)
    return [f"  {''.join(source)}", *map(" ".join, zip(target, rows, strict=True))]
