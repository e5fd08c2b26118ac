"""The alternatives of a Keras user: Keras's own layers, plain code, and keras-hub's samplers.

`steps.py` says what a builder returns.
"""

import keras
import ours
from keras import layers, ops, tree
from steps import Computation, Step

from keras_attention import BiDAFAttentionFlow
from keras_attention.attention import Memory
from keras_attention.backend import leaves, unflatten_as


def score(batch, steps, units, compiling):
    def function(query, key, vector):
        hidden = ops.tanh(ops.expand_dims(query, 2) + ops.expand_dims(key, 1))
        return ops.sum(vector * hidden, -1)

    return Computation(function, [], [(batch, steps, units)] * 2 + [(units,)])


def attend(attention, *shape):
    attention.build([shape, shape])
    return Computation(lambda q, v: attention([q, v]), attention.trainable_weights, [shape, shape])


def additive(batch, steps, units):
    """Keras's layer, which projects nothing."""
    return attend(layers.AdditiveAttention(), batch, steps, units)


def luong(batch, steps, units, score):
    return attend(layers.Attention(), batch, steps, units)


class ConcatenatingFlow(BiDAFAttentionFlow):
    """The similarity as the paper writes it: S[b,t,j] = w . [h[b,t]; u[b,j]; h[b,t] * u[b,j]]."""

    def score(self, query, key):
        steps, length = ops.shape(query)[1], ops.shape(key)[1]
        h = ops.tile(ops.expand_dims(query, 2), (1, 1, length, 1))
        u = ops.tile(ops.expand_dims(key, 1), (1, steps, 1, 1))
        vectors = (self.context_vector, self.query_vector, self.product_vector)
        vector = ops.concatenate([ops.convert_to_tensor(x) for x in vectors])
        return ops.tensordot(ops.concatenate([h, u, h * u], axis=-1), vector, axes=1)


def bidaf(**sizes):
    return ours.bidaf(**sizes, layer=ConcatenatingFlow)


def bag(batch, steps, features, units):
    """Two Dense layers, their product, a third, a softmax and a matrix product."""
    instances = keras.Input((steps, features), batch_size=batch)
    hidden = layers.Dense(units, "tanh")(instances) * layers.Dense(units, "sigmoid")(instances)
    weights = ops.softmax(layers.Dense(1, use_bias=False)(hidden)[:, :, 0], axis=-1)
    model = keras.Model(instances, ops.matmul(weights[:, None], instances)[:, 0])
    return Computation(model, model.trainable_weights, [(batch, steps, features)])


class AttendingCell(layers.Layer):
    """Attention as it is often written, in a cell, of a memory and keys that `decoder` sets."""

    def __init__(self, cell, attention, length):
        super().__init__()
        self.cell, self.fed = cell, attention == "Luong, fed"
        self.located = attention == "location-sensitive"
        sizes = tree.flatten(cell.state_size)
        self.output_size = sizes[0]
        self.state_size = [*sizes, *sizes[:1] * self.fed, *[length] * self.located]

    def build(self, shape):
        n = self.output_size
        shapes = [(n, n), (2 * n, n)] if self.fed else [(n, n), (n, n), (n,)]
        shapes += [(31, 1, 32), (32, n)] * self.located
        self.key_kernel, *self.kernels = map(self.add_weight, shapes)
        self.cell.build((shape[0], shape[1] + n))

    def call(self, x, states, training=None):
        key = self.project() if self.key is None else self.key
        if self.fed:
            below = tree.pack_sequence_as(self.cell.state_size, states[:-1])
            hidden, new = self.cell(ops.concatenate([x, states[-1]], -1), below)
            context, _ = self.attend(ops.einsum("btd,bd->bt", key, hidden))
            fed = ops.tanh(ops.matmul(ops.concatenate([context, hidden], -1), *self.kernels))
            return fed, [*tree.flatten(new), fed]
        query_kernel, vector, *filters = self.kernels
        pairs = ops.expand_dims(ops.matmul(states[0], query_kernel), 1) + key
        if self.located:
            seen = ops.conv(ops.expand_dims(states[1], -1), filters[0], padding="same")
            pairs += ops.einsum("btf,fu->btu", seen, filters[1])
        context, weights = self.attend(ops.sum(vector * ops.tanh(pairs), -1))
        hidden, new = self.cell(ops.concatenate([x, context], -1), states[:1])
        return hidden, [*new, *(x + weights for x in states[1:])]

    def project(self):
        return ops.einsum("btd,du->btu", self.memory, self.key_kernel)

    def attend(self, scores):
        weights = ops.softmax(scores)
        return ops.einsum("bt,btd->bd", weights, self.memory), weights


def decoder(batch, steps, units, attention, cell="GRU", layers=1, projects=False, **_):
    """`projects`: at every step, instead of once."""
    kind = {"GRU": keras.layers.GRUCell, "LSTM": keras.layers.LSTMCell}[cell]
    cell = keras.layers.StackedRNNCells([kind(units) for _ in range(layers)])
    cell = cell if layers > 1 else cell.cells[0]
    cell, shape = AttendingCell(cell, attention, steps), (batch, steps, units)
    rnn = keras.layers.RNN(cell, return_sequences=True)
    rnn.build(shape)

    def function(x, memory):
        cell.memory, cell.key = memory, None
        cell.key = None if projects else cell.project()
        return rnn(x, training=True)

    return Computation(function, rnn.trainable_weights, [shape, shape])


def search(**sizes):
    """A sampler of keras-hub with our step. Its cache is the state, which it reorders itself."""
    return ours.search(**sizes, find=hub_search)


def hub_search(step, state, memory, end, longest, beams):
    from keras_hub.samplers import BeamSampler, GreedySampler

    if beams > 1:
        memory = Memory(*(None if x is None else ops.repeat(x, beams, axis=0) for x in memory))

    def following(prompt, cache, index):
        logits, new, _ = step(prompt[:, index - 1], unflatten_as(state, cache), memory)
        return logits, None, leaves(new)

    first = ops.ones((ops.shape(memory.value)[0] // beams, 1), "int32")
    prompt = ops.pad(first, ((0, 0), (0, longest)))
    sampler = BeamSampler(num_beams=beams) if beams > 1 else GreedySampler()
    found = sampler(following, prompt, leaves(state), index=1, stop_token_ids=[end])
    return found[:, 1:]


def eager(call):
    if call == "a decoder's step":
        return ours.eager("its cell")
    query, value, attention = ops.ones((8, 5, 32)), ops.ones((8, 20, 32)), layers.Attention()
    return lambda mode: Step(lambda: [attention([query, value]) for _ in range(ours.CALLS)])
