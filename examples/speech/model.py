"""The two models: letters to frames (a Tacotron), and frames to letters."""

import math

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
    "monotonic": MonotonicAttention,
    "monotonic-hard": MonotonicAttention,
    "forward": ForwardAttention,
    "forward-agent": ForwardAttention,
    "gmm": GMMAttention,
    "dynamic-convolution": DynamicConvolutionAttention,
}


def make_attention(name, units, pace, half_width=None):
    """An attention that starts at about the pace of the task.

    Args:
        name: a key of `ATTENTIONS`.
        units: its width.
        pace: how many memory steps it should move on in a step.
        half_width: restricts what it reads at inference, see `RecurrentScoringMixin`.
    """
    # A place is read with the chance p: before that, (1 - p) / p places are skipped.
    monotonic = {"initial_offset": -math.log(pace), "initial_gain": 2.0, "noise": 3.0}
    options = {
        "monotonic": monotonic,
        "monotonic-hard": {**monotonic, "mode": "hard"},
        "forward-agent": {"transition_agent": True},
        "gmm": {"initial_step": pace, "initial_width": max(1.0, pace)},
        # The mean of the prior is a tenth of the longest move.
        "dynamic-convolution": {"prior_length": 2 + math.floor(10 * pace)},
    }.get(name, {})
    if name != "content":
        options["half_width"] = half_width
    return ATTENTIONS[name](units, **options)


def build_speaker(attention, letters, units):
    """From letters `(B, S)` and last frames `(B, T, MELS)` to groups of frames, and stop logits.

    Each step makes `SHARED` frames, `(B, T, SHARED * MELS)`, and reads the last frame of the step
    before: the decoder of Tacotron (Wang et al., 2017, section 3.4).

    Args:
        attention: what `make_attention` returns.
        letters: the number of ids.
        units: the width of the decoder.
    """
    source = keras.Input((None,), dtype="int32", name="letters")
    frames = keras.Input((None, MELS), name="last_frames")
    embedding = layers.Embedding(letters, units // 2, mask_zero=True, name="letter_embedding")
    mask = embedding.compute_mask(source)
    # An encoder that knows no more than the letters around cannot count, and so generalises.
    valid = ops.expand_dims(ops.cast(mask, "float32"), -1)
    around = layers.Conv1D(units, 3, padding="same", activation="relu")
    encoded = around(embedding(source) * valid)
    around = layers.Conv1D(units, 3, padding="same", activation="relu", name="encoder")
    encoded = around(encoded * valid)
    decoder = AttentionRNN(
        layers.GRUCell(units),
        attention,
        input_feeding=True,
        output_mode="concat",
        name="decoder",
    )
    hidden = decoder(build_prenet(units // 2)(frames), encoded, memory_mask=mask)
    hidden = layers.Dense(units, name="projection")(hidden)
    cells = ResidualRNNCells([layers.GRUCell(units), layers.GRUCell(units)])
    hidden = layers.RNN(cells, return_sequences=True, name="residual")(hidden)
    made = layers.Dense(SHARED * MELS, name="frames")(hidden)
    stop = layers.Dense(1, name="stop")(hidden)
    return keras.Model([source, frames], {"frames": made, "stop": stop})


def build_prenet(units):
    """Two ReLU layers with dropout, which stays on at inference (section 3.2).

    It hides parts of the last frame, so that the decoder reads the letters instead of copying.
    """
    frames = keras.Input((None, MELS))
    x = frames
    for _ in range(2):
        x = layers.Dropout(0.5)(layers.Dense(units, activation="relu")(x), training=True)
    return keras.Model(frames, x, name="prenet")


def build_listener(attention, letters, units):
    """From frames `(B, T, MELS)`, their mask, and shifted letters to logits of letters.

    Two convolutions shorten the frames by `SHARED`. The arguments are those of `build_speaker`.
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
        attention,
        query="previous",
        output_mode="concat",
        name="decoder",
    )
    hidden = decoder(table(shifted), encoded, memory_mask=valid)
    logits = layers.Dense(letters, name="logits")(hidden)
    return keras.Model([frames, valid, shifted], logits)
