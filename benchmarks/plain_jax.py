"""The cases as one writes them in plain JAX, without a thought of speed.

`gpu_programs.py` counts what they would do on a GPU, and `speed.py` times them. `steps.py` says
what a builder returns; here a function takes a list of weights and then the inputs.
"""

import functools

import jax
import jax.numpy as jnp
from steps import Computation, normal


def computation(function, weights, *shapes, **options):
    run = functools.partial(function, **options) if options else function
    return Computation(run, normal(weights, 0.05), list(shapes))


def softmax_sum(scores, value):
    return jax.nn.softmax(scores) @ value


def additive(batch, steps, units):
    shapes = [(batch, steps, units)] * 2
    return computation(attend_additive, [(units, units), (units, units), (units,)], *shapes)


def attend_additive(weights, query, value):
    query_kernel, key_kernel, vector = weights
    pairs = (query @ query_kernel)[:, :, None] + (value @ key_kernel)[:, None]
    return softmax_sum(jnp.sum(vector * jnp.tanh(pairs), -1), value)


def luong(batch, steps, units, alignment="global"):
    shapes = [(batch, steps, units)] * 2
    if alignment == "global":
        return computation(attend_general, [(units, units)], *shapes)
    predicts = alignment == "local-p"
    weights = [(units, units), (units, units), (units,)][: 3 if predicts else 1]
    return computation(attend_window, weights, *shapes, half_width=10, predicted=predicts)


def attend_general(weights, query, value):
    return softmax_sum(jnp.einsum("bid,bjd->bij", query @ weights[0], value), value)


def attend_window(weights, query, value, half_width, predicted):
    """`predicted` centres, local-p, or one for each step, local-m. Here windows are masks."""
    scores = jnp.einsum("bid,bjd->bij", query @ weights[0], value)
    length = value.shape[1]
    position = jnp.arange(length, dtype="float32")
    if predicted:
        center = length * jax.nn.sigmoid(jnp.tanh(query @ weights[1]) @ weights[2])
    else:
        center = jnp.broadcast_to(jnp.arange(query.shape[1], dtype="float32"), query.shape[:2])
    middle = jnp.floor(jax.lax.stop_gradient(center))[..., None]
    scores = jnp.where(jnp.abs(position - middle) <= half_width, scores, -1e9)
    attention = jax.nn.softmax(scores)
    if predicted:
        attention *= jnp.exp(-2 * ((position - center[..., None]) / half_width) ** 2)
    return attention @ value


def pooling(batch, steps, units):
    return computation(pool, [(units, units), (units,), (units,)], (batch, steps, units))


def pool(weights, value):
    kernel, bias, vector = weights
    attention = jax.nn.softmax(jnp.tanh(value @ kernel + bias) @ vector)
    return jnp.einsum("bt,btd->bd", attention, value)


def bag(batch, steps, features, units):
    weights = [(features, units), (units,)] * 2 + [(units,)]
    return computation(pool_gated, weights, (batch, steps, features))


def pool_gated(weights, value):
    kernel, bias, gate_kernel, gate_bias, vector = weights
    hidden = jnp.tanh(value @ kernel + bias) * jax.nn.sigmoid(value @ gate_kernel + gate_bias)
    return jnp.einsum("bt,btd->bd", jax.nn.softmax(hidden @ vector), value)


def gru(weights, x, hidden):
    kernel, recurrent, bias = weights
    update, reset, new = jnp.split(x @ kernel + bias[0], 3, -1)
    *gates, inner = jnp.split(hidden @ recurrent + bias[1], 3, -1)
    update, reset = jax.nn.sigmoid(update + gates[0]), jax.nn.sigmoid(reset + gates[1])
    new = jnp.tanh(new + reset * inner)
    return update * hidden + (1 - update) * new


def lstm(weights, x, state):
    kernel, recurrent, bias = weights
    hidden, memory = state
    write, forget, new, read = jnp.split(x @ kernel + hidden @ recurrent + bias, 4, -1)
    memory = jax.nn.sigmoid(forget) * memory + jax.nn.sigmoid(write) * jnp.tanh(new)
    hidden = jax.nn.sigmoid(read) * jnp.tanh(memory)
    return hidden, (hidden, memory)


def over_steps(step, state, sequences):
    _, outputs = jax.lax.scan(step, state, jnp.swapaxes(sequences, 0, 1))
    return jnp.swapaxes(outputs, 0, 1)


def decoder(batch, steps, units, attention, **_):
    """Among the counted decoders, only the one with two LSTMs uses Luong's attention."""
    shapes, square, wide = [(batch, steps, units)] * 2, (units, units), 2 * units
    gru = [(wide, 3 * units), (units, 3 * units), (2, 3 * units), square, square, (units,)]
    if attention == "Bahdanau":
        return computation(gru_decoder, gru, *shapes)
    if attention == "location-sensitive":
        return computation(location_decoder, [*gru, (31, 1, 32), (32, units)], *shapes)
    lstms = [x for n in (wide, units) for x in ((n, 4 * units), (units, 4 * units), (4 * units,))]
    return computation(lstm_decoder, [*lstms, square, (wide, units)], *shapes)


def gru_decoder(weights, sequences, memory):
    *cell, query_kernel, key_kernel, vector = weights
    key = memory @ key_kernel

    def step(hidden, x):
        attention = jax.nn.softmax(jnp.tanh((hidden @ query_kernel)[:, None] + key) @ vector)
        context = jnp.einsum("bt,btd->bd", attention, memory)
        hidden = gru(cell, jnp.concatenate([x, context], -1), hidden)
        return hidden, hidden

    return over_steps(step, jnp.zeros((len(sequences), vector.shape[0])), sequences)


def lstm_decoder(weights, sequences, memory):
    """Two LSTMs with general attention and input feeding."""
    first, second, (key_kernel, of_output) = weights[:3], weights[3:6], weights[6:]
    key = memory @ key_kernel
    zeros = jnp.zeros((len(sequences), key_kernel.shape[1]))

    def step(state, x):
        below, above, fed = state
        hidden, below = lstm(first, jnp.concatenate([x, fed], -1), below)
        hidden, above = lstm(second, hidden, above)
        attention = jax.nn.softmax(jnp.einsum("btd,bd->bt", key, hidden))
        context = jnp.einsum("bt,btd->bd", attention, memory)
        fed = jnp.tanh(jnp.concatenate([context, hidden], -1) @ of_output)
        return (below, above, fed), fed

    return over_steps(step, ((zeros, zeros), (zeros, zeros), zeros), sequences)


def location_decoder(weights, sequences, memory):
    """A GRU whose score also sees the sum of the weights of the steps before, by a convolution."""
    *cell, query_kernel, key_kernel, vector, filters, of_filters = weights
    key, (batch, length, _) = memory @ key_kernel, memory.shape

    def step(state, x):
        hidden, seen = state
        features = jax.lax.conv_general_dilated(
            seen[:, None], filters, (1,), "SAME", dimension_numbers=("NCH", "HIO", "NHC")
        )
        pairs = (hidden @ query_kernel)[:, None] + key + features @ of_filters
        attention = jax.nn.softmax(jnp.tanh(pairs) @ vector)
        context = jnp.einsum("bt,btd->bd", attention, memory)
        hidden = gru(cell, jnp.concatenate([x, context], -1), hidden)
        return (hidden, seen + attention), hidden

    state = jnp.zeros((batch, vector.shape[0])), jnp.zeros((batch, length))
    return over_steps(step, state, sequences)


def stack(batch, steps, units, **_):
    cells = [(n * units, 4 * units) for n in (1, 2, 2, 2)]
    weights = [x for cell in cells for x in (cell, (units, 4 * units), (4 * units,))]
    weights += [(units, units), (units, units), (units,)]
    return computation(stack_in_one_loop, weights, *[(batch, steps, units)] * 2)


def stack_in_one_loop(weights, sequences, memory):
    """Four LSTMs in one loop. The first makes the query of an additive attention."""
    cells = [weights[n : n + 3] for n in (0, 3, 6, 9)]
    query_kernel, key_kernel, vector = weights[12:]
    key, zeros = memory @ key_kernel, jnp.zeros((len(sequences), weights[1].shape[0]))

    def step(states, x):
        hidden, first = lstm(cells[0], x, states[0])
        attention = jax.nn.softmax(jnp.tanh((hidden @ query_kernel)[:, None] + key) @ vector)
        context = jnp.einsum("bt,btd->bd", attention, memory)
        new = [first]
        for n in (1, 2, 3):
            above, state = lstm(cells[n], jnp.concatenate([hidden, context], -1), states[n])
            hidden = above + hidden if n > 1 else above
            new.append(state)
        return new, hidden

    return over_steps(step, [(zeros, zeros)] * 4, sequences)


def language_search(batch, width, words, units, length):
    weights = [(words, units), (units, 3 * units), (units, 3 * units), (2, 3 * units)]
    options = {"length": length} if width == 1 else {"length": length, "width": width}
    run = greedy if width == 1 else beam
    return computation(run, [*weights, (units, words)], (batch, units), **options)


def next_word(weights, tokens, hidden):
    """One step of a language model: the logits and the next state."""
    table, *cell, output = weights
    hidden = gru(cell, table[tokens], hidden)
    return hidden @ output, hidden


def greedy(weights, hidden, length, end=2):
    def step(carry):
        t, tokens, last, hidden, active = carry
        logits, hidden = next_word(weights, last, hidden)
        last = jnp.where(active, jnp.argmax(logits, -1), end).astype("int32")
        return t + 1, tokens.at[:, t].set(last), last, hidden, active & (last != end)

    batch = len(hidden)
    tokens = jnp.full((batch, length), end, "int32")
    carry = 0, tokens, jnp.ones((batch,), "int32"), hidden, jnp.ones((batch,), bool)
    return jax.lax.while_loop(lambda x: (x[0] < length) & x[4].any(), step, carry)[1]


def beam(weights, hidden, width, length, end=2):
    """Keeps neither log probabilities nor weights."""
    batch, units = hidden.shape

    def step(carry):
        t, tokens, last, hidden, scores, active = carry
        logits, hidden = next_word(weights, last.ravel(), hidden.reshape(-1, units))
        gains = jax.nn.log_softmax(logits).reshape(batch, width, -1)
        words = gains.shape[-1]
        stays = jnp.where(jnp.arange(words) == end, 0.0, -jnp.inf)
        totals = scores[..., None] + jnp.where(active[..., None], gains, stays)
        scores, chosen = jax.lax.top_k(totals.reshape(batch, -1), width)
        parent, last = chosen // words, chosen % words
        row = jnp.arange(batch)[:, None]
        tokens = tokens[row, parent].at[..., t].set(last)
        hidden = hidden.reshape(batch, width, units)[row, parent]
        return t + 1, tokens, last, hidden, scores, active[row, parent] & (last != end)

    carry = (
        *(0, jnp.full((batch, width, length), end, "int32"), jnp.ones((batch, width), "int32")),
        jnp.repeat(hidden[:, None], width, 1),
        jnp.where(jnp.arange(width) == 0, 0.0, -jnp.inf) + jnp.zeros((batch, 1)),
        jnp.ones((batch, width), bool),
    )
    carry = jax.lax.while_loop(lambda x: (x[0] < length) & x[5].any(), step, carry)
    return carry[1], carry[4]
