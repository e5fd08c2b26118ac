"""The translator: a bidirectional GRU reads the source, an `AttentionRNN` writes the target."""

import keras
from keras import layers

from keras_attention import AttentionRNN, BahdanauAttention, LuongAttention

ATTENTIONS = (
    "bahdanau",
    "luong-dot",
    "luong-general",
    "luong-concat",
    "luong-local-m",
    "luong-local-p",
    "none",
)


def make_attention(name, units, window):
    """Makes the layer for a name in `ATTENTIONS`, except for "none"."""
    if name == "bahdanau":
        return BahdanauAttention(units)
    kind = name.removeprefix("luong-")
    if kind.startswith("local"):
        return LuongAttention("general", alignment=kind, half_width=window, units=units)
    return LuongAttention(kind, units=units)


def build_model(attention, source_size, target_size, units, embedding, dropout, window, feeding):
    """Builds the training model, from source ids and shifted target ids to target logits.

    Args:
        attention: a name in `ATTENTIONS`.
        source_size, target_size: the numbers of subwords.
        units: the width of the decoder, and of both directions of the encoder together.
        embedding: the width of a subword.
        dropout: the dropout rate.
        window: half the width of a local window, D in the paper.
        feeding: whether the decoder also reads its last attentional vector (input feeding).
    """
    source = keras.Input((None,), dtype="int32", name="source")
    shifted = keras.Input((None,), dtype="int32", name="shifted_target")

    # With the default of Keras, within +-0.05, the first thousand steps learn little.
    source_table = layers.Embedding(
        source_size,
        embedding,
        embeddings_initializer=keras.initializers.RandomNormal(stddev=0.5),
        mask_zero=True,
        name="source_embedding",
    )
    # From Keras 3.16 on, masks do not propagate through recurrent layers.
    mask = source_table.compute_mask(source)
    x = layers.Dropout(dropout)(source_table(source))
    rnn = layers.GRU(units // 2, return_sequences=True, return_state=True, use_cudnn=False)
    encoded, forward, backward = layers.Bidirectional(rnn, name="encoder")(x, mask=mask)
    encoded = layers.Dropout(dropout)(encoded)
    state = layers.Concatenate()([forward, backward])
    state = layers.Dense(units, activation="tanh", name="initial_state")(state)

    table = layers.ReversibleEmbedding(
        target_size,
        embedding,
        embeddings_initializer=keras.initializers.RandomNormal(stddev=embedding**-0.5),
        mask_zero=True,
        name="target_embedding",
    )
    words = layers.Dropout(dropout)(table(shifted))
    cell = layers.GRUCell(units)
    if attention == "none":
        hidden = layers.RNN(cell, return_sequences=True, name="decoder")(words, state)
    else:
        decoder = AttentionRNN(
            cell,
            make_attention(attention, units, window),
            query="previous" if attention == "bahdanau" else "current",
            output_mode="concat" if attention == "bahdanau" else "attention",
            input_feeding=feeding,
            name="decoder",
        )
        hidden = decoder(words, encoded, initial_state=state, memory_mask=mask)
    hidden = layers.Concatenate(name="readout_input")([hidden, words])
    hidden = layers.Dense(embedding, activation="tanh", name="readout")(hidden)
    hidden = layers.Dropout(dropout)(hidden)
    return keras.Model([source, shifted], table(hidden, reverse=True))
