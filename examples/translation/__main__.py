"""Translation with attention (Bahdanau et al., 2015; Luong et al., 2015).

    python -m examples.translation

learns to turn written dates into ISO dates ("the third of May, 1998" -> "1998-05-03") from
generated pairs. Beside it, the same model learns without attention. This takes about three minutes
on two cores, and at least 99% of 1,000 unseen dates come out right. The command writes a picture
of the attention, a `.keras` file, and a SavedModel from strings to strings, which it then runs in a
process without keras.

    python -m examples.translation --train train.de train.en --valid val.de val.en \\
        --test test.de test.en --attention luong-general --units 512 --epochs 12

does the same for any two files whose lines are translations of each other. It learns subwords from
the training files and reports BLEU. An interrupted run resumes when the same command is run again.
Multi30k, the corpus of docs/results/multi30k.md, is at https://github.com/multi30k/dataset.

    python -m examples.translation.shards train.de train.en --output DIR
    python -m examples.translation --shards DIR --steps 20000 --valid val.de val.en \\
        --test test.de test.en

trains on a corpus of any size. The first command writes shards, ArrayRecord files in which every
pair can be read without those before it. The second shuffles the whole corpus through Grain and
buckets it by length. Memory grows by a third of a byte per pair. Checkpoints hold the place in the
shards, so an interrupted run resumes with exactly the next pair. Subwords are learned from
100,000 random pairs.

With `--ensemble 4`, four models translate together; their seeds differ. With `--backward 2`, two of
them write from right to left, and both directions score what the others find. `--compare-searches`
prints what greedy search, beam search, penalties and blocked repetitions reach on the test set.
"""

import argparse
import json
import pathlib

from examples.common.arguments import (
    add_directions,
    check_at_least_one,
    check_directions,
    check_ranges,
    check_seed,
    fill,
    make_parser,
)
from examples.common.extras import check_extras
from examples.common.files import make_folder, write_text
from examples.translation.data import learn_subwords, load_data, make_tokenizers
from examples.translation.evaluation import bleu_report, report
from examples.translation.export import save
from examples.translation.model import ATTENTIONS
from examples.translation.streaming import Shards
from examples.translation.training import checkpoint_folder, members, run, search_options

SUBWORD_PAIRS = 100_000


def parse(argv):
    parser = make_parser("translation", __doc__)
    files = {"nargs": 2, "metavar": ("SRC", "TGT")}
    parser.add_argument("--train", **files, help="line-aligned text files")
    parser.add_argument("--shards", metavar="DIR", help="to train on, in place of --train")
    parser.add_argument("--valid", **files)
    parser.add_argument("--test", **files)
    parser.add_argument("--attention", choices=ATTENTIONS, default="bahdanau")
    parser.add_argument("--input-feeding", action="store_true", help="for the luong attentions")
    parser.add_argument("--window", type=int, default=10, help="D of local attention")
    parser.add_argument("--beam", type=int, default=5, metavar="N", help="width of the search")
    parser.add_argument("--length-penalty", type=float, default=1.0, help="of the search")
    parser.add_argument("--coverage-penalty", type=float, default=0.0, help="of the search")
    parser.add_argument(
        "--no-repeat-ngram-size", type=int, default=0, metavar="N", help="no N tokens come twice"
    )
    parser.add_argument("--compare-searches", action="store_true", help="print a table of searches")
    add_directions(parser)
    parser.add_argument("--units", type=int, help="width of the decoder (default: 128; files: 256)")
    parser.add_argument("--embedding", type=int, help="width of words (default: 64; files: 256)")
    parser.add_argument("--vocabulary", type=int, default=4000, help="subwords of each language")
    parser.add_argument("--max-tokens", type=int, default=100, help="of a training sentence")
    parser.add_argument("--epochs", type=int, help="default: 5; files: 8")
    parser.add_argument("--steps", type=int, metavar="N", help="of training; --shards needs it")
    parser.add_argument("--save-every", type=int, help="steps (default: 500); for shards")
    parser.add_argument("--batch-size", type=int, help="default: 64")
    parser.add_argument("--learning-rate", type=float, help="the highest one (default: 0.002)")
    parser.add_argument("--dropout", type=float, help="default: 0.1; files: 0.3")
    parser.add_argument("--smoothing", type=float, help="of labels (default: 0; files: 0.1)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", default="output/translate", help="folder for the results")
    parser.add_argument("--smoke", action="store_true", help="dates in two formats, in a minute")
    arguments = parser.parse_args(argv)
    if arguments.train and arguments.shards:
        parser.error("--shards takes the place of --train: give one of them")
    given = [arguments.train or arguments.shards, arguments.valid, arguments.test]
    if any(given) and not all(given):
        parser.error(
            "--train (or --shards), --valid and --test belong together: give all three or none"
        )
    if arguments.shards and (arguments.epochs is not None or arguments.steps is None):
        parser.error("--shards needs --steps, and no --epochs")
    if not arguments.shards and (arguments.steps, arguments.save_every) != (None, None):
        parser.error("--steps and --save-every go with --shards; otherwise give --epochs")
    if arguments.smoke and any(given):
        parser.error("--smoke uses generated dates: leave out the options of files")
    if arguments.input_feeding and arguments.attention in ("bahdanau", "none"):
        parser.error("--input-feeding goes with the luong attentions")
    if arguments.coverage_penalty and arguments.attention == "none":
        parser.error("--coverage-penalty needs an attention")
    positive = ["window", "beam", "units", "embedding", "vocabulary", "max_tokens", "epochs"]
    positive += ["batch_size", "steps", "save_every", "ensemble"]
    check_at_least_one(parser, arguments, positive)
    ranges = {"dropout": 1, "smoothing": 1, "length_penalty": 5, "coverage_penalty": 1e6}
    ranges |= dict.fromkeys(("learning_rate", "no_repeat_ngram_size"), float("inf"))
    check_ranges(parser, arguments, ranges)
    check_seed(parser, arguments)
    if arguments.seed + arguments.ensemble > 2**32:
        parser.error(f"--seed must be at most {2**32 - arguments.ensemble} for this --ensemble")
    check_directions(parser, arguments)
    if arguments.backward and (arguments.coverage_penalty or arguments.compare_searches):
        parser.error("--coverage-penalty and --compare-searches cannot be combined with --backward")
    if arguments.units is not None and arguments.units % 2:
        parser.error(f"--units must be even, half for each direction; received {arguments.units}")
    defaults = {"batch_size": 64, "learning_rate": 2e-3}
    if any(given):
        defaults |= {"save_every": 500} if arguments.shards else {"epochs": 8}
        defaults |= {"units": 256, "embedding": 256, "dropout": 0.3, "smoothing": 0.1}
    else:
        defaults |= {"epochs": 5, "units": 128, "embedding": 64, "dropout": 0.1, "smoothing": 0.0}
    if arguments.smoke:
        defaults |= {"epochs": 5, "batch_size": 32, "learning_rate": 4e-3}
    return fill(arguments, defaults)


def learn_both(train, arguments):
    """Learns the subwords of source and target."""
    sample = train.sample(SUBWORD_PAIRS, arguments.seed) if arguments.shards else train
    kind = "bpe" if arguments.valid else "char"
    return [learn_subwords(side, arguments.vocabulary, kind) for side in sample]


def without_attention(arguments):
    """The arguments of the baseline."""
    changes = {"attention": "none", "coverage_penalty": 0.0}
    changes |= {"ensemble": 1, "backward": 0, "compare_searches": False}
    return argparse.Namespace(**{**vars(arguments), **changes})


def main(argv=None):
    arguments = parse(argv)
    check_extras("tensorflow_text", "sentencepiece", "sacrebleu", "matplotlib")
    if arguments.shards:
        check_extras("grain", "array_record", extra="shards")
    texts = load_data(arguments)
    if arguments.shards:
        texts["train"] = Shards(arguments.shards)
    output = pathlib.Path(arguments.output)
    make_folder(output)
    compared = not arguments.valid and arguments.attention != "none" and not arguments.smoke
    for each in [arguments, *([without_attention(arguments)] if compared else [])]:
        for member in members(each):
            make_folder(checkpoint_folder(*member, each))
    subwords = learn_both(texts["train"], arguments)
    model, longest, translations, summary = run(texts, subwords, arguments)
    if arguments.valid:
        summary["BLEU"] = bleu_report(texts["test"][0], translations, texts["test"][1])
    elif compared:
        *_, baseline = run(texts, subwords, without_attention(arguments))
        summary["exact_without_attention"] = baseline["exact"]
    write_text(output / "translations.txt", "\n".join(translations) + "\n")
    report(summary, texts["test"], translations)
    attends, options = arguments.attention != "none", search_options(arguments)
    tokenizers = make_tokenizers(subwords)
    save(model, tokenizers, texts["test"][0], output, longest, attends, **options)
    write_text(output / "summary.json", json.dumps(summary, indent=1, ensure_ascii=False) + "\n")
    if arguments.smoke and summary["exact"] < 0.5:
        raise SystemExit(f"smoke run: only {summary['exact']:.1%} right, expected at least 50%")


if __name__ == "__main__":
    main()
