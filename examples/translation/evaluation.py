"""Translates texts, says how good the translations are, and writes the files of a model."""

import json
import subprocess
import sys

import keras
import numpy as np

from examples.common.arguments import silence
from examples.common.files import save_figure
from examples.common.training import DIRECTIONS, combine, write_model
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


def judge(models, summaries, test, options, arguments):
    """Translates the test set with all models together, and with each of them.

    Returns the model or the ensemble, the translations, and their part of the summary.
    """
    ahead = len(models) - arguments.backward
    model = combine(models[:ahead], models[ahead:])
    translations = translate(model, test[0], **options)
    summary = {"score": score(translations, test[1], arguments)}
    if len(models) > 1:
        summary["members"] = []
        for each, of in zip(models, summaries, strict=True):
            found = translate(each, test[0], of["backward"], **options)
            summary["members"].append({**of, "score": score(found, test[1], arguments)})
    return model, translations, summary


def translate(model, texts, backward=False, **options):
    """Translates texts. `Seq2Seq.generate` takes the options."""
    found = model.generate(texts, **options)
    if not backward:
        return found.texts
    return [*map(model.target_text.decode, reverse_tokens(found.tokens, model.end_token))]


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


def save(model, texts, options, arguments):
    """Writes and checks the `.keras` file, the SavedModel and the picture of a model."""
    output, found = arguments.output, model.generate(texts, **options)
    write_model(model, output / "model.keras", [*model.tokenize(texts, found.texts)])
    if keras.backend.backend() == "tensorflow":
        path = output / "saved_model"
        with silence():  # SentencePiece logs that it normalises nothing
            model.export_generate(path, **options)
        command = [sys.executable, "-c", PROGRAM, str(path), json.dumps(texts)]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode:
            raise SystemExit(f"{path} fails in a new process:\n{run.stderr}")
        if json.loads(run.stdout.splitlines()[-1]) != found.texts:
            different = f"{run.stdout}, expected {found.texts}"
            raise SystemExit(f"{path} differs in a new process: {different}")
        print(f"{path}: strings to strings, tokens and weights; it ran in a process without keras")
    picture = output / "alignment.png"
    picture.unlink(missing_ok=True)
    if arguments.attention != "none":
        title = f"{texts[0]}  →  {found.texts[0]}"
        save_figure(picture, plot_attention(*found.alignment(0), title=title))
        print(f"{picture}: which source the words of a translation looked at")
