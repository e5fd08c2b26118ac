"""Speaks with a trained model: letters to frames."""

import keras
import tensorflow as tf
from keras import ops

from examples.speech.data import encode, pad
from examples.speech.model import PAD, SHARED
from examples.speech.sound import MELS
from keras_attention.search import free_run


class Speaker:
    """Runs a trained speaker freely, with its own frames as inputs.

    Args:
        model: what `build_speaker` returns.
        max_steps: the largest number of steps, of `SHARED` frames each.
    """

    def __init__(self, model, max_steps):
        get = model.get_layer
        self.model, self.max_steps = model, max_steps
        self.encoder = keras.Model(model.inputs[0], get("encoder").output)
        self.prenet, self.decoder, self.residual = get("prenet"), get("decoder"), get("residual")
        self.projection, self.frames, self.stop = get("projection"), get("frames"), get("stop")

    def __call__(self, letters):
        """Letters `(B, S)` to a `FreeRun` with the outputs `(B, T, SHARED * MELS)`."""
        encoded = self.encoder(letters, training=False)
        memory = self.decoder.prepare(encoded, ops.not_equal(letters, PAD))
        batch = ops.shape(letters)[0]
        state = self.decoder.get_initial_state(memory), self.residual.get_initial_state(batch)
        silence = ops.zeros((batch, SHARED * MELS))
        return free_run(self.step, state, memory, first=silence, max_steps=self.max_steps)

    def step(self, last, state, memory):
        attending, above = state
        seen = ops.squeeze(self.prenet(last[:, None, -MELS:]), 1)
        hidden, attending, weights = self.decoder.step(seen, attending, memory)
        hidden, above = self.residual.cell(self.projection(hidden), above)
        stop = ops.squeeze(self.stop(hidden), 1)
        return self.frames(hidden), stop, (attending, above), weights


def speak(speaker, texts, letters):
    """Speaks texts of about one length: frames `(T, MELS)` and alignments of each."""
    run = tf.function(
        speaker, input_signature=[tf.TensorSpec((None, None), "int32")], autograph=False
    )
    found = run(tf.constant(pad([encode(text, letters) for text in texts])))
    frames = found.outputs.numpy().reshape(len(texts), -1, MELS)
    lengths = found.lengths.numpy()
    weights = found.weights.numpy()
    return [
        (x[: n * SHARED], w[:n, : len(text)])
        for x, w, n, text in zip(frames, weights, lengths, texts, strict=True)
    ]
