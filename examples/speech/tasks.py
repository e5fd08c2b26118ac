"""The two tasks: trains a model, judges it, and writes all that belongs to it."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
from keras.losses import BinaryCrossentropy, MeanSquaredError, SparseCategoricalCrossentropy

from examples.common.arguments import command_line
from examples.common.checkpoint import Checkpoint
from examples.common.files import write_text
from examples.common.saving import write_model
from examples.common.seeds import seed_model
from examples.speech.data import (
    FIRST,
    listener_batch,
    make_corpus,
    speaker_batch,
    steps_of_a_letter,
)
from examples.speech.evaluation import judge_listener, judge_speaker
from examples.speech.export import check_listener, check_speaker, save_listener, save_speaker
from examples.speech.listening import Listener
from examples.speech.model import build_listener, build_speaker, make_attention
from examples.speech.picture import draw
from examples.speech.sound import sound, write_wav
from examples.speech.speaking import Speaker
from examples.speech.training import train

VALID = 128  # utterances


class Task(NamedTuple):
    build: Callable
    make_batch: Callable
    loss: Any
    epochs: int
    growing: float  # the share of the epochs in which utterances grow longer


MEAN = {"reduction": "mean_with_sample_weight"}
TASKS = {
    "listen": Task(
        build_listener,
        listener_batch,
        SparseCategoricalCrossentropy(from_logits=True, **MEAN),
        20,
        0.0,
    ),
    "speak": Task(
        build_speaker,
        speaker_batch,
        {
            "frames": MeanSquaredError(**MEAN),
            "stop": BinaryCrossentropy(from_logits=True, **MEAN),
        },
        40,
        0.5,
    ),
}
# Options that change no weight.
FREE = "output", "beam", "lengths", "task", "data", "most_steps", "half_width", "listener"


def learn(name, language, arguments, output):
    """Trains one model, or resumes its training. Returns it and a summary."""
    task = TASKS[name]
    settings = {x: y for x, y in vars(arguments).items() if x not in FREE}
    epochs = arguments.epochs or task.epochs
    settings |= {"voices": language.voices, "epochs": epochs}
    checkpoint = Checkpoint(output / "checkpoint", settings)
    lengths = 1, arguments.longest
    corpora = {
        "train": make_corpus(language, "train", arguments.utterances, lengths, arguments.seed),
        "valid": make_corpus(language, "test", VALID, lengths, arguments.seed + 1),
    }
    steps = steps_of_a_letter(corpora["train"])
    pace = steps if name == "listen" else 1 / steps

    def build(half_width):
        layer = make_attention(arguments.attention, arguments.units // 2, pace, half_width)
        return task.build(layer, FIRST + len(language.letters), arguments.units)

    seed_model(arguments.seed)
    model = build(None)
    print(
        f"\n{name}: {arguments.attention}, {model.count_params():,} parameters, "
        f"{steps:.2f} steps of the decoder or memory for a letter",
        flush=True,
    )
    state = train(
        model,
        task.loss,
        task.make_batch,
        corpora,
        language.letters,
        settings,
        checkpoint,
        task.growing,
    )
    summary = {
        "attention": arguments.attention,
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
    write_summary(output, summary)


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
    write_summary(output, summary)


def write_summary(folder, summary):
    write_text(folder / "summary.json", json.dumps(summary, indent=1) + "\n")
