"""Writes the SavedModels, text to waveform and waveform to text, and checks them."""

import numpy as np
import tensorflow as tf

from examples.common.saving import ask_saved_model, write_saved_model
from examples.speech.data import FIRST
from examples.speech.model import PAD, SHARED
from examples.speech.sound import HOP, MELS, RATE, log_mel, sound


def save_speaker(speaker, letters, path):
    """Writes a SavedModel from texts to samples, which are zero after the end."""
    table = tf.constant([*letters])

    def serve(texts):
        signs = tf.strings.unicode_split(texts, "UTF-8").to_tensor("")
        known = signs[:, :, None] == table
        ids = tf.where(tf.reduce_any(known, -1), FIRST + tf.argmax(known, -1, "int32"), PAD)
        run = speaker(ids)
        frames = tf.reshape(run.outputs, (tf.shape(ids)[0], -1, MELS))
        frames = frames[:, : SHARED * tf.reduce_max(run.lengths)]
        counts = run.lengths * (SHARED * HOP)
        samples = sound(frames)
        inside = tf.range(tf.shape(samples)[1]) < counts[:, None]
        return {
            "samples": tf.where(inside, samples, 0.0),
            "sample_counts": counts,
            "alignments": run.weights[:, : tf.reduce_max(run.lengths)],
        }

    write_saved_model(path, serve, ["texts"], [speaker.model])


def save_listener(listener, letters, path):
    """Writes a SavedModel from samples to texts."""
    table = tf.constant(["", "", "", *letters])

    def serve(samples):
        frames = log_mel(samples)
        steps = tf.shape(frames)[1]
        groups = -(-steps // SHARED)
        frames = tf.pad(frames, [[0, 0], [0, groups * SHARED - steps], [0, 0]])
        found = listener(frames, tf.ones((tf.shape(frames)[0], groups), "bool"))
        tokens = tf.where(found.tokens[:, 0] < FIRST, PAD, found.tokens[:, 0])
        return {
            "text": tf.strings.reduce_join(tf.gather(table, tokens), axis=-1),
            "score": found.scores[:, 0],
            "alignments": found.weights[:, 0],
        }

    write_saved_model(path, serve, ["samples"], [listener.model], tf.float32)
    return serve


def check_listener(path, serve, samples):
    """Compares the SavedModel, in a process without keras, with the function it was made from."""
    answer = ask_saved_model(path, {"samples": samples.tolist()})
    found = serve(tf.constant(samples))
    difference = np.abs(np.array(answer["alignments"]) - found["alignments"].numpy()).max()
    if answer["text"] != [x.decode() for x in found["text"].numpy()] or difference > 1e-4:
        raise SystemExit(f"{path}: hears something else in a new process")
    _report(path, f"hears the same, alignments within {difference:.0e}", answer)


def check_speaker(path, text):
    """Runs the SavedModel in a process without keras. Its dropout never says the same twice."""
    answer = ask_saved_model(path, {"texts": [text]})
    (samples,), (count,) = answer["samples"], answer["sample_counts"]
    weights = np.array(answer["alignments"][0])
    sounds = 0 < count <= len(samples) and any(samples[:count]) and not any(samples[count:])
    if not sounds or len(weights) * SHARED * HOP != count or weights.shape[1] != len(text):
        raise SystemExit(f"{path}: {count} of {len(samples)} samples, weights {weights.shape}")
    _report(path, f"says {text!r} in {count / RATE:.1f} s", answer)


def _report(path, what, answer):
    absent = " and no ".join(answer["absent"])
    print(f"{path}: {what}, in a new process, which had no {absent}.")
