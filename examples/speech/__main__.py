"""Speech with attentions that remember where they looked.

    python -m examples.speech

learns a generated language of tones: `listen` turns its sound into letters, `speak` turns letters
into sound, and then listens to what it says. Each takes about five minutes on two cores. Trained on
at most 20 letters, both are judged on 20, 50, 200 and 500. Each writes alignment pictures, WAV
files and a `.keras` file.

    python -m examples.speech speak --attention location --alignment-loss guided

does one of both with another attention, which the loss teaches to read in order. A Viterbi decoder
of the tones judges `speak`, as does the listener in the same --output, or --listener.

    python -m examples.speech --data DIR

does the same with recordings of spoken digits, `DIR` being the folder `recordings` of
https://github.com/Jakobovski/free-spoken-digit-dataset, or `--data download`. `speak` learns one
voice, and `--voices` names who is heard. `listen --held-out-speaker NAME` tests on a speaker whom
the model never heard. The same command resumes an interrupted run.
"""

import pathlib
from functools import partial

import keras

from examples.common import arguments as types
from examples.common.files import own_folder, write_json
from examples.common.records import add_record, write_record
from examples.common.training import Resume, moving_average, seed_model, warmup_cosine, write_model
from examples.speech.data import Digits, make_data
from examples.speech.evaluation import evaluate
from examples.speech.model import ALIGNMENT_LOSSES, ATTENTIONS, HARD, LOSSES, LateNoise, build_model
from examples.speech.tones import Tones

EPOCHS = {"listen": 20, "speak": 40}
# Options that change no weight.
FREE = "output", "beam", "lengths", "task", "data", "most_steps", "half_width", "hard", "listener"
FREE += ("record", "held_out_speaker")  # the voices are without it


def parse(argv=None):
    parser = types.make_parser("speech", __doc__)
    add = parser.add_argument
    add("task", nargs="?", choices=EPOCHS, help="default: both")
    add("--attention", choices=ATTENTIONS, default="gmm")
    add("--alignment-loss", choices=ALIGNMENT_LOSSES, default="none", help="in training only")
    add("--data", metavar="DIR", help='recordings of digits, or "download"')
    add("--voices", nargs="+", help="the speakers who are heard (default: all; speak: the first)")
    add("--held-out-speaker", metavar="NAME", help="who alone speaks the test set of `listen`")
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
    options = parser.parse_args(argv)
    # `most_steps`: of the speaker for a letter.
    defaults = {"longest": 20, "lengths": [20, 50, 200, 500], "most_steps": 8}
    if options.data is not None:
        defaults = {"longest": 5, "lengths": [4, 5, 30], "most_steps": 40}
    types.fill(options, defaults)
    if options.units % 4:
        parser.error(f"--units must be a multiple of 4; received {options.units}")
    if options.hard and options.attention not in HARD:
        parser.error(f"--hard goes with --attention {' or '.join(HARD)}")
    if options.listener and not options.listener.is_file():
        parser.error(f"--listener {options.listener}: no such file")
    if options.held_out_speaker and not (options.data and options.task == "listen"):
        parser.error("--held-out-speaker goes with listen and --data")
    if keras.backend.backend() != "tensorflow":
        parser.error(f"Keras runs on {keras.backend.backend()}. Set KERAS_BACKEND=tensorflow.")
    return options


def run(task, language, options, output, listener=None):
    """Trains a model, or resumes; judges it, and writes all that belongs to it."""
    epochs = options.epochs or EPOCHS[task]
    batches, checked, steps = make_data(task, language, options, epochs)
    settings = {name: x for name, x in vars(options).items() if name not in FREE}
    settings |= {"voices": language.voices, "recordings": language.digest, "epochs": epochs}
    resume = Resume(output / "checkpoint", settings, batches)
    sample = next(checked())[0]
    build = partial(build_model, task, options, len(language.letters), steps, sample)

    print(f"\n{task}, {options.attention}", flush=True)
    seed_model(options.seed)
    model = build(loss=options.alignment_loss, late_noise=True)
    rate = warmup_cosine(options.learning_rate, epochs * batches.steps, last=0.01)
    # At its end `fit` puts the moving averages of the weights into the model.
    average = moving_average(0.998, epochs * batches.steps)
    model.compile(keras.optimizers.Adam(rate, global_clipnorm=1.0, **average), LOSSES[task])
    print("val_loss is that of moving averages of the weights. They begin with the untrained ones,")
    print("so val_loss is far above the loss in the first epochs.", flush=True)
    callbacks = [LateNoise(model, epochs), keras.callbacks.SwapEMAWeights()]
    resume.fit(model, epochs, checked.dataset(), callbacks=callbacks)
    trained, model = model, build(half_width=options.half_width, hard=options.hard)
    model.set_weights(trained.get_weights())
    write_model(model, output / "model.keras", sample)
    summary = {"attention": options.attention, "parameters": model.count_params()}
    summary["error"] = evaluate(task, model, language, options, output, listener)
    write_json(output / "summary.json", summary)
    return {task: summary}


def main(argv=None):
    options = parse(argv)
    types.check_extras("matplotlib")
    language = voice = Tones()
    if options.data:
        language = Digits(options.data, options.voices, options.held_out_speaker)
        voice = Digits(options.data, language.voices[:1])
    output = pathlib.Path(options.output)
    tasks = [options.task] if options.task else list(EPOCHS)
    folders, figures = {name: own_folder(output / name) for name in tasks}, {}
    if "listen" in tasks:
        figures = run("listen", language, options, folders["listen"])
    if "speak" in tasks:
        path = options.listener or output / "listen" / "model.keras"
        listener = keras.saving.load_model(path) if path.exists() else None
        figures |= run("speak", voice, options, folders["speak"], listener)
    write_record(options.record, figures, seeds=[options.seed])


if __name__ == "__main__":
    types.run(main)
