"""The command line of the translation."""

import pathlib

from examples.common import arguments as types
from examples.common.records import add_record
from examples.translation.model import ATTENTIONS

# These change no weight.
FREE = ("record", "output", "train", "shards", "valid", "test", "ensemble", "backward", "beam")


def parse(argv=None, description=None):
    parser = types.make_parser("translation", description)
    add, pair = parser.add_argument, {"nargs": 2, "metavar": ("SRC", "TGT")}
    pairs = parser.add_mutually_exclusive_group()
    pairs.add_argument("--train", **pair, help="line-aligned text files")
    pairs.add_argument("--shards", metavar="DIR", help="to train on, in place of --train")
    add("--valid", **pair)
    add("--test", **pair)
    text = "of one GRU; stack: a DecoderStack of two with Bahdanau's (default: bahdanau)"
    add("--attention", choices=ATTENTIONS, default="bahdanau", help=text)
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
    add("--save-every", type=types.count, metavar="N", help="steps (default: 500); for shards")
    add("--batch-size", type=types.count, help="default: 64")
    add("--learning-rate", type=types.number, help="the highest one (default: 0.002)")
    add("--dropout", type=types.share, help="default: 0.1; files: 0.3")
    add("--smoothing", type=types.share, help="of labels (default: 0; files: 0.1)")
    add("--seed", type=types.seed, default=1)
    add("--output", type=pathlib.Path, default="output/translate", help="folder for the results")
    add_record(parser)
    options = parser.parse_args(argv)
    files = [options.train or options.shards, options.valid, options.test]
    steps, every = options.steps, options.save_every or min(500, options.steps or 500)
    checks = {
        "give --train (or --shards), --valid and --test, or none": any(files) and not all(files),
        "--shards needs --steps, and no --epochs": options.shards and (options.epochs or not steps),
        "--steps and --save-every go with --shards": (steps or options.save_every)
        and not options.shards,
        f"--steps must be a multiple of --save-every, {every}": (steps or 0) % every,
        "--units must be even, half for each direction": (options.units or 0) % 2,
        "--input-feeding goes with the luong attentions": options.input_feeding
        and not options.attention.startswith("luong"),
    }
    for message, wrong in checks.items():
        if wrong:
            parser.error(message)
    types.check_directions(parser, options)
    defaults = {"epochs": 5, "units": 128, "embedding": 64, "dropout": 0.1, "smoothing": 0.0}
    if any(files):
        defaults = {"epochs": 8, "units": 256, "embedding": 256, "dropout": 0.3, "smoothing": 0.1}
    if options.shards:
        defaults |= {"epochs": steps // every, "save_every": every}
    return types.fill(options, {**defaults, "batch_size": 64, "learning_rate": 2e-3})


def settings_of(seed, backward, options):
    """What the weights of a model depend on, but for its data, and the folder of its states."""
    name = f"checkpoint-{options.attention}{'-backward' * backward}"
    folder = options.output / (name + f"-seed-{seed}" * (seed != options.seed))
    settings = {name: value for name, value in vars(options).items() if name not in FREE}
    return folder, {**settings, "seed": seed, "backward": backward}
