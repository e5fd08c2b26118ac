"""Translation with attention (Bahdanau et al., 2015; Luong et al., 2015).

    python -m examples.translation

learns in three minutes on two cores to turn written dates into ISO dates ("the third of May, 1998"
-> "1998-05-03"), with and without attention. It writes a picture of the attention, a `.keras` file,
and a SavedModel from strings to strings, which it then runs in a process without keras.

    python -m examples.translation --train train.de train.en --valid val.de val.en \\
        --test test.de test.en --attention luong-general --units 512 --epochs 12

does the same for any two files whose lines are translations of each other, and reports BLEU. The
same command resumes an interrupted run. With `--ensemble 4 --backward 2`, four models translate
together, and two of them write from right to left.

    python -m examples.translation.shards train.de train.en --output DIR
    python -m examples.translation --shards DIR --steps 20000 --valid val.de val.en \\
        --test test.de test.en

trains on a corpus that is larger than memory. An epoch is --save-every steps.
"""

import argparse
import pathlib

import keras
import numpy as np

from examples.common import arguments as types
from examples.common.files import fingerprint, own_folder, write_json, write_text
from examples.common.records import add_record, write_record
from examples.common.training import DIRECTIONS, Resume, pair_batches, seed_model, warmup_cosine
from examples.translation.data import drop_long, encode, learn_subwords, load_data
from examples.translation.evaluation import judge, report, save
from examples.translation.model import ATTENTIONS, SmoothedCrossEntropy, build_model
from examples.translation.shards import Shards, Stream

# These change no weight.
FREE = ("output", "train", "shards", "valid", "test", "ensemble", "backward", "beam", "record")


def parse(argv=None):
    parser = types.make_parser("translation", __doc__)
    add, pair = parser.add_argument, {"nargs": 2, "metavar": ("SRC", "TGT")}
    pairs = parser.add_mutually_exclusive_group()
    pairs.add_argument("--train", **pair, help="line-aligned text files")
    pairs.add_argument("--shards", metavar="DIR", help="to train on, in place of --train")
    add("--valid", **pair)
    add("--test", **pair)
    add("--attention", choices=ATTENTIONS, default="bahdanau", help="(default: bahdanau)")
    add("--input-feeding", action="store_true", help="for the luong attentions")
    add("--window", type=types.count, default=10, help="D of local attention")
    add("--beam", type=types.count, default=5, metavar="N", help="width of the search")
    types.add_directions(parser)
    add("--units", type=types.count, help="width of the decoder (default: 128; files: 256)")
    add("--embedding", type=types.count, help="width of words (default: 64; files: 256)")
    add("--vocabulary", type=types.count, default=4000, help="subwords of each language")
    add("--max-tokens", type=types.count, default=100, help="of a training sentence")
    add("--epochs", type=types.count, help="default: 5; files: 8")
    add("--steps", type=types.count, metavar="N", help="of training; --shards needs it")
    add("--save-every", type=types.count, default=500, metavar="N", help="steps, for shards")
    add("--batch-size", type=types.count, default=64)
    add("--learning-rate", type=types.number, default=2e-3, help="the highest one")
    add("--dropout", type=types.share, help="default: 0.1; files: 0.3")
    add("--seed", type=types.seed, default=1)
    add("--output", type=pathlib.Path, default="output/translate", help="folder for the results")
    add_record(parser)
    options = parser.parse_args(argv)
    files = [options.train or options.shards, options.valid, options.test]
    steps, luong = options.steps or 0, options.attention.startswith("luong")
    every = options.save_every = min(options.save_every, steps or options.save_every)
    checks = {
        "give --train (or --shards), --valid and --test, or none": any(files) and not all(files),
        "--shards needs --steps, and no --epochs": options.shards and (options.epochs or not steps),
        "--steps goes with --shards": steps and not options.shards,
        f"--steps must be a multiple of --save-every, {every}": steps % every,
        "--units must be even, half for each direction": (options.units or 0) % 2,
        "--input-feeding goes with the luong attentions": options.input_feeding and not luong,
    }
    for message, wrong in checks.items():
        if wrong:
            parser.error(message)
    types.check_directions(parser, options)
    defaults = {"epochs": 5, "units": 128, "embedding": 64, "dropout": 0.1, "smoothing": 0.0}
    if any(files):
        defaults = {"epochs": 8, "units": 256, "embedding": 256, "dropout": 0.3, "smoothing": 0.1}
    if options.shards:
        defaults["epochs"] = steps // every
    return types.fill(options, defaults)


def train(seed, backward, texts, tokenizers, options):
    """Trains a model, or resumes. Returns it with its best weights, and a summary."""
    seed_model(seed)
    size, longest = options.batch_size, options.max_tokens
    if options.shards:
        shards, steps = texts["train"], options.save_every
        batches = Stream(shards, tokenizers, size, longest, seed, backward, steps)
        digest = shards.digest
    else:
        pairs = drop_long(encode(tokenizers, texts["train"], backward), longest)
        batches, digest = pair_batches(pairs, size, seed), fingerprint(pairs)
        longest = max(len(target) for _, target in pairs)
    pairs = encode(tokenizers, texts["valid"], backward)
    valid = pair_batches(pairs, size).dataset()
    settings = {name: value for name, value in vars(options).items() if name not in FREE}
    # The best weights depend on the validation data too.
    settings |= {"data": digest, "validation data": fingerprint(pairs)}
    settings |= {"seed": seed, "backward": backward}
    name = f"checkpoint-{options.attention}{'-backward' * backward}-{seed}"
    resume = Resume(options.output / name, settings, batches)
    print(f"\nattention: {options.attention}, {DIRECTIONS[backward]}, seed {seed}", flush=True)

    model = build_model(tokenizers, options)
    rate = warmup_cosine(options.learning_rate, batches.steps * options.epochs, last=0.01)
    optimizer = keras.optimizers.Adam(rate, global_clipnorm=1.0)
    model.compile(optimizer, SmoothedCrossEntropy(options.smoothing))
    resume.fit(model, options.epochs, valid, "val_loss")
    resume.load_best(model)

    nats = keras.metrics.SparseCategoricalCrossentropy(from_logits=True, name="nats")
    model.compile(metrics=[nats])
    perplexity = np.exp(model.evaluate(valid, verbose=0, return_dict=True)["nats"])
    # A model without an optimizer: its files are a third as large.
    weights, model = model.get_weights(), build_model(tokenizers, options)
    model.set_weights(weights)
    losses = resume.losses("val_loss")
    summary = {"seed": seed, "backward": backward, "max_length": longest}
    summary |= {"best_epoch": min(losses, key=losses.get) + 1}
    return model, {**summary, "validation_perplexity": float(perplexity)}


def train_all(texts, tokenizers, options):
    """Trains the models: the model or ensemble, options of its search, translations, a summary."""
    trained = [train(*member, texts, tokenizers, options) for member in types.members(options)]
    models, summaries = zip(*trained, strict=True)
    search = {"max_length": summaries[0]["max_length"], "beam_width": options.beam}
    model, found, judged = judge(models, summaries, texts["test"], search, options)
    name = options.attention + " with input feeding" * options.input_feeding
    summary = {"attention": name, "parameters": sum(x.count_params() for x in models)}
    return model, search, found, {**summary, **summaries[0], **judged}


def main(argv=None):
    options = parse(argv)
    shards = ["grain", "array_record"] if options.shards else []
    types.check_extras("tensorflow_text", "sentencepiece", "sacrebleu", "matplotlib", *shards)
    texts = load_data(options)
    if options.shards:
        texts["train"] = Shards(options.shards)
    own_folder(options.output)
    sample = texts["train"].sample(100_000, options.seed) if options.shards else texts["train"]
    kind = "bpe" if options.valid else "char"
    tokenizers = [learn_subwords(side, options.vocabulary, kind) for side in sample]
    model, search, translations, summary = train_all(texts, tokenizers, options)
    if not options.valid and options.attention != "none":
        changes = {"attention": "none", "ensemble": 1, "backward": 0}
        without = argparse.Namespace(**{**vars(options), **changes})
        summary["without_attention"] = train_all(texts, tokenizers, without)[-1]["score"]
    write_text(options.output / "translations.txt", "\n".join(translations) + "\n")
    write_json(options.output / "summary.json", summary)
    figures, seeds = dict(summary), [seed for seed, _ in types.members(options)]
    if not options.valid:
        scores = {"right, %": "score", "right without attention, %": "without_attention"}
        figures |= {name: 100 * summary[x] for name, x in scores.items() if x in summary}
    write_record(options.record, figures, seeds=seeds)
    report(summary, texts["test"], translations)
    save(model, texts["test"][0][:4], search, options)


if __name__ == "__main__":
    types.run(main)
