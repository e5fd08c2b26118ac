"""The two models: letters to frames (a Tacotron), and frames to letters."""

import math

import keras
from keras import layers, ops

import keras_attention
from examples.speech.sound import MELS
from keras_attention import AttentionRNN, ResidualRNNCells, Seq2Seq
from keras_attention.alignment import forward_sum_loss, guided_attention_loss
from keras_attention.search import free_run

PAD, START, END, FIRST = range(4)  # FIRST is the first letter
SHARED = 4  # frames of one step of the speaker, and of one memory step of the listener
ATTENTIONS = {
    "content": keras_attention.BahdanauAttention,
    "location": keras_attention.LocationSensitiveAttention,
    "coverage": keras_attention.CoverageAttention,
    "monotonic": keras_attention.MonotonicAttention,
    "stepwise": keras_attention.StepwiseMonotonicAttention,
    "forward": keras_attention.ForwardAttention,
    "forward-agent": keras_attention.ForwardAttention,
    "gmm": keras_attention.GMMAttention,
    "dynamic-convolution": keras_attention.DynamicConvolutionAttention,
}
# What a monotonic attention needs to read one memory step at inference. It trains alike.
HARD = {"monotonic": {"mode": "hard"}, "stepwise": {"hard": True}}
ALIGNMENT_LOSSES = "none", "guided", "forward-sum"
MEAN = {"reduction": "mean_with_sample_weight"}
STOP = keras.losses.BinaryCrossentropy(from_logits=True, **MEAN)
FRAMES = keras.losses.MeanSquaredError(**MEAN)
# The listener has the loss of every `Seq2Seq`.
LOSSES = {"listen": None, "speak": {"frames": FRAMES, "stop": STOP}}


def make_attention(name, units, pace, half_width=None, hard=False, loss="none", late_noise=False):
    """An attention that starts at about the pace of the task, in memory steps.

    `half_width` and `hard` restrict what it reads at inference. With `late_noise` a `LateNoise`
    switches the noise on.
    """
    # A place is read with the chance p: before that, (1 - p) / p places are skipped.
    monotonic = {"initial_offset": -math.log(pace), "initial_gain": 2.0, "noise": 3.0}
    # A place is kept with the chance p: it is read 1 / (1 - p) times, and at least once.
    # No loss of the alignment sees weight that has left the text, so the last place keeps it.
    stepwise = {"initial_offset": math.log(max(1 / pace - 1, 0.1)), "keep_last": True}
    # Without noise, and with the noise of 3, one of two models dropped letters that it had read.
    stepwise |= {"temperature": 0.001, "noise": 1.0}
    options = {
        "monotonic": monotonic,
        "stepwise": monotonic | stepwise,
        "forward-agent": {"transition_agent": True},
        "gmm": {"initial_step": pace, "initial_width": max(1.0, pace)},
        # The mean of the prior is a tenth of the longest move.
        "dynamic-convolution": {"prior_length": 2 + math.floor(10 * pace)},
    }.get(name, {})
    if name != "content":
        options["half_width"] = half_width
    if hard:
        options |= HARD[name]
    attention = ATTENTIONS[name]
    if loss != "none":
        attention = with_alignment_loss(attention, loss, listens=pace > 1)
    if late_noise and "noise" in options:
        attention = with_noise_switch(attention)
    return attention(units, **options)


def with_alignment_loss(attention, loss, listens):
    """A class of attention with a loss of its alignment, in place of its own loss if it has one."""

    class Aligned(attention):
        def sequence_loss(self, weights, query_mask, memory_mask):
            if loss == "guided":
                # It is at most one divided by the memory steps: sounds, or the far fewer letters.
                factor = 100 if listens else 10
                return factor * guided_attention_loss(weights, query_mask, memory_mask)
            scores, masks = ops.log(ops.maximum(weights, 1e-30)), [query_mask, memory_mask]
            if listens:  # each sound belongs to a letter, so the sounds must be the queries
                scores, masks = ops.transpose(scores, (0, 2, 1)), masks[::-1]
            return 0.01 * forward_sum_loss(scores, *masks)

    return Aligned


def with_noise_switch(attention):
    """A class of attention whose noise is multiplied by the variable `noise_switch`, 0 at first.

    A compiled training step keeps the arguments of a layer. A variable of the class is no weight.
    """

    class Switched(attention):
        noise_switch = keras.Variable(0.0, trainable=False, name="noise_switch")

        def sample_noise(self, memory, steps):
            return self.noise_switch * super().sample_noise(memory, steps)

    return Switched


def build_speaker(attention, letters, units):
    """From letters `(B, S)` and last frames `(B, T, MELS)` to groups of frames, and stop logits.

    Each step makes `SHARED` frames, `(B, T, SHARED * MELS)`, and reads the last frame of the step
    before: the decoder of Tacotron (Wang et al., 2017, section 3.4). `valid` is the mask of the
    steps.
    """
    source = keras.Input((None,), dtype="int32", name="letters")
    frames = keras.Input((None, MELS), name="last_frames")
    valid = keras.Input((None,), dtype="bool", name="valid")
    embedding = layers.Embedding(letters, units // 2, mask_zero=True, name="letter_embedding")
    mask = embedding.compute_mask(source)
    # An encoder that sees only neighbouring letters cannot count positions, and so generalises.
    known = ops.expand_dims(ops.cast(mask, "float32"), -1)
    around = layers.Conv1D(units, 3, padding="same", activation="relu")
    encoded = around(embedding(source) * known)
    around = layers.Conv1D(units, 3, padding="same", activation="relu", name="encoder")
    encoded = around(encoded * known)
    options = {"input_feeding": True, "output_mode": "concat", "name": "decoder"}
    decoder = AttentionRNN(layers.GRUCell(units), attention, **options)
    seen = build_prenet(units // 2)(frames)
    hidden = decoder(seen, encoded, sequences_mask=valid, memory_mask=mask)
    hidden = layers.Dense(units, name="projection")(hidden)
    cells = ResidualRNNCells([layers.GRUCell(units), layers.GRUCell(units)])
    hidden = layers.RNN(cells, return_sequences=True, name="residual")(hidden)
    made = layers.Dense(SHARED * MELS, name="frames")(hidden)
    stop = layers.Dense(1, name="stop")(hidden)
    return keras.Model([source, frames, valid], {"frames": made, "stop": stop})


def build_prenet(units):
    """Two ReLU layers with dropout (section 3.2), so that the decoder reads the letters.

    At inference dropout is off: what Tacotron 2 draws there moves attention out of its place.
    """
    frames = keras.Input((None, MELS))
    x = frames
    for _ in range(2):
        x = layers.Dropout(0.5)(layers.Dense(units, activation="relu")(x))
    return keras.Model(frames, x, name="prenet")


def build_listener(attention, letters, units):
    """A `Seq2Seq` from `(frames, valid)` to letters. Two convolutions shorten the frames."""
    frames = keras.Input((None, MELS), name="frames")
    valid = keras.Input((None,), dtype="bool", name="valid")  # of each `SHARED` frames
    x = frames
    for _ in range(2):
        x = layers.Conv1D(units, 3, strides=2, padding="same", activation="relu")(x)
    rnn = layers.GRU(units // 2, return_sequences=True, use_cudnn=False)
    x = layers.Bidirectional(rnn)(x, mask=valid)
    encoder = keras.Model((frames, valid), (x, ops.zeros_like(x[:, 0]), valid))
    cell, options = layers.GRUCell(units), {"query": "previous", "output_mode": "concat"}
    decoder = AttentionRNN(cell, attention, **options, name="decoder")
    table, head = layers.Embedding(letters, units // 2), layers.Dense(letters)
    return Seq2Seq(encoder, decoder, table, head, START, END, PAD)


def build_model(task, arguments, letters, steps, sample, **options):
    """Builds the listener or the speaker of a language of so many letters, and its weights.

    `steps` are the groups of frames a letter; `make_attention` has the options.
    """
    pace, build = (steps, build_listener) if task == "listen" else (1 / steps, build_speaker)
    attention = make_attention(arguments.attention, arguments.units // 2, pace, **options)
    model = build(attention, FIRST + letters, arguments.units)
    model(sample)
    return model


class LateNoise(keras.callbacks.Callback):
    """Switches the noise of a monotonic attention on when half of the epochs are over."""

    def __init__(self, model, epochs):
        super().__init__()
        attention = model.get_layer("decoder").attention
        self.switch, self.epochs = getattr(attention, "noise_switch", None), epochs

    def on_epoch_begin(self, epoch, logs=None):
        if self.switch is not None:
            self.switch.assign(0.0 if 2 * epoch < self.epochs else 1.0)


class Speaker:
    """Runs a trained speaker freely: its own frames are its inputs."""

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
        seen = ops.squeeze(self.prenet(last[:, None, -MELS:], training=False), 1)
        hidden, attending, weights = self.decoder.step(seen, attending, memory)
        hidden, above = self.residual.cell(self.projection(hidden), above)
        stop = ops.squeeze(self.stop(hidden), 1)
        return self.frames(hidden), stop, (attending, above), weights
