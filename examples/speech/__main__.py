"""Speech with attentions that remember where they looked.

    python -m examples.speech

learns a generated language of tones: `listen` turns its sound into letters, `speak` turns letters
into sound, and then listens to what it says. Each takes about five minutes on two cores. Trained on
at most 20 letters, both are judged on 20, 50, 200 and 500. Each writes alignment pictures, WAV
files, a `.keras` file and a SavedModel, text to waveform or back.

    python -m examples.speech speak --attention location --alignment-loss guided

does one of both with another attention, which the loss teaches to read in order. A Viterbi decoder
of the tones judges what `speak` says, as does the listener in the same --output, or --listener.

    python -m examples.speech --data DIR

does the same with recordings of spoken digits, `DIR` being the folder `recordings` of
https://github.com/Jakobovski/free-spoken-digit-dataset, or `--data download`. `speak` learns one
voice. `listen --data DIR --held-out-speaker NAME` learns from the other speakers, and is judged on
this one. The same command resumes an interrupted run.
"""

import json
import pathlib
import sys
from functools import partial

import keras

from examples.common import arguments as types
from examples.common.files import own_folder, write_text
from examples.common.records import add_record, write_record
from examples.common.saving import write_model
from examples.common.training import Resume, explain_ema, moving_average, seed_model, warmup_cosine
from examples.speech.data import Digits, make_data
from examples.speech.evaluation import evaluate, load_listener
from examples.speech.model import ALIGNMENT_LOSSES, ATTENTIONS, HARD, LOSSES, LateNoise, build_model
from examples.speech.tones import Tones

EPOCHS = {"listen": 20, "speak": 40}
# Options that change no weight.
FREE = "output", "beam", "lengths", "task", "data", "most_steps", "half_width", "hard", "listener"
FREE += ("held_out_speaker", "record")  # the "voices" are without it


def parse(argv=None):
    parser = types.make_parser("speech", __doc__)
    add = parser.add_argument
    add("task", nargs="?", choices=EPOCHS, help="default: both")
    add("--attention", choices=ATTENTIONS, default="gmm")
    add("--alignment-loss", choices=ALIGNMENT_LOSSES, default="none", help="in training only")
    add("--data", metavar="DIR", help='recordings of digits, or "download"')
    add("--voice", help="the speaker that `speak` learns (default: the first)")
    add("--held-out-speaker", metavar="NAME", help="in no set but the test set of `listen`")
    add("--units", type=types.count, default=128, help="width of the decoder, a multiple of 4")
    add("--utterances", type=types.count, default=3000, help="to train on")
    add("--longest", type=types.count, help="letters to train on (default: 20, or 5 digits)")
    text = "letters of a text to judge (default: 20 50 200 500, or 4 5 30 digits)"
    add("--lengths", type=types.count, nargs="+", help=text)
    add("--epochs", type=types.count, help="default: 20 to listen, 40 to speak")
    add("--batch-size", type=types.count, default=32)
    add("--learning-rate", type=types.number, default=2e-3, help="the highest one")
    add("--beam", type=types.count, default=5, metavar="N", help="width of the search")
    add("--half-width", type=types.count, metavar="D", help="judge with windows of 2 D + 1 places")
    add("--hard", action="store_true", help="judge with one place read at a step")
    add("--listener", metavar="FILE", type=pathlib.Path, help="the model.keras that judges `speak`")
    add("--seed", type=types.seed, default=1)
    add("--output", default="output/speech", help="folder for the results")
    add_record(parser)
    arguments = parser.parse_args(argv)
    digits = arguments.data is not None
    lengths = [4, 5, 30] if digits else [20, 50, 200, 500]
    types.fill(arguments, {"longest": 5 if digits else 20, "lengths": lengths})
    arguments.most_steps = 40 if digits else 8  # of the speaker for a letter
    if arguments.units % 4:
        parser.error(f"--units must be a multiple of 4; received {arguments.units}")
    if arguments.half_width and arguments.attention == "content":
        parser.error("--half-width goes with an attention that has a state, not with content")
    if arguments.hard and arguments.attention not in HARD:
        parser.error(f"--hard goes with --attention {' or '.join(HARD)}")
    if arguments.listener and not arguments.listener.is_file():
        parser.error(f"--listener {arguments.listener}: no such file")
    if arguments.voice and not digits:
        parser.error("--voice goes with --data")
    if arguments.held_out_speaker and not (digits and arguments.task == "listen"):
        parser.error("--held-out-speaker goes with listen and --data")
    if keras.backend.backend() != "tensorflow":
        parser.error(f"Keras runs on {keras.backend.backend()}. Set KERAS_BACKEND=tensorflow.")
    return arguments


def run(task, language, arguments, output, listener=None):
    """Trains a model, or resumes; judges it, and writes all that belongs to it."""
    epochs = arguments.epochs or EPOCHS[task]
    batches, checked, steps = make_data(task, language, arguments, epochs)
    settings = {name: x for name, x in vars(arguments).items() if name not in FREE}
    settings |= {"voices": language.voices, "recordings": language.digest, "epochs": epochs}
    resume = Resume(output / "checkpoint", settings, batches)
    sample = next(checked())[0]
    build = partial(build_model, task, arguments, len(language.letters), steps, sample)

    print(f"\n{task}, {arguments.attention}", flush=True)
    seed_model(arguments.seed)
    model = build(loss=arguments.alignment_loss, late_noise=True)
    rate = warmup_cosine(arguments.learning_rate, epochs * batches.steps, last=0.01)
    # At its end `fit` puts the moving averages of the weights into the model.
    average = moving_average(0.998, epochs * batches.steps)
    explain_ema(average, batches.steps)
    model.compile(keras.optimizers.Adam(rate, global_clipnorm=1.0, **average), LOSSES[task])
    model.fit(
        batches.dataset(),
        epochs=epochs,
        initial_epoch=resume.restore(model),
        validation_data=checked.dataset(),
        callbacks=[LateNoise(model, epochs), keras.callbacks.SwapEMAWeights(), *resume.callbacks()],
        shuffle=False,
        verbose=int(sys.stdout.isatty()),
    )
    trained, model = model, build(half_width=arguments.half_width, hard=arguments.hard)
    model.set_weights(trained.get_weights())
    write_model(model, output / "model.keras", sample)
    summary = {
        "attention": arguments.attention,
        "command": types.command_line("speech"),
        "keras": keras.__version__,
        "parameters": model.count_params(),
        "seconds": sum(row["seconds"] for row in resume.history),
        "error": evaluate(task, model, language, arguments, output, listener),
    }
    write_text(output / "summary.json", json.dumps(summary, indent=1) + "\n")
    return {task: summary}


def main(argv=None):
    arguments = parse(argv)
    types.check_extras("matplotlib")
    language = Digits(arguments.data) if arguments.data else Tones()
    if arguments.held_out_speaker:
        language = language.without(arguments.held_out_speaker)
    voice = language.with_voice(arguments.voice) if arguments.data else language
    output = pathlib.Path(arguments.output)
    tasks = [arguments.task] if arguments.task else list(EPOCHS)
    folders, found = {name: own_folder(output / name) for name in tasks}, {}
    if "listen" in tasks:
        found = run("listen", language, arguments, folders["listen"])
    if "speak" in tasks:
        path = arguments.listener or output / "listen" / "model.keras"
        listener = load_listener(path) if path.exists() else None
        found |= run("speak", voice, arguments, folders["speak"], listener)
    write_record(arguments.record, found, seeds=[arguments.seed])


if __name__ == "__main__":
    types.run(main)
