"""The model of BiDAF, bidirectional attention flow (Seo et al., 2017)."""

import keras
from keras import layers, ops

from examples.question_answering.vocabulary import WORD_LENGTH
from keras_attention import BiDAFAttentionFlow

FLOWS = ("both", "context-to-query", "query-to-context", "none")
# The score of a start or an end in the padding, in float32.
NOWHERE = -1e30


@keras.saving.register_keras_serializable("answer")
class CharacterCNN(layers.Layer):
    """A vector for each word from its characters: filters of width five, and their maximum.

    Takes ids `(B, T, WORD_LENGTH)` with 0 after the end of a word. Returns `(B, T, filters)`.
    """

    def __init__(self, size, filters, dropout, **kwargs):
        super().__init__(**kwargs)
        self.size, self.filters, self.rate = size, filters, dropout
        normal = keras.initializers.RandomNormal(stddev=0.5)
        self.embedding = layers.Embedding(
            size, 8, embeddings_initializer=normal, dtype=self.dtype_policy
        )
        self.convolution = layers.Conv2D(
            filters, (1, 5), activation="relu", dtype=self.dtype_policy
        )
        self.dropout = layers.Dropout(dropout, dtype=self.dtype_policy)

    def build(self, input_shape):
        for layer, shape in ((self.embedding, input_shape), (self.convolution, (*input_shape, 8))):
            if not layer.built:
                layer.build(shape)

    def call(self, inputs, training=None):
        letters = self.dropout(self.embedding(inputs), training=training)
        return ops.max(self.convolution(letters), axis=2)

    def get_config(self):
        own = {"size": self.size, "filters": self.filters, "dropout": self.rate}
        return {**super().get_config(), **own}


@keras.saving.register_keras_serializable("answer")
class Highway(layers.Layer):
    """y = t * relu(W x + b) + (1 - t) * x, t = sigmoid(W_t x + b_t) (Srivastava et al., 2015)."""

    def build(self, input_shape):
        size = input_shape[-1]
        self.transform = layers.Dense(size, activation="relu", dtype=self.dtype_policy)
        # At first the gate lets most of the word through unchanged.
        bias = keras.initializers.Constant(-2.0)
        self.gate = layers.Dense(
            size, activation="sigmoid", bias_initializer=bias, dtype=self.dtype_policy
        )
        for layer in (self.transform, self.gate):
            layer.build(input_shape)

    def call(self, inputs):
        gate = self.gate(inputs)
        return gate * self.transform(inputs) + (1 - gate) * inputs


@keras.saving.register_keras_serializable("answer")
class AverageQuestion(layers.Layer):
    """Takes the place of attention: every word h of the passage sees the average u of the question.

    G = [h; u; h * u]
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, context, query, query_mask=None):
        valid = ops.cast(ops.expand_dims(query_mask, 2), query.dtype)
        average = ops.sum(query * valid, axis=1, keepdims=True)
        average = average / ops.maximum(ops.sum(valid, axis=1, keepdims=True), 1)
        average = average + ops.zeros_like(context)
        return ops.concatenate([context, average, context * average], axis=-1)


@keras.saving.register_keras_serializable("answer")
class SpanSearch(layers.Layer):
    """Finds the span k .. l of at most `limit` tokens with the largest p1[k] p2[l].

    Takes the logits of start and end, `(B, T)` each. Returns k, l and the product, `(B,)` each.
    """

    def __init__(self, limit, **kwargs):
        super().__init__(**kwargs)
        self.limit = limit

    def call(self, start, end):
        start, end = ops.log_softmax(start), ops.log_softmax(end)
        steps = ops.shape(start)[1]
        end = ops.pad(end, ((0, 0), (0, self.limit - 1)), constant_values=-float("inf"))
        ends = [end[:, more : more + steps] for more in range(self.limit)]
        scores = ops.expand_dims(start, 2) + ops.stack(ends, axis=2)  # (B, T, limit)
        longer = ops.argmax(scores, axis=2)
        scores = ops.max(scores, axis=2)
        first = ops.argmax(scores, axis=1)
        more = ops.take_along_axis(longer, ops.expand_dims(first, 1), axis=1)
        return first, first + ops.squeeze(more, 1), ops.exp(ops.max(scores, axis=1))

    def get_config(self):
        return {**super().get_config(), "limit": self.limit}


def build_model(sizes, units, flow, dropout, max_answer, vectors=None):
    """Builds the model of the paper.

    Args:
        sizes: the numbers of ids of words and of characters.
        units: d in the paper. It is also the number of character filters, and the width of a word
            without `vectors`.
        flow: one of `FLOWS`.
        dropout: the dropout rate.
        max_answer: the largest number of tokens in an answer.
        vectors: fixed word vectors `(words, width)`, or None to learn vectors of width d.

    Returns:
        Two models on the same layers. Both take ids of the words and the characters of the
        passage, then of the question. The first is trained and returns the logits of start and
        end. The second answers and returns a dictionary of start, end, probability and the weights
        of the attention.
    """
    inputs = [
        keras.Input(shape, dtype="int32", name=f"{text}_{kind}")
        for text in ("passage", "question")
        for kind, shape in (("words", (None,)), ("characters", (None, WORD_LENGTH)))
    ]
    words = layers.Embedding(
        sizes[0],
        units if vectors is None else vectors.shape[1],
        # With the default of Keras, within +-0.05, equal words would hardly stand out at first.
        embeddings_initializer=keras.initializers.RandomNormal(stddev=1.0),
        name="words",
    )
    characters = CharacterCNN(sizes[1], units, dropout, name="characters")
    highways = [Highway(name=f"highway_{n}") for n in (1, 2)]
    contextual = bilstm(units, "contextual")

    # From Keras 3.16 on, masks do not propagate through recurrent layers.
    valid, asked = ops.not_equal(inputs[0], 0), ops.not_equal(inputs[2], 0)

    def embed(word, character, mask):
        x = layers.Concatenate()([words(word), characters(character)])
        for highway in highways:
            x = highway(x)
        return contextual(layers.Dropout(dropout)(x), mask=mask)

    context, query = embed(*inputs[:2], valid), embed(*inputs[2:], asked)
    found = {}
    if flow == "none":
        merged = AverageQuestion(name="average")(context, query, query_mask=asked)
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
    logits = []
    for name, hidden in (("start", model), ("end", after)):
        both = layers.Dropout(dropout)(layers.Concatenate()([merged, hidden]))
        logit = ops.squeeze(layers.Dense(1, name=f"{name}_score")(both), -1)
        logits.append(ops.where(valid, logit, NOWHERE))
    names = ("start", "end", "probability")
    found |= dict(zip(names, SpanSearch(max_answer, name="span")(*logits), strict=True))
    if vectors is not None:
        words.embeddings.assign(vectors)
        words.trainable = False
    return keras.Model(inputs, logits), keras.Model(inputs, found)


def bilstm(units, name):
    # XLA cannot compile cuDNN's LSTM.
    lstm = layers.LSTM(units, return_sequences=True, use_cudnn=False)
    return layers.Bidirectional(lstm, name=name)
