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

import json
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
from keras.losses import BinaryCrossentropy, MeanSquaredError, SparseCategoricalCrossentropy

from examples.common.arguments import (
    check_at_least_one,
    check_ranges,
    check_seed,
    command_line,
    fill,
    make_parser,
)
from examples.common.checkpoint import Checkpoint
from examples.common.extras import check_extras
from examples.common.files import make_folder, write_text
from examples.common.saving import write_model
from examples.common.seeds import seed_model
from examples.speech.data import (
    FIRST,
    listener_batch,
    make_corpus,
    speaker_batch,
    steps_of_a_letter,
)
from examples.speech.digits import Digits, find_folder
from examples.speech.evaluation import judge_listener, judge_speaker
from examples.speech.export import check_listener, check_speaker, save_listener, save_speaker
from examples.speech.listening import Listener
from examples.speech.model import ATTENTIONS, build_listener, build_speaker, make_attention
from examples.speech.picture import draw
from examples.speech.sound import sound, write_wav
from examples.speech.speaking import Speaker
from examples.speech.tones import Tones
from examples.speech.training import train

VALID = 128  # utterances


class Task(NamedTuple):
    build: Callable
    make_batch: Callable
    loss: Any
    attention: str  # the default


MEAN = {"reduction": "mean_with_sample_weight"}
TASKS = {
    "listen": Task(
        build_listener,
        listener_batch,
        SparseCategoricalCrossentropy(from_logits=True, **MEAN),
        "gmm",
    ),
    "speak": Task(
        build_speaker,
        speaker_batch,
        {
            "frames": MeanSquaredError(**MEAN),
            "stop": BinaryCrossentropy(from_logits=True, **MEAN),
        },
        "dynamic-convolution",
    ),
}
# Options that change no weight.
FREE = "output", "beam", "lengths", "task", "data", "most_steps", "half_width", "listener"


def parse(argv):
    parser = make_parser("speech", __doc__)
    parser.add_argument("task", nargs="?", choices=TASKS, help="default: both")
    defaults = ", ".join(f"{task.attention} for {name}" for name, task in TASKS.items())
    parser.add_argument("--attention", choices=ATTENTIONS, help=f"default: {defaults}")
    parser.add_argument("--data", metavar="DIR", help='recordings of digits, or "download"')
    parser.add_argument("--voice", help="the speaker that `speak` learns (default: the first)")
    parser.add_argument("--units", type=int, default=128, help="width of the decoder")
    parser.add_argument("--utterances", type=int, default=3000, help="to train on")
    parser.add_argument("--longest", type=int, help="letters (default: 20, or 5 digits)")
    parser.add_argument(
        "--lengths", type=int, nargs="+", help="to judge (default: 20 50 200 500, or 4 5 30 digits)"
    )
    parser.add_argument("--epochs", type=int, default=20)
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


def learn(name, language, arguments, output):
    """Trains one model, or resumes its training. Returns it and a summary."""
    task = TASKS[name]
    attention = arguments.attention or task.attention
    settings = {x: y for x, y in vars(arguments).items() if x not in FREE}
    settings |= {"attention": attention, "voices": language.voices}
    checkpoint = Checkpoint(output / "checkpoint", settings)
    lengths = 1, arguments.longest
    corpora = {
        "train": make_corpus(language, "train", arguments.utterances, lengths, arguments.seed),
        "valid": make_corpus(language, "test", VALID, lengths, arguments.seed + 1),
    }
    steps = steps_of_a_letter(corpora["train"])
    pace = steps if name == "listen" else 1 / steps

    def build(half_width):
        layer = make_attention(attention, arguments.units // 2, pace, half_width)
        return task.build(layer, FIRST + len(language.letters), arguments.units)

    seed_model(arguments.seed)
    model = build(None)
    print(
        f"\n{name}: {attention}, {model.count_params():,} parameters, "
        f"{steps:.2f} steps of the decoder or memory for a letter",
        flush=True,
    )
    state = train(
        model, task.loss, task.make_batch, corpora, language.letters, settings, checkpoint
    )
    summary = {
        "attention": attention,
        "command": command_line("speech"),
        "keras": keras.__version__,
        "parameters": model.count_params(),
        "seconds": sum(entry["seconds"] for entry in state["history"]),
    }
    weights = model.get_weights()
    model = build(arguments.half_width)  # and without an optimizer
    model.set_weights(weights)
    sample = make_corpus(language, "test", 2, (3, 3), seed=1)
    inputs, _, _ = task.make_batch(sample.texts, sample.frames, language.letters)
    write_model(model, output / "model.keras", inputs)
    return model, summary


def run_listen(language, arguments, output):
    model, summary = learn("listen", language, arguments, output)
    found = judge_listener(model, language, arguments.lengths, arguments.beam)
    summary["error"] = {length: rate for length, (rate, _) in found.items()}
    for length in arguments.lengths[:2]:
        frames, wanted, heard, weights = found[length][1]
        write_wav(output / f"heard-{length}.wav", sound(frames))
        picture = output / f"alignment-{length}.png"
        draw(picture, frames, weights, [*heard, "end"], f"{wanted}, heard as {heard}")
    listener = Listener(model, arguments.beam, max(arguments.lengths) * 2)
    serve = save_listener(listener, language.letters, output / "saved_model")
    text = found[arguments.lengths[0]][1][1]
    samples = language.say(text, np.random.default_rng(1), "test")[None]
    check_listener(output / "saved_model", serve, samples)
    return summary


def run_speak(language, arguments, output, listener):
    model, summary = learn("speak", language, arguments, output)
    found = judge_speaker(model, listener, language, arguments)
    summary["error"] = {length: rates for length, (rates, _) in found.items()}
    for length in arguments.lengths[:2]:
        text, frames, weights = found[length][1]
        write_wav(output / f"said-{length}.wav", sound(frames))
        draw(output / f"alignment-{length}.png", frames, weights.T, text, f"says {text}")
    speaker = Speaker(model, arguments.most_steps * max(arguments.lengths))
    save_speaker(speaker, language.letters, output / "saved_model")
    check_speaker(output / "saved_model", found[arguments.lengths[0]][1][0])
    return summary


def main(argv=None):
    arguments = parse(argv)
    check_extras("matplotlib")
    language = Digits(find_folder(arguments.data)) if arguments.data else Tones()
    voice = language.with_voice(arguments.voice) if arguments.data else language
    output = pathlib.Path(arguments.output)
    tasks = [arguments.task] if arguments.task else list(TASKS)
    folders = {name: make_folder(output / name) for name in tasks}
    if "listen" in tasks:
        write_summary(folders["listen"], run_listen(language, arguments, folders["listen"]))
    if "speak" in tasks:
        path = pathlib.Path(arguments.listener or output / "listen" / "model.keras")
        listener = load_listener(path) if path.exists() else None
        write_summary(folders["speak"], run_speak(voice, arguments, folders["speak"], listener))


def load_listener(path):
    try:
        return keras.saving.load_model(path)
    except ValueError as error:
        raise SystemExit(f"{path} is not a model that `listen` has saved: {error}") from error


def write_summary(folder, summary):
    write_text(folder / "summary.json", json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    main()
