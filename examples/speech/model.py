"""The two models: letters to frames (a Tacotron), and frames to letters."""

import keras
from keras import layers, ops

from examples.speech.sound import MELS
from keras_attention import (
    AttentionRNN,
    BahdanauAttention,
    CoverageAttention,
    DynamicConvolutionAttention,
    ForwardAttention,
    GMMAttention,
    LocationSensitiveAttention,
    MonotonicAttention,
    ResidualRNNCells,
)

PAD, START, END = 0, 1, 2
SHARED = 4  # frames of one step of the speaker, and of one memory step of the listener
ATTENTIONS = {
    "content": BahdanauAttention,
    "location": LocationSensitiveAttention,
    "coverage": CoverageAttention,
    "monotonic": lambda units: MonotonicAttention(units, offset=-1.0),
    "forward": ForwardAttention,
    "forward-agent": lambda units: ForwardAttention(units, transition_agent=True),
    "gmm": GMMAttention,
    "dynamic-convolution": DynamicConvolutionAttention,
}


@keras.saving.register_keras_serializable(package="keras_attention.examples")
class Prenet(layers.Layer):
    """Two ReLU layers with dropout that stays on at inference (Wang et al., 2017, section 3.2).

    It hides parts of the last frame, so that the decoder reads the letters instead of copying.
    """

    def __init__(self, units, rate=0.5, seed=1, **kwargs):
        super().__init__(**kwargs)
        self.units, self.rate, self.seed = units, rate, seed
        self.hidden = [layers.Dense(units, activation="relu") for _ in range(2)]
        self.generator = keras.random.SeedGenerator(seed)

    def build(self, shape):
        for dense in self.hidden:
            dense.build(shape)
            shape = (*shape[:-1], self.units)

    def call(self, x):
        for dense in self.hidden:
            x = keras.random.dropout(dense(x), self.rate, seed=self.generator)
        return x

    def get_config(self):
        own = {"units": self.units, "rate": self.rate, "seed": self.seed}
        return {**super().get_config(), **own}


def build_speaker(attention, letters, units):
    """From letters `(B, S)` and last frames `(B, T, MELS)` to groups of frames, and stop logits.

    Each step makes `SHARED` frames, `(B, T, SHARED * MELS)`, and reads the last frame of the step
    before.
    """
    source = keras.Input((None,), dtype="int32", name="letters")
    frames = keras.Input((None, MELS), name="last_frames")
    table = layers.Embedding(letters, units // 2, mask_zero=True, name="letter_embedding")
    mask = table.compute_mask(source)
    rnn = layers.GRU(units // 2, return_sequences=True, use_cudnn=False)
    encoded = layers.Bidirectional(rnn, name="encoder")(table(source), mask=mask)
    seen = Prenet(units // 2, name="prenet")(frames)
    decoder = AttentionRNN(
        layers.GRUCell(units),
        ATTENTIONS[attention](units // 2),
        query="previous",
        output_mode="concat",
        name="decoder",
    )
    hidden = decoder(seen, encoded, memory_mask=mask)
    hidden = layers.Dense(units, name="projection")(hidden)
    cells = ResidualRNNCells([layers.GRUCell(units), layers.GRUCell(units)])
    hidden = layers.RNN(cells, return_sequences=True, name="residual")(hidden)
    made = layers.Dense(SHARED * MELS, name="frames")(hidden)
    stop = layers.Dense(1, name="stop")(hidden)
    return keras.Model([source, frames], {"frames": made, "stop": stop})


def build_listener(attention, letters, units):
    """From frames `(B, T, MELS)`, their mask, and shifted letters to logits of letters.

    Two convolutions shorten the frames by `SHARED`.
    """
    frames = keras.Input((None, MELS), name="frames")
    valid = keras.Input((None,), dtype="bool", name="valid")  # of each `SHARED` frames
    shifted = keras.Input((None,), dtype="int32", name="shifted_letters")
    x = frames
    for n in range(2):
        x = layers.Conv1D(
            units, 3, strides=2, padding="same", activation="relu", name=f"convolution_{n}"
        )(x)
    rnn = layers.GRU(units // 2, return_sequences=True, use_cudnn=False)
    encoded = layers.Bidirectional(rnn, name="encoder")(x, mask=valid)
    table = layers.Embedding(letters, units // 2, name="letter_embedding")
    decoder = AttentionRNN(
        layers.GRUCell(units),
        ATTENTIONS[attention](units // 2),
        query="previous",
        output_mode="concat",
        name="decoder",
    )
    hidden = decoder(table(shifted), encoded, memory_mask=valid)
    logits = layers.Dense(letters, name="logits")(hidden)
    return keras.Model([frames, valid, shifted], logits)


class Speaker:
    """Speaks with the layers of a trained model: letters to frames."""

    def __init__(self, model, max_steps):
        get = model.get_layer
        self.model, self.max_steps = model, max_steps
        self.encoder = keras.Model(model.inputs[0], get("encoder").output)
        self.prenet, self.decoder, self.residual = get("prenet"), get("decoder"), get("residual")
        self.projection, self.frames, self.stop = get("projection"), get("frames"), get("stop")

    def step(self, last, state, memory):
        attending, above = state
        seen = self.prenet(last[:, -MELS:])
        hidden, attending, weights = self.decoder.step(seen, attending, memory)
        hidden, above = self.residual.cell(self.projection(hidden), above)
        stop = ops.squeeze(self.stop(hidden), 1)
        return self.frames(hidden), stop, (attending, above), weights
