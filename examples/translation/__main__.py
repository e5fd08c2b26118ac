"""Translation with attention (Bahdanau et al., 2015; Luong et al., 2015).

    python -m examples.translation

learns in three minutes on two cores to turn written dates into ISO dates ("the third of May, 1998"
-> "1998-05-03"), with and without attention. It writes a picture of the attention, a `.keras` file,
and a SavedModel from strings to strings, which it then runs in a process without keras.

    python -m examples.translation --train train.de train.en --valid val.de val.en \\
        --test test.de test.en --attention luong-general --units 512 --epochs 12

does the same for any two files whose lines are translations of each other, and reports BLEU. The
same command resumes an interrupted run. With `--ensemble 4`, four models with different seeds
translate together. With `--backward 2`, two of them write from right to left.

    python -m examples.translation.shards train.de train.en --output DIR
    python -m examples.translation --shards DIR --steps 20000 --valid val.de val.en \\
        --test test.de test.en

trains on a corpus that is larger than memory. An epoch is --save-every steps.
"""

import argparse
import json
import sys

import keras
import numpy as np
import tensorflow as tf

from examples.common.arguments import check_extras, command_line, members, run
from examples.common.files import fingerprint, own_folder, write_text
from examples.common.records import write_record
from examples.common.training import Resume, direction, pair_batches, seed_model, warmup_cosine
from examples.translation.data import encode, learn_subwords, load_data, make_tokenizers
from examples.translation.evaluation import bleu_report, judge, report, save
from examples.translation.model import SmoothedCrossEntropy, build_model
from examples.translation.options import parse, settings_of
from examples.translation.shards import Shards, training_batches


def train(seed, backward, texts, subwords, options):
    """Trains a model, or resumes. Returns it with its best weights, and a summary."""
    seed_model(seed)
    tokenizers = make_tokenizers(subwords)
    sizes = [int(tokenizer.vocab_size()) for tokenizer in tokenizers]
    batches, digest, longest = training_batches(texts["train"], tokenizers, seed, backward, options)
    pairs = encode(tokenizers, texts["valid"], backward)
    valid = pair_batches(pairs, options.batch_size).dataset()
    folder, settings = settings_of(seed, backward, options)
    # The best weights depend on the validation data too.
    settings |= {"data": digest, "validation data": fingerprint(json.dumps(pairs).encode())}
    resume = Resume(folder, settings, batches)
    print(f"\nattention: {options.attention}, {direction(backward)}, seed {seed}", flush=True)

    model = build_model(sizes, options)
    rate = warmup_cosine(options.learning_rate, batches.steps * options.epochs, last=0.01)
    optimizer = keras.optimizers.Adam(rate, global_clipnorm=1.0)
    model.compile(optimizer, SmoothedCrossEntropy(options.smoothing))
    model.fit(
        batches.dataset(),
        validation_data=valid,
        epochs=options.epochs,
        initial_epoch=resume.restore(model),
        callbacks=resume.callbacks("val_loss"),
        shuffle=False,
        verbose=int(sys.stdout.isatty()),
    )
    resume.load_best(model)

    nats = keras.metrics.SparseCategoricalCrossentropy(from_logits=True, name="nats")
    model.compile(metrics=[nats])
    perplexity = np.exp(model.evaluate(valid, verbose=0, return_dict=True)["nats"])
    # The files of a model without an optimizer are a third as large.
    weights, model = model.get_weights(), build_model(sizes, options)
    model.set_weights(weights)
    best = min(resume.history, key=lambda row: row["val_loss"])
    return model, {
        "seed": seed,
        "backward": backward,
        "max_length": longest,
        "seconds_a_step": np.median([row["seconds"] for row in resume.history]) / batches.steps,
        "best_epoch": int(best["epoch"]) + 1,
        "validation_perplexity": float(perplexity),
    }


def train_all(texts, subwords, options):
    """Trains the models and translates the test set.

    Returns the model or the ensemble, the options of its search, the translations and a summary.
    """
    models, summaries = zip(
        *(train(*member, texts, subwords, options) for member in members(options)), strict=True
    )
    search = {"max_length": summaries[0]["max_length"], "beam_width": options.beam}
    model, found, judged = judge(models, summaries, subwords, texts["test"], search, options)
    summary = {
        "attention": options.attention + " with input feeding" * options.input_feeding,
        "command": command_line("translation"),
        "keras": keras.__version__,
        "tensorflow": tf.__version__,
        "parameters": sum(x.count_params() for x in models),
        **summaries[0],
        **judged,
    }
    return model, search, found, summary


def main(argv=None):
    options = parse(argv, __doc__)
    shards = ["grain", "array_record"] if options.shards else []
    check_extras("tensorflow_text", "sentencepiece", "sacrebleu", "matplotlib", *shards)
    texts = load_data(options)
    if options.shards:
        texts["train"] = Shards(options.shards)
    own_folder(options.output)
    sample = texts["train"].sample(100_000, options.seed) if options.shards else texts["train"]
    kind = "bpe" if options.valid else "char"
    subwords = [learn_subwords(side, options.vocabulary, kind) for side in sample]
    model, search, translations, summary = train_all(texts, subwords, options)
    if options.valid:
        summary["BLEU"] = bleu_report(texts["test"][0], translations, texts["test"][1])
    elif options.attention != "none":
        changes = {"attention": "none", "ensemble": 1, "backward": 0}
        without = argparse.Namespace(**{**vars(options), **changes})
        summary["exact_without_attention"] = train_all(texts, subwords, without)[-1]["exact"]
    write_text(options.output / "translations.txt", "\n".join(translations) + "\n")
    write_text(options.output / "summary.json", json.dumps(summary, indent=1) + "\n")
    report(summary, texts["test"], translations)
    shares = {"right, %": "exact", "right without attention, %": "exact_without_attention"}
    percent = {name: 100 * summary[x] for name, x in shares.items() if x in summary}
    write_record(options.record, {**summary, **percent}, seeds=[x for x, _ in members(options)])
    save(model, subwords, texts["test"][0][:4], search, options)


if __name__ == "__main__":
    run(main)
