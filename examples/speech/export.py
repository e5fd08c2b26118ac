"""Writes the SavedModels, text to waveform and waveform to text, and checks them."""

import keras
import numpy as np
import tensorflow as tf

from examples.common.saving import ask_saved_model, write_saved_model
from examples.speech.data import FIRST
from examples.speech.model import PAD, SHARED
from examples.speech.sound import HOP, MELS, log_mel, sound


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
    return serve


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


def check(path, serve, inputs, names):
    """Compares a SavedModel in a process without keras with `serve`. Returns the answer of both."""
    answer = ask_saved_model(path, {name: np.asarray(x).tolist() for name, x in inputs.items()})
    found = serve(**{name: tf.constant(x) for name, x in inputs.items()})
    for name in names:
        expected, reply = found[name].numpy(), answer[name]
        if expected.dtype == object:
            same = [x.decode() for x in expected] == reply
        else:
            reply = np.array(reply)
            same = reply.shape == expected.shape and np.abs(reply - expected).max() <= 1e-4
        if not same:
            raise SystemExit(f"{path}: {name} differs in a new process")
    print(f"{path}: agrees in a new process, which had no {' and no '.join(answer['absent'])}.")
    return answer


def without_optimizer(model):
    return keras.Model(model.inputs, model.outputs)
