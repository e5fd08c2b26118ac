"""Speech with attentions that remember where they looked.

    python -m examples.speech

learns a generated language of tones: `listen` turns its sound into letters, `speak` turns letters
into sound, and then listens to what it says. Each takes about five minutes on two cores. Trained on
texts of at most 20 letters, both are judged on texts of 20, 50, 200 and 500 letters. Each writes an
alignment picture, WAV files, a `.keras` file, and a SavedModel (text to waveform, waveform to
text), which it then runs in a process without keras.

    python -m examples.speech listen --attention content
    python -m examples.speech speak --attention location

does one of both with another attention. `speak` is judged by the listener in the same --output.

    python -m examples.speech --data DIR

does the same with recordings of spoken digits in random strings, `DIR` being the folder
`recordings` of https://github.com/Jakobovski/free-spoken-digit-dataset, or `--data download`.
`speak` learns one voice. An interrupted run resumes when the same command is run again.
"""

import json
import pathlib

import keras
import numpy as np

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
from examples.speech.data import FIRST, listener_batch, make_corpus, speaker_batch
from examples.speech.digits import find_digits
from examples.speech.evaluation import judge_listener, judge_speaker
from examples.speech.export import check, save_listener, save_speaker, without_optimizer
from examples.speech.listening import Listener
from examples.speech.model import ATTENTIONS, build_listener, build_speaker
from examples.speech.picture import draw
from examples.speech.sound import sound, write_wav
from examples.speech.speaking import Speaker
from examples.speech.tones import Tones
from examples.speech.training import train

TASKS = "listen", "speak"
ATTENTION = {"listen": "location", "speak": "dynamic-convolution"}
VALID = 128  # utterances


def parse(argv):
    parser = make_parser("speech", __doc__)
    parser.add_argument("task", nargs="?", choices=TASKS, help="default: both")
    parser.add_argument("--attention", choices=ATTENTIONS, help=f"default: {ATTENTION}")
    parser.add_argument("--data", metavar="DIR", help='recordings of digits, or "download"')
    parser.add_argument("--voice", help="the speaker that `speak` learns (default: the first)")
    parser.add_argument("--units", type=int, default=128, help="width of the decoder")
    parser.add_argument("--utterances", type=int, help="to train on (default: 3000)")
    parser.add_argument("--longest", type=int, help="letters (default: 20; digits: 5)")
    parser.add_argument("--lengths", type=int, nargs="+", help="to judge (default: 20 50 200 500)")
    parser.add_argument("--epochs", type=int, help="default: 20")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=2e-3, help="the highest one")
    parser.add_argument("--beam", type=int, default=5, metavar="N", help="width of the search")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", default="output/speech", help="folder for the results")
    parser.add_argument("--smoke", action="store_true", help="a short run, in a minute")
    arguments = parser.parse_args(argv)
    names = ["units", "utterances", "longest", "epochs", "batch_size", "beam"]
    check_at_least_one(parser, arguments, names)
    check_ranges(parser, arguments, {"learning_rate": float("inf")})
    check_seed(parser, arguments)
    if arguments.units % 4:
        parser.error(f"--units must be a multiple of 4; received {arguments.units}")
    if min(arguments.lengths or [1]) < 1:
        parser.error(f"--lengths must be at least 1; received {min(arguments.lengths)}")
    if arguments.voice and not arguments.data:
        parser.error("--voice goes with --data")
    digits = arguments.data is not None
    defaults = {"utterances": 3000, "epochs": 20, "longest": 5 if digits else 20}
    defaults |= {"lengths": [5, 30] if digits else [20, 50, 200, 500]}
    if arguments.smoke:
        defaults |= {"utterances": 300, "epochs": 2, "lengths": [3]}
    arguments.most_steps = 40 if digits else 8  # of the speaker for a letter
    return fill(arguments, defaults)


def learn(task, language, arguments, output):
    """Trains one model, or resumes its training."""
    build, make_batch, loss = {
        "listen": (
            build_listener,
            listener_batch,
            keras.losses.SparseCategoricalCrossentropy(
                from_logits=True, reduction="mean_with_sample_weight"
            ),
        ),
        "speak": (
            build_speaker,
            speaker_batch,
            {
                "frames": keras.losses.MeanSquaredError(reduction="mean_with_sample_weight"),
                "stop": keras.losses.BinaryCrossentropy(
                    from_logits=True, reduction="mean_with_sample_weight"
                ),
            },
        ),
    }[task]
    settings = {**vars(arguments), "attention": arguments.attention or ATTENTION[task]}
    for free in ("output", "beam", "lengths", "task", "data", "most_steps"):
        settings.pop(free)
    seed_model(arguments.seed)
    model = build(settings["attention"], FIRST + len(language.letters), arguments.units)
    print(f"\n{task}: {settings['attention']}, {model.count_params():,} parameters", flush=True)
    lengths = 1, arguments.longest
    corpora = {
        "train": make_corpus(language, "train", arguments.utterances, lengths, arguments.seed),
        "valid": make_corpus(language, "test", VALID, lengths, arguments.seed + 1),
    }
    checkpoint = Checkpoint(output / "checkpoint", settings)
    state = train(model, loss, make_batch, corpora, language.letters, settings, checkpoint)
    summary = {
        "attention": settings["attention"],
        "command": command_line("speech"),
        "keras": keras.__version__,
        "parameters": model.count_params(),
        "seconds": sum(entry["seconds"] for entry in state["history"]),
    }
    return without_optimizer(model), summary


def sample_of(language, make_batch):
    """The inputs of a small batch."""
    corpus = make_corpus(language, "test", 2, (3, 3), 1)
    return make_batch(corpus.texts, corpus.frames, language.letters)[0]


def make_language(data, voice=None, one=False):
    return find_digits(data, voice, one) if data else Tones()


def run_listen(language, arguments, output):
    model, summary = learn("listen", language, arguments, output)
    found = judge_listener(model, language, arguments.lengths, arguments)
    summary["error"] = {length: rate for length, (rate, _) in found.items()}
    frames, wanted, heard, weights = found[arguments.lengths[0]][1]
    write_wav(output / "heard.wav", sound(frames))
    draw(output / "alignment.png", frames, weights, [*heard, "⏎"], f"{wanted}: heard {heard}")
    sample = make_corpus(language, "test", 2, (3, 3), 1)
    write_model(
        model,
        output / "model.keras",
        listener_batch(sample.texts, sample.frames, language.letters)[0],
    )
    listener = Listener(model, arguments.beam, int(1.3 * arguments.lengths[0]) + 5)
    serve = save_listener(listener, language.letters, output / "saved_model")
    samples = language.say(wanted[:5], np.random.default_rng(1), "test")[None]
    check(output / "saved_model", serve, {"samples": samples}, ["text", "alignments"])
    return model, summary


def run_speak(language, arguments, output, listener):
    model, summary = learn("speak", language, arguments, output)
    found = judge_speaker(model, listener, language, arguments.lengths, arguments)
    summary["error"] = {length: rates for length, (rates, _) in found.items()}
    for length in arguments.lengths[:2]:
        text, frames, weights = found[length][1]
        write_wav(output / f"said-{length}.wav", sound(frames))
        draw(output / f"alignment-{length}.png", frames, weights.T, text, f"says {text[:60]}")
    write_model(model, output / "model.keras", sample_of(language, speaker_batch))
    speaker = Speaker(model, arguments.most_steps * arguments.lengths[0] + 20)
    serve = save_speaker(speaker, language.letters, output / "saved_model")
    check(output / "saved_model", serve, {"texts": [found[arguments.lengths[0]][1][0]]}, [])
    return summary


def main(argv=None):
    arguments = parse(argv)
    check_extras("matplotlib")
    output = pathlib.Path(arguments.output)
    folders = {task: make_folder(output / task) for task in TASKS}
    tasks = TASKS if arguments.task is None else [arguments.task]
    listener = None
    if "listen" in tasks:
        language = make_language(arguments.data)
        listener, summary = run_listen(language, arguments, folders["listen"])
        write_text(folders["listen"] / "summary.json", json.dumps(summary, indent=1) + "\n")
    if "speak" in tasks:
        path = folders["listen"] / "model.keras"
        if listener is None and path.exists():
            listener = keras.saving.load_model(path)
        language = (
            find_digits(arguments.data, arguments.voice, one=True) if arguments.data else Tones()
        )
        summary = run_speak(language, arguments, folders["speak"], listener)
        write_text(folders["speak"] / "summary.json", json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    main()
