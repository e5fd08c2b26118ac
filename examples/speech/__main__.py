"""Speech with attentions that remember where they looked.

    python -m examples.speech

learns a generated language of tones: `listen` turns its sound into letters, `speak` turns letters
into sound, and then listens to what it says. Each takes about five minutes on two cores. Trained on
texts of at most 20 letters, both are judged on texts of 20, 50, 200 and 500 letters. Each writes an
alignment picture, WAV files, a `.keras` file, and a SavedModel (text to waveform, waveform to
text), which it then runs in a process without keras.

    python -m examples.speech listen --attention content
    python -m examples.speech speak --attention location

does one of both with another attention. What `speak` says is judged by a Viterbi decoder of the
tones, and by the listener in the same --output or the one of --listener.

    python -m examples.speech --data DIR

does the same with recordings of spoken digits in random strings, `DIR` being the folder
`recordings` of https://github.com/Jakobovski/free-spoken-digit-dataset, or `--data download`.
`speak` learns one voice. An interrupted run resumes when the same command is run again.
"""

import pathlib

import keras

from examples.common.arguments import (
    check_at_least_one,
    check_ranges,
    check_seed,
    fill,
    make_parser,
)
from examples.common.extras import check_extras
from examples.common.files import make_folder
from examples.speech.digits import Digits, find_folder
from examples.speech.model import ATTENTIONS
from examples.speech.tasks import TASKS, run_listen, run_speak
from examples.speech.tones import Tones


def parse(argv):
    parser = make_parser("speech", __doc__)
    parser.add_argument("task", nargs="?", choices=TASKS, help="default: both")
    parser.add_argument("--attention", choices=ATTENTIONS, default="gmm")
    parser.add_argument("--data", metavar="DIR", help='recordings of digits, or "download"')
    parser.add_argument("--voice", help="the speaker that `speak` learns (default: the first)")
    parser.add_argument("--units", type=int, default=128, help="width of the decoder")
    parser.add_argument("--utterances", type=int, default=3000, help="to train on")
    parser.add_argument("--longest", type=int, help="letters (default: 20, or 5 digits)")
    parser.add_argument(
        "--lengths", type=int, nargs="+", help="to judge (default: 20 50 200 500, or 4 5 30 digits)"
    )
    epochs = ", ".join(f"{task.epochs} for {name}" for name, task in TASKS.items())
    parser.add_argument("--epochs", type=int, help=f"default: {epochs}")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=2e-3, help="the highest one")
    parser.add_argument("--beam", type=int, default=5, metavar="N", help="width of the search")
    parser.add_argument(
        "--half-width",
        type=int,
        metavar="D",
        help="read only within D places of the place read last; when judging, not in training",
    )
    parser.add_argument(
        "--listener",
        metavar="FILE",
        help="the model.keras of the listener that judges `speak` (default: the one in --output)",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", default="output/speech", help="folder for the results")
    arguments = parser.parse_args(argv)
    digits = arguments.data is not None
    fill(
        arguments,
        {"longest": 5 if digits else 20, "lengths": [4, 5, 30] if digits else [20, 50, 200, 500]},
    )
    arguments.most_steps = 40 if digits else 8  # of the speaker for a letter
    names = ["units", "utterances", "longest", "epochs", "batch_size", "beam", "half_width"]
    check_at_least_one(parser, arguments, names)
    check_ranges(parser, arguments, {"learning_rate": float("inf")})
    check_seed(parser, arguments)
    if arguments.units % 4:
        parser.error(f"--units must be a multiple of 4; received {arguments.units}")
    if min(arguments.lengths) < 1:
        parser.error(f"--lengths must be at least 1; received {min(arguments.lengths)}")
    if arguments.half_width and arguments.attention == "content":
        parser.error("--half-width goes with an attention that has a state, not with content")
    if arguments.listener and not pathlib.Path(arguments.listener).is_file():
        parser.error(f"--listener {arguments.listener}: no such file")
    if arguments.voice and not digits:
        parser.error("--voice goes with --data")
    return arguments


def main(argv=None):
    arguments = parse(argv)
    check_extras("matplotlib")
    language = Digits(find_folder(arguments.data)) if arguments.data else Tones()
    voice = language.with_voice(arguments.voice) if arguments.data else language
    output = pathlib.Path(arguments.output)
    tasks = [arguments.task] if arguments.task else list(TASKS)
    folders = {name: make_folder(output / name) for name in tasks}
    if "listen" in tasks:
        run_listen(language, arguments, folders["listen"])
    if "speak" in tasks:
        path = pathlib.Path(arguments.listener or output / "listen" / "model.keras")
        listener = load_listener(path) if path.exists() else None
        run_speak(voice, arguments, folders["speak"], listener)


def load_listener(path):
    try:
        return keras.saving.load_model(path)
    except ValueError as error:
        raise SystemExit(f"{path} is not a model that `listen` has saved: {error}") from error


if __name__ == "__main__":
    main()
