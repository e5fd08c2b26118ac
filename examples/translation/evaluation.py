"""Translates texts, says how good the translations are, and writes the files of a model."""

import json
import subprocess
import sys
from functools import partial

import keras
import numpy as np
import tensorflow as tf

from examples.common.files import save_figure
from examples.common.training import DIRECTIONS, combine, pad, write_model
from examples.translation.data import END, PAD, make_tokenizers
from keras_attention.plotting import plot_attention
from keras_attention.search import reverse_tokens

# Runs a SavedModel where there is no keras. Importing tensorflow_text would import keras.
PROGRAM = """
import importlib.util, json, pathlib, sys
sys.modules.update(dict.fromkeys(["keras", "keras_attention", "tf_keras"]))
import tensorflow as tf
text = pathlib.Path(importlib.util.find_spec("tensorflow_text").origin).parent
for library in sorted(text.glob("python/ops/*.so")):
    tf.load_op_library(str(library))
model = tf.saved_model.load(sys.argv[1])
found = model.signatures["serving_default"](source=tf.constant(json.loads(sys.argv[2])))
print(json.dumps([x.decode() for x in found["texts"].numpy()]))
"""


def judge(models, summaries, subwords, test, options, arguments):
    """Translates the test set with all models together, and with each of them.

    Returns the model or the ensemble, the translations, and their part of the summary.
    """
    tokenizers = make_tokenizers(subwords)
    ahead = len(models) - arguments.backward
    model = combine(models[:ahead], models[ahead:])
    translations = translate(model, tokenizers, test[0], **options)
    summary = {"score": score(translations, test[1], arguments)}
    if len(models) > 1:
        summary["members"] = []
        for each, of in zip(models, summaries, strict=True):
            found = translate(each, tokenizers, test[0], of["backward"], **options)
            summary["members"].append({**of, "score": score(found, test[1], arguments)})
    return model, translations, summary


def translate(model, tokenizers, texts, backward=False, **options):
    """Translates texts. `Seq2Seq.generate` takes the options."""
    source = pad(tokenizers[0].tokenize(tf.constant(texts)).to_list())
    found = model.generate(source, **options)
    tokens = reverse_tokens(found.tokens, END, PAD) if backward else found.tokens
    return [text.decode() for text in detokenize(tokenizers[1], tokens, found.lengths).numpy()]


def detokenize(tokenizer, tokens, lengths):
    """Makes strings of ids."""
    ids = tf.RaggedTensor.from_tensor(tokens, lengths=lengths)
    return tokenizer.detokenize(tf.ragged.boolean_mask(ids, ids != END))


def score(translations, references, arguments):
    """BLEU for files, and the share that is exactly right for dates."""
    if not arguments.valid:
        return float(np.mean([a == b for a, b in zip(translations, references, strict=True)]))
    import sacrebleu

    return sacrebleu.metrics.BLEU().corpus_score(translations, [references]).score


def report(summary, test, translations):
    """Prints samples of the test set, and the scores."""
    print("\nSamples of the test set:")
    for source, found, reference in list(zip(test[0], translations, test[1], strict=True))[:6]:
        print(f"  {source}\n    -> {found}    (reference: {reference})")
    perplexity = f"validation perplexity {summary['validation_perplexity']:.3f}"
    print(f"\n{summary['attention']}: {perplexity}")
    if members := summary.get("members"):
        for member in members:
            print(f"seed {member['seed']}, {DIRECTIONS[member['backward']]}: {member['score']:.4g}")
        mean = np.mean([member["score"] for member in members])
        print(f"mean {mean:.4g}, all together {summary['score']:.4g}")
    if "without_attention" not in summary:
        print(f"BLEU, or exactly right: {summary['score']:.4g}")
        return
    print(f"exactly right: {summary['score']:.1%} of {len(translations):,} unseen dates")
    print(f"the same model without attention: {summary['without_attention']:.1%}")


def save(model, subwords, texts, options, arguments):
    """Writes and checks the `.keras` file, the SavedModel and the picture of a model."""
    output = arguments.output
    tokenizers = source_tokenizer, target_tokenizer = make_tokenizers(subwords)
    source = source_tokenizer.tokenize(texts).to_tensor(PAD).numpy()
    found = model.generate(source, **options)
    write_model(model, output / "model.keras", [source, found.tokens])
    expected = [x.decode() for x in detokenize(target_tokenizer, *found[:2]).numpy()]
    if keras.backend.backend() == "tensorflow":
        path = output / "saved_model"
        functions = {"tokenize": lambda texts: source_tokenizer.tokenize(texts).to_tensor(PAD)}
        functions["detokenize"] = partial(detokenize, target_tokenizer)
        model.export_generate(path, **functions, tracked=tokenizers, **options)
        command = [sys.executable, "-c", PROGRAM, str(path), json.dumps(texts)]
        printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        if json.loads(printed.splitlines()[-1]) != expected:
            raise SystemExit(f"{path} differs in a new process: {printed}, expected {expected}")
        print(f"{path}: strings to strings, tokens and weights; it ran in a process without keras")
    picture = output / "alignment.png"
    picture.unlink(missing_ok=True)
    if arguments.attention != "none":
        source, target = (
            _labels([x.decode() for x in tokenizer.id_to_string(ids[0]).numpy()])
            for tokenizer, ids in zip(tokenizers, (source, found.tokens), strict=True)
        )
        weights = found.weights[0, : len(target), : len(source)]
        title = f"{texts[0]}  →  {expected[0]}"
        save_figure(picture, plot_attention(weights, source, target, title=title))
        print(f"{picture}: which source the words of a translation looked at")


def _labels(tokens):
    """Tokens up to the end, with visible signs for spaces and for the end."""
    end = tokens.index("</s>") if "</s>" in tokens else len(tokens)
    return [token.replace("▁", "␣") for token in tokens[:end]] + ["⏎"] * (end < len(tokens))
