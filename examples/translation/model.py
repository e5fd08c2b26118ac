"""The translator: a bidirectional GRU reads the source, a decoder writes the target."""

import keras
from keras import layers, ops

from examples.translation.data import PAD
from keras_attention import (
    AttentionRNN,
    BahdanauAttention,
    LuongAttention,
    RecurrentEncoder,
    Seq2Seq,
)
from keras_attention.seq2seq import Readout

ATTENTIONS = ("bahdanau", "luong-dot", "luong-general", "luong-concat", "none")
ATTENTIONS += ("luong-local-m", "luong-local-p")


@keras.saving.register_keras_serializable(package="keras_attention_examples")
class DroppedEmbedding(layers.ReversibleEmbedding):
    """A tied embedding. Training drops a share of the embedded words, and none of the table."""

    def __init__(self, *sizes, dropout=0.0, **kwargs):
        super().__init__(*sizes, **kwargs)
        self.drop = layers.Dropout(dropout)

    def call(self, inputs, reverse=False, training=None):
        found = super().call(inputs, reverse)
        return found if reverse else self.drop(found, training=training)

    def get_config(self):
        return {**super().get_config(), "dropout": self.drop.rate}


class SmoothedCrossEntropy(keras.losses.Loss):
    """Cross-entropy of every token against (1 - s) of the target id plus s spread over all ids."""

    def __init__(self, smoothing=0.1):
        super().__init__(reduction="mean_with_sample_weight")
        self.smoothing = smoothing

    def call(self, y_true, y_pred):
        y_true = ops.one_hot(ops.cast(y_true, "int32"), y_pred.shape[-1])
        options = {"from_logits": True, "label_smoothing": self.smoothing}
        return keras.losses.categorical_crossentropy(y_true, y_pred, **options)


def make_decoder(attention, units, window, feeding):
    """Makes the decoder for a name in `ATTENTIONS`."""
    cell, kind = layers.GRUCell(units), attention.removeprefix("luong-")
    if kind == "none":
        # The output is that of the cell alone. The attention has no weights, and nothing reads it.
        return AttentionRNN(cell, LuongAttention("dot"), query="current", output_mode="cell")
    if kind == "bahdanau":
        return AttentionRNN(cell, BahdanauAttention(units), output_mode="concat")
    local = {"alignment": kind, "half_width": window} if kind.startswith("local") else {}
    layer = LuongAttention("general" if local else kind, units=units, **local)
    return AttentionRNN(cell, layer, input_feeding=feeding)


def build_model(tokenizers, options):
    """Builds the translator for the tokenizers of source and target."""
    source_size, target_size = (x.vocabulary_size for x in tokenizers)
    units, embedding, dropout = options.units, options.embedding, options.dropout
    normal = keras.initializers.RandomNormal
    source = keras.Input((None,), dtype="int32", name="source")
    # With the default of Keras, within +-0.05, the first thousand steps learn little.
    words = layers.Embedding(source_size, embedding, embeddings_initializer=normal(stddev=0.5))
    rnn = layers.GRU(units // 2, return_sequences=True, return_state=True, use_cudnn=False)
    read = RecurrentEncoder(words, layers.Bidirectional(rnn), PAD, dropout)
    memory, [state], mask = read(source)
    state = layers.Dense(units, activation="tanh", name="initial_state")(state)
    spread = normal(stddev=embedding**-0.5)
    model = Seq2Seq(
        keras.Model(source, [layers.Dropout(dropout)(memory), state, mask], name="encoder"),
        make_decoder(options.attention, units, options.window, options.input_feeding),
        DroppedEmbedding(target_size, embedding, embeddings_initializer=spread, dropout=dropout),
        Readout(embedding, dropout=dropout),
        source_text=tokenizers[0],
        target_text=tokenizers[1],
    )
    model((source, keras.Input((None,), dtype="int32")))  # makes the weights
    return model
