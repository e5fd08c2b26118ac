"""Beam search with a trained model: source ids or texts to translations."""

import keras
import tensorflow as tf
from keras import ops

from examples.translation.data import END, PAD, START, encode, pad
from keras_attention import AttentionRNN, beam_search

LENGTH_PENALTY = 1.0
DECODE_BATCH = 64


class Translator:
    """Searches translations with the layers of a trained model.

    Args:
        model: what `build_model` returns.
        beam_width: the number of hypotheses.
        max_length: the largest number of target tokens.
    """

    def __init__(self, model, beam_width, max_length):
        get = model.get_layer
        self.model = model
        self.encoder = keras.Model(
            model.inputs[0], [get("encoder").output[0], get("initial_state").output]
        )
        self.embedding, self.decoder = get("target_embedding"), get("decoder")
        self.readout = get("readout")
        self.attends = isinstance(self.decoder, AttentionRNN)
        self.beam_width, self.max_length = beam_width, max_length

    def __call__(self, source):
        """Source ids `(B, S)` to a `SearchResult` with the target ids."""
        encoded, state = self.encoder(source, training=False)
        memory = None
        if self.attends:
            memory = self.decoder.prepare(encoded, ops.not_equal(source, PAD))
            state = self.decoder.get_initial_state(memory, state)
        return beam_search(
            self.step,
            state,
            memory,
            start_token=START,
            end_token=END,
            max_length=self.max_length,
            beam_width=self.beam_width,
            length_penalty=LENGTH_PENALTY,
        )

    def step(self, tokens, state, memory):
        words = ops.take(self.embedding.embeddings, tokens, axis=0)  # without a mask
        if self.attends:
            hidden, state, weights = self.decoder.step(words, state, memory)
        else:
            hidden, (state,) = self.decoder.cell(words, [state])
            weights = None
        hidden = self.readout(ops.concatenate([hidden, words], axis=-1))
        logits = self.embedding(hidden, reverse=True)
        forbidden = ops.arange(logits.shape[-1]) < END
        logits = ops.where(forbidden, ops.cast(-float("inf"), logits.dtype), logits)
        return logits, state, weights


def translate(translator, tokenizers, texts):
    """Translates texts, in batches of similar length."""
    signature = [tf.TensorSpec((None, None), "int32")]
    search = tf.function(translator, input_signature=signature, autograph=False)
    ids = encode(tokenizers[0], texts)
    order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
    translations = [""] * len(texts)
    for start in range(0, len(order), DECODE_BATCH):
        part = order[start : start + DECODE_BATCH]
        found = search(tf.constant(pad([ids[i] for i in part])))
        for i, text in zip(part, detokenize(tokenizers[1], found).numpy(), strict=True):
            translations[i] = text.decode()
    return translations


def detokenize(tokenizer, found):
    """The best hypothesis of each sentence, as strings."""
    best = tf.RaggedTensor.from_tensor(found.tokens[:, 0], lengths=found.lengths[:, 0])
    return tokenizer.detokenize(tf.ragged.boolean_mask(best, best != END))
