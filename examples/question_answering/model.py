"""The model of BiDAF, bidirectional attention flow (Seo et al., 2017)."""

from functools import partial

import keras
from keras import layers, ops

from examples.question_answering.data import WORD_LENGTH
from keras_attention import BiDAFAttentionFlow

FLOWS = ("both", "context-to-query", "query-to-context", "none")
# The score of a start or an end in the padding, in float32.
NOWHERE = -1e30


def build_model(sizes, units, flow, dropout):
    """Builds the model of the paper, and a reader on the same layers that shows the weights.

    Both take ids of the words and the characters of the passage, then of the question, and return
    the logits of start and end. `sizes` are the numbers of ids of words and of characters, and
    `units` is d in the paper: also the number of character filters, and the width of a word.
    """
    inputs = [
        keras.Input(shape, dtype="int32", name=f"{text}_{kind}")
        for text in ("passage", "question")
        for kind, shape in (("words", (None,)), ("characters", (None, WORD_LENGTH)))
    ]
    # With the default of Keras, within +-0.05, equal words would hardly stand out at first.
    wide, narrow = (keras.initializers.RandomNormal(stddev=x) for x in (1.0, 0.5))
    words = layers.Embedding(sizes[0], units, embeddings_initializer=wide, name="words")
    letters = layers.Embedding(sizes[1], 8, embeddings_initializer=narrow, name="letters")
    filters = layers.Conv2D(units, (1, 5), activation="relu", name="filters")
    # At first the gates of the highway layers let most of a word through unchanged.
    shut = keras.initializers.Constant(-2.0)
    transforms = [layers.Dense(2 * units, "relu", name=f"transform_{n}") for n in (1, 2)]
    gate = partial(layers.Dense, 2 * units, "sigmoid", bias_initializer=shut)
    gates = [gate(name=f"gate_{n}") for n in (1, 2)]
    contextual = bilstm(units, "contextual")

    def embed(word, character, mask):
        spelling = ops.max(filters(layers.Dropout(dropout)(letters(character))), axis=2)
        x = layers.Concatenate()([words(word), spelling])
        for transform, gate in zip(transforms, gates, strict=True):
            share = gate(x)
            x = share * transform(x) + (1 - share) * x
        return contextual(layers.Dropout(dropout)(x), mask=mask)

    # From Keras 3.16 on, masks do not propagate through recurrent layers.
    valid, asked = ops.not_equal(inputs[0], 0), ops.not_equal(inputs[2], 0)
    context, query = embed(*inputs[:2], valid), embed(*inputs[2:], asked)
    found = {}
    if flow == "none":
        # Every word h of the passage sees the average u of the question: [h; u; h * u].
        share = ops.expand_dims(ops.cast(asked, "float32"), 2)
        share = share / ops.maximum(ops.sum(share, axis=1, keepdims=True), 1)
        average = ops.sum(query * share, axis=1, keepdims=True) + ops.zeros_like(context)
        merged = layers.Concatenate(name="average")([context, average, context * average])
    else:
        merged, weights = BiDAFAttentionFlow(
            query_to_context=flow != "context-to-query",
            context_to_query=flow != "query-to-context",
            name="flow",
        )(context, query, context_mask=valid, query_mask=asked, return_attention_scores=True)
        found = dict(zip(("context_to_query", "query_to_context"), weights, strict=False))

    model = bilstm(units, "modeling_1")(layers.Dropout(dropout)(merged), mask=valid)
    model = bilstm(units, "modeling_2")(layers.Dropout(dropout)(model), mask=valid)
    after = bilstm(units, "modeling_end")(layers.Dropout(dropout)(model), mask=valid)
    logits = {}
    for name, hidden in (("start", model), ("end", after)):
        both = layers.Dropout(dropout)(layers.Concatenate()([merged, hidden]))
        logit = ops.squeeze(layers.Dense(1, name=f"{name}_score")(both), -1)
        logits[name] = ops.where(valid, logit, NOWHERE)
    return keras.Model(inputs, logits), keras.Model(inputs, logits | found)


def bilstm(units, name):
    # XLA cannot compile cuDNN's LSTM.
    lstm = layers.LSTM(units, return_sequences=True, use_cudnn=False)
    return layers.Bidirectional(lstm, name=name)
