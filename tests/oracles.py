"""The papers' equations as NumPy loops, to be checked by reading.

A mechanism is a function `row(query, keys, values, valid, allowed, position)` for one query of one
sample: query `(Dq,)`, keys `(Tk, Dk)`, values `(Tk, Dv)`; `valid` `(Tk,)` says which memory steps
are words, `allowed` `(Tk,)` which of them this query may read, `position` is its step. It returns
`(output, weights)`. `attend` runs it over a batch, `attention_rnn` inside a decoder.
"""

import functools
import inspect
import math

import numpy as np


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def among_valid(normalize):
    """A normalizer of the scores that are allowed. The other weights are zero."""

    def masked(scores, allowed):
        weights, chosen = np.zeros(len(scores)), [j for j in range(len(scores)) if allowed[j]]
        if chosen:
            weights[chosen] = normalize([scores[j] for j in chosen])
        return weights

    return masked


@among_valid
def masked_softmax(scores):
    terms = [math.exp(e - max(scores)) for e in scores]
    return [x / sum(terms) for x in terms]


@among_valid
def masked_sparsemax(scores):
    """Martins and Astudillo (2016), algorithm 1."""
    ordered, sizes = sorted(scores, reverse=True), range(1, len(scores) + 1)
    support = max(k for k in sizes if 1 + k * ordered[k - 1] > sum(ordered[:k]))
    threshold = (sum(ordered[:support]) - 1) / support
    return [max(e - threshold, 0.0) for e in scores]


@among_valid
def masked_entmax15(scores):
    """Weights max(e / 2 - tau, 0)^2, with tau by bisection."""
    low, high = max(scores) / 2 - 1, max(scores) / 2
    for _ in range(100):
        tau = (low + high) / 2
        total = sum(max(e / 2 - tau, 0.0) ** 2 for e in scores)
        low, high = (tau, high) if total > 1 else (low, tau)
    return [max(e / 2 - tau, 0.0) ** 2 for e in scores]


@among_valid
def masked_hardmax(scores):
    return np.eye(len(scores))[np.argmax(scores)]


@among_valid
def masked_sigmoid(scores):
    return [sigmoid(e) / sum(map(sigmoid, scores)) for e in scores]


NORMALIZERS = {
    "softmax": masked_softmax,
    "sparsemax": masked_sparsemax,
    "entmax15": masked_entmax15,
    "hardmax": masked_hardmax,
    "normalized_sigmoid": masked_sigmoid,
}


def _read(weights, values):
    zeros = np.zeros(values.shape[1])  # What is not read may hold NaN.
    return sum((a * v for a, v in zip(weights, values, strict=True) if a), zeros)


def _valid(mask, length):
    return np.ones(length, bool) if mask is None else mask


def batched(*names):
    """Runs the oracle of one sample over a batch. These arguments have an axis of samples."""

    def decorate(oracle):
        @functools.wraps(oracle)
        def run(*args, **kwargs):
            given = inspect.signature(oracle).bind(*args, **kwargs).arguments
            own = [name for name in names if given.get(name) is not None]
            each = ({name: given[name][b] for name in own} for b in range(len(given[own[0]])))
            samples = [oracle(**given | sample) for sample in each]
            return tuple(np.array(x) for x in zip(*samples, strict=True))

        return run

    return decorate


def additive_scores(query, keys, score_vector):
    return np.array([score_vector @ np.tanh(query + key) for key in keys])


def bahdanau(weights, normalizer="softmax"):
    """e_j = v . tanh(W q + U k_j + b); with a gain g, v is g v / |v|."""
    vector = weights["score_vector"]
    if "gain" in weights:
        vector = weights["gain"] * vector / math.sqrt(sum(vector**2))
    bias = weights.get("bias", 0.0)

    def row(query, keys, values, valid, allowed, position):
        del valid, position
        hidden = [query @ weights["query_kernel"] + k @ weights["key_kernel"] + bias for k in keys]
        scores = [vector @ np.tanh(x) for x in hidden]
        align = NORMALIZERS[normalizer](scores, allowed)
        return _read(align, values), align

    return row


def past_weights(weights):
    """e_j = q W k_j / 4 - p z_j, where z is the sum of the weights of all steps before.

    The rows of a sample must be computed in their order, from position 0.
    """
    past = None

    def row(query, keys, values, valid, allowed, position):
        nonlocal past
        del valid
        past = np.zeros(len(keys)) if position == 0 else past
        scores = [query @ weights["W"] @ keys[j] / 4 for j in range(len(keys))]
        align = masked_softmax(scores - weights["p"] * past, allowed)
        past = past + align
        return _read(align, values), align

    return row


def luong(weights, score_mode="general", alignment="global", half_width=10, normalizer="softmax"):
    """Luong, Pham and Manning (2015), sections 3.1 and 3.2, windows as in the authors' code."""

    def score_of(query, key, j):
        if score_mode == "dot":
            return query @ key
        if score_mode == "general":
            return query @ weights["score_kernel"] @ key
        if score_mode == "concat":
            hidden = np.tanh(np.concatenate([query, key]) @ weights["score_kernel"])
            return weights["score_vector"] @ hidden
        return (query @ weights["score_kernel"])[j]

    def row(query, keys, values, valid, allowed, position):
        words = [j for j in range(len(valid)) if valid[j]]
        first = words[0] if words else 0
        size = words[-1] - first + 1 if words else 0  # S
        center = None
        if alignment == "local-m":
            center = first + max(min(position, size - 1), 0)
        if alignment == "local-p":
            center = first + size * predicted(query)
        inside = [
            ok and (center is None or abs(j - math.floor(center)) <= half_width)
            for j, ok in enumerate(allowed)
        ]
        scores = [inside[j] and score_of(query, keys[j], j - first) for j in range(len(keys))]
        align = NORMALIZERS[normalizer](scores, inside)
        if alignment == "local-p":
            sigma = half_width / 2
            align *= [math.exp(-((j - center) ** 2) / (2 * sigma**2)) for j in range(len(keys))]
        context = _read(align, values)
        if "output_kernel" in weights:
            context = np.tanh(np.concatenate([context, query]) @ weights["output_kernel"])
        return context, align

    def predicted(query):
        """p_t / S."""
        return sigmoid(weights["position_vector"] @ np.tanh(query @ weights["position_kernel"]))

    row.predicted = predicted
    return row


def multi_head(rows, value_kernel, output_kernel):
    """Each row reads its own columns of the projected values. The first rows may read one more."""

    def row(query, keys, values, valid, allowed, position):
        joined, mean, first = [], np.zeros(len(keys)), 0
        for h, head in enumerate(rows):
            last = first + values.shape[1] // len(rows) + (h < values.shape[1] % len(rows))
            own = np.array([value @ value_kernel[:, first:last] for value in values])
            output, weights = head(query, keys, own, valid, allowed, position)
            joined.extend(output)
            mean = mean + weights / len(rows)
            first = last
        return np.array(joined) @ output_kernel, mean

    return row


def multi_source(rows, sizes):
    """Each row reads a block of the memory; outputs and weights stand side by side.

    `sizes` lists the steps, key features and value features of the blocks. Keys and values are
    zero outside of the blocks on their diagonal; see `blocks`.
    """

    def row(query, keys, values, valid, allowed, position):
        outputs, weights, j, k, v = [], [], 0, 0, 0
        for one, (steps, key_size, value_size) in zip(rows, sizes, strict=True):
            at = slice(j, j + steps)
            own = keys[at, k : k + key_size], values[at, v : v + value_size]
            output, align = one(query, *own, valid[at], allowed[at], position)
            outputs.extend(output)
            weights.extend(align)
            j, k, v = j + steps, k + key_size, v + value_size
        return np.array(outputs), np.array(weights)

    return row


def blocks(memories):
    """One memory of several, `(B, Tk, Dv)` each, that stand on its diagonal."""
    steps = sum(x.shape[1] for x in memories)
    joined, j, v = np.zeros((len(memories[0]), steps, sum(x.shape[2] for x in memories))), 0, 0
    for x in memories:
        joined[:, j : j + x.shape[1], v : v + x.shape[2]] = x
        j, v = j + x.shape[1], v + x.shape[2]
    return joined


def attend(row, query, value, key=None, query_mask=None, value_mask=None, attention_mask=None,
           use_causal_mask=False):  # fmt: skip
    """A batch of sequences of queries: `(B, Tq, ...)` outputs and `(B, Tq, Tk)` weights."""
    key = value if key is None else key
    batch, steps, length = len(query), query.shape[1], value.shape[1]
    pairs = True if attention_mask is None else attention_mask
    pairs = np.broadcast_to(pairs, (batch, steps, length))
    valids, askeds = _valid(value_mask, (batch, length)), _valid(query_mask, (batch, steps))
    outputs, weights = [], np.zeros((batch, steps, length))
    for b in range(batch):
        valid, asked = valids[b], askeds[b]
        for i in range(steps):
            allowed = [
                valid[j] and asked[i] and pairs[b, i, j] and not (use_causal_mask and j > i)
                for j in range(length)
            ]
            output, weights[b, i] = row(query[b, i], key[b], value[b], valid, allowed, i)
            outputs.append(output if asked[i] else np.zeros_like(output))
    return np.reshape(outputs, (batch, steps, -1)), weights


def trilinear_scores(context, query, vector):
    """S_tj = w . [h_t; u_j; h_t * u_j]"""
    return np.array([[vector @ np.concatenate([h, u, h * u]) for u in query] for h in context])


@batched("context", "query", "context_mask", "query_mask")
def attention_flow(weights, context, query, query_to_context=True, context_to_query=True,
                   normalizer="softmax", context_mask=None, query_mask=None):  # fmt: skip
    """Seo et al. (2017), section 2, the attention flow layer, of `(B, T, D)` and `(B, J, D)`.

    Returns G and the weights, a and b, or a alone. Without `context_to_query` a is an average.
    """
    size, asked = context.shape[1], _valid(query_mask, len(query))
    # Without query to context w_h is not there: a softmax over j does not see it.
    first = weights.get("context_vector", np.zeros(size))
    vector = np.concatenate([first, weights["query_vector"], weights["product_vector"]])
    scores = trilinear_scores(context, query, vector)
    normalize, words = NORMALIZERS[normalizer], _valid(context_mask, len(context))
    a, best = np.zeros((len(context), len(query))), np.zeros(len(context))
    merged = np.zeros((len(context), (3 + query_to_context) * size))
    for t in np.flatnonzero(words & any(asked)):
        best[t] = max(scores[t, asked])
        a[t] = normalize(scores[t], asked) if context_to_query else asked / sum(asked)
    b = normalize(best, words & any(asked))
    summary = _read(b, context)
    for t in np.flatnonzero(words):
        h, attended = context[t], _read(a[t], query)
        parts = [h, attended, h * attended, *[h * summary] * query_to_context]
        merged[t] = np.concatenate(parts)
    return merged, a, *[b] * query_to_context


def gru(kernel, recurrent_kernel, bias):
    """Keras's `reset_after=True`; gates in the order update, reset, candidate."""

    def cell(x, states):
        (h,) = states
        xz, xr, xh = np.split(x @ kernel + bias[0], 3)
        hz, hr, hh = np.split(h @ recurrent_kernel + bias[1], 3)
        update, reset = sigmoid(xz + hz), sigmoid(xr + hr)
        h = update * h + (1 - update) * np.tanh(xh + reset * hh)
        return h, [h]

    return cell


def decoder_stack(
    row, cells, sequences, memory, initial_states, sequences_mask=None, memory_mask=None
):
    """The first cell makes the query; the others read the context, with residual connections.

    Takes the arguments of `attention_rnn`. Returns outputs and weights, which are zero where
    the sequence is masked. A masked step changes no state and is not counted.
    """
    batch, steps, _ = sequences.shape
    asked = _valid(sequences_mask, (batch, steps))
    valid = _valid(memory_mask, memory.shape[:2])
    outputs = [[None] * steps for _ in range(batch)]
    weights = np.zeros((batch, steps, memory.shape[1]))
    for b in range(batch):
        states = [list(s) for s in initial_states[b]]
        for position, t in enumerate(np.flatnonzero(asked[b])):
            x, states[0] = cells[0](sequences[b, t], states[0])
            context, weights[b, t] = row(x, memory[b], memory[b], valid[b], valid[b], position)
            for n in range(1, len(cells)):
                hidden, states[n] = cells[n](np.concatenate([x, context]), states[n])
                x = hidden if n == 1 else x + hidden
            outputs[b][t] = x
    return _filled(outputs), weights


def _filled(outputs):
    """Zeros where there is None."""
    zeros = np.zeros(next(len(x) for x in outputs[0] if x is not None))
    return np.array([[zeros if x is None else x for x in row] for row in outputs])


def lstm(kernel, recurrent_kernel, bias):
    """Gates in the order input, forget, candidate, output."""

    def cell(x, states):
        h, c = states
        i, f, g, o = np.split(x @ kernel + h @ recurrent_kernel + bias, 4)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        return h, [h, c]

    return cell


def pool(weights, steps, valid, normalizer="softmax", temperature=1.0):
    """Yang et al. (2016), equations 5 to 7, of one sequence `(T, D)`: s and a.

    With weights of the gate it is equation 9 of Ilse et al. (2018). With several query vectors it
    is equation 6 of Lin et al. (2017), and s and a have an axis for them.
    """
    hidden = [np.tanh(x @ weights["kernel"] + weights["bias"]) for x in steps]
    if "gate_kernel" in weights:
        gates = [sigmoid(x @ weights["gate_kernel"] + weights["gate_bias"]) for x in steps]
        hidden = [x * gate for x, gate in zip(hidden, gates, strict=True)]
    queries = np.atleast_2d(weights["query_vector"])
    scores = [[x @ query / temperature for x in hidden] for query in queries]
    align = [NORMALIZERS[normalizer](row, valid) for row in scores]
    pooled = [_read(row, steps) for row in align]
    one = weights["query_vector"].ndim == 1
    return (pooled[0], align[0]) if one else (pooled, align)


@batched("inputs", "mask")
def attention_pooling(weights, inputs, normalizer="softmax", mask=None, temperature=1.0):
    return pool(weights, inputs, _valid(mask, len(inputs)), normalizer, temperature)


def redundancy(weights):
    """The penalty of Lin et al. (2017), equation 8: mean over bags of the weights `(B, r, T)`.

    A bag in which nothing is valid counts as zero.
    """
    total = 0.0
    for a in weights:
        for i, j in np.ndindex(len(a), len(a)):
            if a.any():
                total += (a[i] @ a[j] - (i == j)) ** 2
    return total / len(weights)


@batched("inputs", "mask")
def hierarchical_attention(word_weights, sentence_weights, inputs, word_encoder=None,
                           sentence_encoder=None, normalizer="softmax", mask=None):  # fmt: skip
    """Yang et al. (2016), section 2.2, of a batch `(B, S, W, D)`: v, a of words, a of sentences.

    An encoder is a function `(sequence, valid)` from `(T, D)` to `(T, E)`. A sentence without a
    word is no sentence.
    """
    valid = _valid(mask, inputs.shape[:2])
    pairs = list(zip(inputs, valid, strict=True))
    encoded = [word_encoder(*pair) for pair in pairs] if word_encoder else inputs
    pairs = zip(encoded, valid, strict=True)
    vectors, a = zip(*(pool(word_weights, *pair, normalizer) for pair in pairs), strict=True)
    vectors, spoken = np.array(vectors), valid.any(axis=1)
    vectors = sentence_encoder(vectors, spoken) if sentence_encoder else vectors
    document, b = pool(sentence_weights, vectors, spoken, normalizer)
    return document, a, b


def dense(kernel, bias):
    """An encoder of every step for itself."""
    return lambda sequence, valid: np.array([np.tanh(x @ kernel + bias) for x in sequence])


def recurrent(cell, units):
    """An encoder: the state after every step, where steps that are not valid do not count."""

    def run(sequence, valid):
        h, states = np.zeros(units), np.zeros((len(sequence), units))
        for t in range(len(sequence)):
            if valid[t]:
                h, _ = cell(sequence[t], [h])
                states[t] = h
        return states

    return run


def both_ways(forward, backward):
    """[h of the steps up to t; h of the steps from the last back to t]"""

    def run(sequence, valid):
        back = backward(sequence[::-1], valid[::-1])[::-1]
        return np.concatenate([forward(sequence, valid), back], axis=1)

    return run


@batched("query", "value", "key", "mask")
def memory_hop(
    weights, query, value, key=None, mask=None, update="add", linear=False, normalizer="softmax"
):
    """Sukhbaatar et al. (2015), section 2.1, of `(B, D)` and memories `(B, N, D)`: u' and p.

    `linear` leaves the softmax out, as section 4.2 does at the start of training.
    """
    key, valid = value if key is None else key, _valid(mask, len(value))
    scores = np.array([query @ m if ok else 0.0 for m, ok in zip(key, valid, strict=True)])
    p = scores if linear else NORMALIZERS[normalizer](scores, valid)
    return (query @ weights["update_kernel"] if update == "linear" else query) + _read(p, value), p


def sentence_vector(words, table, position_encoding):
    """sum_j l_j * A x_j over the words that are not padding: section 4.1."""
    words, size = [word for word in words if word != 0], table.shape[1]
    k, vector = np.arange(1, size + 1), np.zeros(size)
    for j, word in enumerate(words, start=1):
        share = 1.0
        if position_encoding is True:
            place = j / len(words)
            share = (1 - place) - (k / size) * (1 - 2 * place)
        elif position_encoding is not False:  # of the authors' code, for sentences of all lengths
            length = position_encoding
            middle, centre = (length + 1) / 2, (size + 1) / 2
            share = 1 + 4 * (min(j, length) - middle) * (k - centre) / (length * size)
        vector = vector + share * table[word]
    return vector


@batched("story", "question")
def memory_network(embeddings, times, story, question, update_kernel=None, hops=3,
                   tying="adjacent", position_encoding=True, memory_size=50, null_memories=False,
                   linear=False):  # fmt: skip
    """Sukhbaatar et al. (2015), of ids `(B, N, W)` and `(B, J)`: logits and p `(B, K, N)`.

    Time counts back from the last sentence with a word, whose t is 0. A sentence without a word
    takes its time and is not read; nor is one whose t is `memory_size` or more. With
    `null_memories` what is read has `memory_size` places, zero where there is no sentence for them.
    """
    adjacent, length = tying == "adjacent", len(story)
    asked, answers = (embeddings[n] for n in ((0, -1) if adjacent else (2, 3)))
    spoken = [i for i in range(length) if any(story[i] != 0)]
    past = {i: spoken[-1] - i for i in spoken if spoken[-1] - i < memory_size}
    nulls = memory_size - len(past) if null_memories else 0
    valid = [i in past for i in range(length)] + [True] * nulls
    u, p = sentence_vector(question, asked, position_encoding), []
    for n in range(hops):
        m, c = np.zeros((2, length + nulls, asked.shape[1]))
        for i, age in past.items():
            for memory, table in ((m, n * adjacent), (c, n * adjacent + 1)):
                memory[i] = sentence_vector(story[i], embeddings[table], position_encoding)
                memory[i] += times[table][age]
        kernel, update = {"update_kernel": update_kernel}, "add" if adjacent else "linear"
        u, weights = memory_hop.__wrapped__(kernel, u, c, m, valid, update, linear)
        p.append(weights[:length])
    # The word 0 is no answer: its row of W is null.
    return [0.0, *(row @ u for row in answers[1:])], p


def attention_rnn(row, cells, sequences, memory, initial_states, input_feed=None,
                  query="previous", input_feeding=False, output_mode="cell", sequences_mask=None,
                  memory_mask=None, ask=lambda states: states[0]):  # fmt: skip
    """The decoder of Bahdanau ("previous") or Luong ("current").

    `cells` are functions `(x, states) -> (h, states)`, the first fed by the input, each next by the
    one before; `ask(states)` of the last one is the query. `initial_states[b][n]` is the list of
    states of cell n for sample b; `input_feed[b]` the attentional vector before the first step.
    Returns outputs, weights and for each sample the last `(states, input_feed)`. Where the sequence
    is masked the states stay, output and weights are zero, and the step is not counted.
    """
    batch, steps, _ = sequences.shape
    asked = _valid(sequences_mask, (batch, steps))
    valid = _valid(memory_mask, memory.shape[:2])
    outputs, last = [[None] * steps for _ in range(batch)], []
    weights = np.zeros((batch, steps, memory.shape[1]))
    for b in range(batch):
        states = [list(s) for s in initial_states[b]]
        vector, own = None if input_feed is None else input_feed[b], (memory[b], memory[b])
        for position, t in enumerate(np.flatnonzero(asked[b])):
            x = sequences[b, t]
            if query == "previous":
                top = ask(states[-1])
                vector, weights[b, t] = row(top, *own, valid[b], valid[b], position)
            if query == "previous" or input_feeding:
                x = np.concatenate([x, vector])
            for n, cell in enumerate(cells):
                x, states[n] = cell(x, states[n])
            if query == "current":
                vector, weights[b, t] = row(x, *own, valid[b], valid[b], position)
            parts = {"cell": [x], "attention": [vector], "concat": [vector, x]}[output_mode]
            outputs[b][t] = np.concatenate(parts)
        last.append((states, vector))
    return _filled(outputs), weights, last


def target(weights, normalizer="none"):
    """Zhou et al. (2018), section 4.3: e_j is a small network of q, k, q - k and q * k."""

    def row(query, keys, values, valid, allowed, position):
        del valid, position
        scores = np.zeros(len(keys))
        for j, key in enumerate(keys):
            features = np.concatenate([query, key, query - key, query * key])
            hidden = sigmoid(features @ weights["kernel"] + weights["bias"])
            scores[j] = weights["score_vector"] @ hidden + weights.get("score_bias", 0.0)
        if normalizer == "softmax":
            align = masked_softmax(scores, allowed)
        else:
            align = np.where(allowed, sigmoid(scores) if normalizer == "sigmoid" else scores, 0.0)
        return _read(align, values), align

    return row


def narm(a1, a2, v, states, valid):
    """Li et al. (2017): [h_T; sum_j a_j h_j] with a_j = v . sigmoid(A1 h_T + A2 h_j)."""
    last = states[max(j for j in range(len(states)) if valid[j])]
    terms = [v @ sigmoid(last @ a1 + h @ a2) * h for h, ok in zip(states, valid, strict=True) if ok]
    return np.concatenate([last, sum(terms)])


@batched("visits", "mask")
def retain(weights, visit_cell, gate_cell, visits, mask=None):
    """Choi et al. (2016), sections 2.2 and 2.3, of `(B, T, D)`: y, a and the contributions."""
    steps, units = len(visits), weights["visit_vector"].size
    valid, kernel = _valid(mask, steps), weights["embedding_kernel"]
    g, h = np.zeros((2, units))
    scores, (gates, embedded) = np.zeros(steps), np.zeros((2, steps, units))
    for i in reversed(np.flatnonzero(valid)):
        embedded[i] = visits[i] @ kernel
        g, _ = visit_cell(embedded[i], [g])
        h, _ = gate_cell(embedded[i], [h])
        scores[i] = weights["visit_vector"] @ g
        gates[i] = np.tanh(h @ weights["gate_kernel"] + weights["gate_bias"])
    a = masked_softmax(scores, valid)
    context = sum((a[i] * gates[i] * embedded[i] for i in range(steps)), np.zeros(units))
    shares = np.zeros((*visits.shape, weights["class_bias"].size))
    for i, k in np.ndindex(visits.shape):
        if valid[i]:
            slope = a[i] * (gates[i] * kernel[k]) @ weights["class_kernel"]
            shares[i, k] = visits[i, k] * slope
    return context @ weights["class_kernel"] + weights["class_bias"], a, shares


@batched("series", "mask")
def feature_attention(weights, cell, sizes, series, mask=None, normalizer="softmax"):
    """Qin et al. (2017), section 3.2, of `(B, T, D)`: the states of the cell, and the weights.

    A missing value is zero in the history of its series. A step without any value is no step.
    """
    there, states = _valid(mask, series.shape), [np.zeros(n) for n in sizes]
    known = np.where(there, series, 0.0)
    outputs, a = np.zeros((len(series), sizes[0])), np.zeros(series.shape)
    bias = weights.get("bias", np.zeros((series.shape[1], 1)))
    for t in np.flatnonzero(there.any(axis=1)):
        state = np.concatenate(states) @ weights["query_kernel"]
        hidden = [state + x @ weights["key_kernel"] + b for x, b in zip(known.T, bias, strict=True)]
        scores = [weights["score_vector"] @ np.tanh(x) for x in hidden]
        a[t] = NORMALIZERS[normalizer](scores, there[t])
        outputs[t], states = cell(a[t] * known[t], states)
    return outputs, a
