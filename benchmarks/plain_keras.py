"""The alternatives of a Keras user: Keras's own layers, plain code, and keras-hub's samplers.

`steps.py` says what a builder returns.
"""

import keras
import ours
from keras import layers, ops
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


class ProjectingCell(layers.Layer):
    """Attention as it is often written: in the cell, keys projected at every step."""

    def __init__(self, cell):
        super().__init__()
        self.cell, self.state_size, self.output_size = cell, [cell.units], cell.units

    def build(self, shape):
        units = self.cell.units
        self.query_kernel = self.add_weight((units, units))
        self.key_kernel = self.add_weight((units, units))
        self.score_vector = self.add_weight((units,))
        self.cell.build((shape[0], shape[1] + units))

    def call(self, x, states, training=None):
        query = ops.expand_dims(ops.matmul(states[0], self.query_kernel), 1)
        key = ops.einsum("btd,du->btu", self.memory, self.key_kernel)
        weights = ops.softmax(ops.sum(self.score_vector * ops.tanh(query + key), -1))
        context = ops.einsum("bt,btd->bd", weights, self.memory)
        return self.cell(ops.concatenate([x, context], -1), states)


def decoder(batch, steps, units, **_):
    cell, shape = ProjectingCell(layers.GRUCell(units)), (batch, steps, units)
    rnn = layers.RNN(cell, return_sequences=True)
    rnn.build(shape)

    def function(x, memory):
        cell.memory = memory
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
