"""Listens with a trained model: frames to letters, by beam search."""

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from examples.speech.data import decode, listened
from examples.speech.model import END, START
from examples.speech.sound import MELS
from keras_attention import beam_search


class Listener:
    """Searches the letters of an utterance with the layers of a trained model.

    Args:
        model: what `build_listener` returns.
        beam_width: the number of hypotheses.
        max_length: the largest number of letters, END included.
    """

    def __init__(self, model, beam_width, max_length):
        get = model.get_layer
        self.model, self.beam_width, self.max_length = model, beam_width, max_length
        self.encoder = keras.Model(model.inputs[:2], get("encoder").output)
        self.embedding, self.decoder = get("letter_embedding"), get("decoder")
        self.logits = get("logits")

    def __call__(self, frames, valid):
        """Frames `(B, T, MELS)` and their valid groups to a `SearchResult`."""
        memory = self.decoder.prepare(self.encoder([frames, valid], training=False), valid)
        return beam_search(
            self.step,
            self.decoder.get_initial_state(memory),
            memory,
            start_token=START,
            end_token=END,
            max_length=self.max_length,
            beam_width=self.beam_width,
        )

    def step(self, tokens, state, memory):
        hidden, state, weights = self.decoder.step(self.embedding(tokens), state, memory)
        logits = self.logits(hidden)
        forbidden = ops.arange(logits.shape[-1]) < END
        return ops.where(forbidden, -1e9, logits), state, weights


def listen(listener, frames, letters):
    """Listens to utterances of about one length: texts and alignments of each."""
    signature = [tf.TensorSpec((None, None, MELS)), tf.TensorSpec((None, None), "bool")]
    search = tf.function(listener, input_signature=signature, autograph=False)
    padded, valid = listened(frames)
    found = search(tf.constant(padded), tf.constant(valid))
    texts = [decode(ids, letters) for ids in found.tokens[:, 0].numpy()]
    sizes = zip(found.lengths[:, 0].numpy(), np.sum(valid, axis=1), strict=True)
    weights = [w[:n, :m] for w, (n, m) in zip(found.weights[:, 0].numpy(), sizes, strict=True)]
    return list(zip(texts, weights, strict=True))
