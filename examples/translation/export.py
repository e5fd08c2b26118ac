"""Writes the `.keras` file, the SavedModel and the picture, and checks each of them."""

import numpy as np

from examples.common.files import save_figure
from examples.common.saving import ask_saved_model, write_model
from examples.translation.data import END, PAD
from examples.translation.search import detokenize
from keras_attention.plotting import plot_attention


def save(model, tokenizers, texts, output, max_length, attends, **options):
    """Writes and checks all files of a trained model.

    Args:
        model: a `Seq2Seq`, an `Ensemble` or a `BidirectionalEnsemble`.
        tokenizers: the tokenizers of source and target.
        texts: samples of the source.
        output: the folder.
        max_length, options: see `Seq2Seq.generate`.
        attends: whether to draw the attention.
    """
    sample = [np.arange(12).reshape(2, 6) % 9 + END, np.arange(10).reshape(2, 5) % 7 + END]
    write_model(model, output / "model.keras", sample)

    source_tokenizer, target_tokenizer = tokenizers
    model.export_generate(
        output / "saved_model",
        max_length,
        tokenize=lambda texts: source_tokenizer.tokenize(texts).to_tensor(PAD),
        detokenize=lambda *found: detokenize(target_tokenizer, *found),
        tracked=tokenizers,
        **options,
    )
    print(f"{output / 'saved_model'}: takes strings, returns strings, tokens and weights")
    texts = texts[:4]
    source = source_tokenizer.tokenize(texts).to_tensor(PAD).numpy()
    found = model.generate(source, max_length, **options)
    expected = detokenize(target_tokenizer, *found[:2]).numpy()
    check_saved_model(output / "saved_model", texts, found, [x.decode() for x in expected])
    picture = output / "alignment.png"
    picture.unlink(missing_ok=True)
    if attends:
        source, target = (
            [x.decode() for x in tokenizer.id_to_string(ids[0]).numpy()]
            for tokenizer, ids in zip(tokenizers, (source, found.tokens), strict=True)
        )
        title = f"{texts[0]}  →  {expected[0].decode()}"
        draw_alignment(found.weights[0], source, target, title, picture)
        print(f"{picture}: which source the words of a translation looked at")


def check_saved_model(path, texts, found, expected):
    """Compares the SavedModel, in a process without keras, with what `generate` found."""
    answer = ask_saved_model(path, {"source": texts})
    same = answer["texts"] == expected
    pairs = [(answer["scores"], found.scores), (answer["weights"], found.weights)]
    difference = max(np.abs(np.array(x) - y).max() for x, y in pairs)
    if not same or not difference <= 1e-5:
        raise SystemExit(
            f"the SavedModel differs in a new process: translations equal: {same}, scores and "
            f"weights by {difference:.2g}"
        )
    print(
        f"The reloaded SavedModel agrees: {len(texts)} translations equal, scores and weights "
        f"within {difference:.1g}; the process had no {' and no '.join(answer['absent'])}."
    )


def draw_alignment(weights, source, target, title, path):
    """Draws the attention map of a translation as a PNG."""
    source, target = map(_labels, (source, target))
    figure = plot_attention(weights[: len(target), : len(source)], source, target, title=title)
    save_figure(path, figure)


def _labels(tokens):
    """Tokens up to the end, with visible signs for spaces and for the end."""
    end = tokens.index("</s>") if "</s>" in tokens else len(tokens)
    return [token.replace("▁", "␣") for token in tokens[:end]] + ["⏎"] * (end < len(tokens))
