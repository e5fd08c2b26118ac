"""The papers' equations as NumPy loops, to be checked by reading.

A mechanism is a function `row(query, keys, values, valid, allowed, position)` for one query of one
sample: query `(Dq,)`, keys `(Tk, Dk)`, values `(Tk, Dv)`; `valid` `(Tk,)` says which memory steps
are words, `allowed` `(Tk,)` which of them this query may read, `position` is its step. It returns
`(output, weights)`. `attend` runs it over a batch, `attention_rnn` inside a decoder.
"""

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
    total = sum(math.exp(e - max(scores)) for e in scores)
    return [math.exp(e - max(scores)) / total for e in scores]


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
    return [float(j == int(np.argmax(scores))) for j in range(len(scores))]


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
    # What is not read may hold NaN.
    return sum(
        (a * v for a, v in zip(weights, values, strict=True) if a), np.zeros(values.shape[1])
    )


def _valid(mask, b, length):
    return [mask is None or mask[b, j] for j in range(length)]


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
        near = [
            center is None or abs(j - math.floor(center)) <= half_width for j in range(len(keys))
        ]
        inside = [ok and close for ok, close in zip(allowed, near, strict=True)]
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


def attend(
    row,
    query,
    value,
    key=None,
    query_mask=None,
    value_mask=None,
    attention_mask=None,
    use_causal_mask=False,
):
    """A batch of sequences of queries: `(B, Tq, ...)` outputs and `(B, Tq, Tk)` weights."""
    key = value if key is None else key
    batch, steps, length = len(query), query.shape[1], value.shape[1]
    pairs = True if attention_mask is None else attention_mask
    pairs = np.broadcast_to(pairs, (batch, steps, length))
    outputs, weights = [], np.zeros((batch, steps, length))
    for b in range(batch):
        valid, asked = _valid(value_mask, b, length), _valid(query_mask, b, steps)
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


def attention_flow(
    weights,
    context,
    query,
    query_to_context=True,
    context_to_query=True,
    normalizer="softmax",
    context_mask=None,
    query_mask=None,
):
    """Seo et al. (2017), section 2, the attention flow layer, of batches `(B, T, D)`, `(B, J, D)`.

    Returns G and the weights, `(a, b)` or `(a,)`. Without `context_to_query` a is an average.
    """
    batch, steps, size = context.shape
    length = query.shape[1]
    # Without query to context w_h is not there: a softmax over j does not see it.
    first = weights.get("context_vector", np.zeros(size))
    vector = np.concatenate([first, weights["query_vector"], weights["product_vector"]])
    normalize = NORMALIZERS[normalizer]
    merged = np.zeros((batch, steps, (4 if query_to_context else 3) * size))
    a, b = np.zeros((batch, steps, length)), np.zeros((batch, steps))
    for n in range(batch):
        asked = _valid(query_mask, n, length)
        words = np.flatnonzero(_valid(context_mask, n, steps))
        scores = trilinear_scores(context[n], query[n], vector)
        best, known = np.zeros(steps), [False] * steps
        for t in words:
            if any(asked):
                best[t] = max(scores[t, j] for j in range(length) if asked[j])
                known[t] = True
            if context_to_query:
                a[n, t] = normalize(scores[t], asked)
            else:
                a[n, t] = [1 / sum(asked) if valid else 0.0 for valid in asked]
        b[n] = normalize(best, known)
        summary = _read(b[n], context[n])
        for t in words:
            h, attended = context[n, t], _read(a[n, t], query[n])
            parts = [h, attended, h * attended, *[h * summary] * query_to_context]
            merged[n, t] = np.concatenate(parts)
    return merged, ((a, b) if query_to_context else (a,))


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
    length, outputs, weights = memory.shape[1], [], np.zeros((batch, steps, memory.shape[1]))
    for b in range(batch):
        states = [list(s) for s in initial_states[b]]
        valid, asked = _valid(memory_mask, b, length), _valid(sequences_mask, b, steps)
        outputs.append([None] * steps)
        position = 0
        for t in range(steps):
            if not asked[t]:
                continue
            x, states[0] = cells[0](sequences[b, t], states[0])
            context, weights[b, t] = row(x, memory[b], memory[b], valid, valid, position)
            for n in range(1, len(cells)):
                hidden, states[n] = cells[n](np.concatenate([x, context]), states[n])
                x = hidden if n == 1 else x + hidden
            outputs[b][t] = x
            position += 1
        size = next(len(x) for x in outputs[b] if x is not None)
        outputs[b] = [np.zeros(size) if x is None else x for x in outputs[b]]
    return np.array(outputs), weights


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
    queries = weights["query_vector"].reshape(-1, weights["kernel"].shape[1])
    pooled, align = np.zeros((len(queries), steps.shape[1])), np.zeros((len(queries), len(steps)))
    for r in range(len(queries)):
        scores = np.zeros(len(steps))
        for t in range(len(steps)):
            if valid[t]:
                hidden = np.tanh(steps[t] @ weights["kernel"] + weights["bias"])
                if "gate_kernel" in weights:
                    gate = steps[t] @ weights["gate_kernel"] + weights["gate_bias"]
                    hidden = hidden * sigmoid(gate)
                scores[t] = hidden @ queries[r] / temperature
        align[r] = NORMALIZERS[normalizer](scores, valid)
        pooled[r] = _read(align[r], steps)
    if weights["query_vector"].ndim == 1:
        return pooled[0], align[0]
    return pooled, align


def attention_pooling(weights, inputs, normalizer="softmax", mask=None, temperature=1.0):
    """`pool` of a batch."""
    batch, steps, _ = inputs.shape
    rows = []
    for b in range(batch):
        valid = _valid(mask, b, steps)
        rows.append(pool(weights, inputs[b], valid, normalizer, temperature))
    return tuple(np.array(x) for x in zip(*rows, strict=True))


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


def hierarchical_attention(
    word_weights,
    sentence_weights,
    inputs,
    word_encoder=None,
    sentence_encoder=None,
    normalizer="softmax",
    mask=None,
):
    """Yang et al. (2016), section 2.2, of a batch `(B, S, W, D)`: v, a of words, a of sentences.

    An encoder is a function `(sequence, valid)` from `(T, D)` to `(T, E)`. A sentence without a
    word is no sentence.
    """
    batch, sentences, words, _ = inputs.shape
    documents, a, b = [], np.zeros((batch, sentences, words)), np.zeros((batch, sentences))
    for n in range(batch):
        vectors, spoken = [], []
        for i in range(sentences):
            valid = [mask is None or mask[n, i, t] for t in range(words)]
            encoded = word_encoder(inputs[n, i], valid) if word_encoder else inputs[n, i]
            vector, a[n, i] = pool(word_weights, encoded, valid, normalizer)
            vectors.append(vector)
            spoken.append(any(valid))
        encoded = np.array(vectors)
        if sentence_encoder:
            encoded = sentence_encoder(encoded, spoken)
        document, b[n] = pool(sentence_weights, encoded, spoken, normalizer)
        documents.append(document)
    return np.array(documents), a, b


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


def memory_hop(
    weights, query, value, key=None, mask=None, update="add", linear=False, normalizer="softmax"
):
    """Sukhbaatar et al. (2015), section 2.1, of `(B, D)` and memories `(B, N, D)`: u' and p.

    `linear` leaves the softmax out, as section 4.2 does at the start of training.
    """
    key = value if key is None else key
    batch, length, size = value.shape
    states, p = np.zeros((batch, size)), np.zeros((batch, length))
    for b in range(batch):
        valid = _valid(mask, b, length)
        scores = [valid[i] and query[b] @ key[b, i] for i in range(length)]
        p[b] = scores if linear else NORMALIZERS[normalizer](scores, valid)
        u = query[b] @ weights["update_kernel"] if update == "linear" else query[b]
        states[b] = u + _read(p[b], value[b])
    return states, p


def sentence_vector(words, table, position_encoding):
    """sum_j l_j * A x_j over the words that are not padding: section 4.1."""
    words = [word for word in words if word != 0]
    size = table.shape[1]
    k, vector = np.arange(1, size + 1), np.zeros(size)
    for j, word in enumerate(words, start=1):
        if position_encoding is True:
            place = j / len(words)
            share = (1 - place) - (k / size) * (1 - 2 * place)
        elif position_encoding is False:
            share = 1.0
        else:  # of the authors' code, for sentences of all lengths
            length = position_encoding
            middle, centre = (length + 1) / 2, (size + 1) / 2
            share = 1 + 4 * (min(j, length) - middle) * (k - centre) / (length * size)
        vector = vector + share * table[word]
    return vector


def memory_network(
    embeddings,
    times,
    story,
    question,
    update_kernel=None,
    hops=3,
    tying="adjacent",
    position_encoding=True,
    memory_size=50,
    null_memories=False,
    linear=False,
):
    """Sukhbaatar et al. (2015), of ids `(B, N, W)` and `(B, J)`: logits and p `(B, K, N)`.

    Time counts back from the last sentence with a word, whose t is 0. A sentence without a word
    takes its time and is not read; nor is one whose t is `memory_size` or more. With
    `null_memories` what is read has `memory_size` places, zero where there is no sentence for them.
    """
    if tying == "adjacent":
        inputs, outputs = embeddings[:-1], embeddings[1:]
        input_times, output_times = times[:-1], times[1:]
        asked, answers, update = inputs[0], outputs[-1], "add"
    else:
        inputs, outputs = [embeddings[0]] * hops, [embeddings[1]] * hops
        input_times, output_times = [times[0]] * hops, [times[1]] * hops
        asked, answers, update = embeddings[2], embeddings[3], "linear"
    batch, length = story.shape[:2]
    vocabulary, size = asked.shape
    logits, p = np.zeros((batch, vocabulary)), np.zeros((batch, hops, length))
    for b in range(batch):
        spoken = [i for i in range(length) if any(story[b, i] != 0)]
        past = {i: spoken[-1] - i for i in spoken}
        read = [i for i in spoken if past[i] < memory_size]
        nulls = memory_size - len(read) if null_memories else 0
        valid = np.array([[i in read for i in range(length)] + [True] * nulls])
        u = sentence_vector(question[b], asked, position_encoding)
        for n in range(hops):
            m, c = np.zeros((2, 1, length + nulls, size))
            for i in read:
                m[0, i] = sentence_vector(story[b, i], inputs[n], position_encoding)
                c[0, i] = sentence_vector(story[b, i], outputs[n], position_encoding)
                m[0, i] += input_times[n][past[i]]
                c[0, i] += output_times[n][past[i]]
            kernel = {"update_kernel": update_kernel}
            states, weights = memory_hop(kernel, u[None], c, m, valid, update, linear)
            u, p[b, n] = states[0], weights[0, :length]
        for word in range(1, vocabulary):  # The word 0 is no answer: its row of W is null.
            logits[b, word] = answers[word] @ u
    return logits, p


def attention_rnn(
    row,
    cells,
    sequences,
    memory,
    initial_states,
    input_feed=None,
    query="previous",
    input_feeding=False,
    output_mode="cell",
    sequences_mask=None,
    memory_mask=None,
    ask=lambda states: states[0],
):
    """The decoder of Bahdanau ("previous") or Luong ("current").

    `cells` are functions `(x, states) -> (h, states)`, the first fed by the input, each next by the
    one before; `ask(states)` of the last one is the query. `initial_states[b][n]` is the list of
    states of cell n for sample b; `input_feed[b]` the attentional vector before the first step.
    Returns outputs, weights and for each sample the last `(states, input_feed)`. Where the sequence
    is masked the states stay, output and weights are zero, and the step is not counted.
    """
    outputs, weights, last = [], [], []
    for b in range(len(sequences)):
        states = [list(s) for s in initial_states[b]]
        vector = None if input_feed is None else input_feed[b]
        valid = _valid(memory_mask, b, memory.shape[1])
        outputs.append([])
        weights.append([])
        position = 0
        for t, asked in enumerate(_valid(sequences_mask, b, sequences.shape[1])):
            if asked:
                x = sequences[b, t]
                if query == "previous":
                    top = ask(states[-1])
                    vector, align = row(top, memory[b], memory[b], valid, valid, position)
                    x = np.concatenate([x, vector])
                elif input_feeding:
                    x = np.concatenate([x, vector])
                for n, cell in enumerate(cells):
                    x, states[n] = cell(x, states[n])
                if query == "current":
                    vector, align = row(x, memory[b], memory[b], valid, valid, position)
                position += 1
                parts = {"cell": [x], "attention": [vector], "concat": [vector, x]}[output_mode]
                outputs[-1].append(np.concatenate(parts))
                weights[-1].append(align)
            else:
                outputs[-1].append(None)
                weights[-1].append(np.zeros(memory.shape[1]))
        size = next(len(x) for x in outputs[-1] if x is not None)
        outputs[-1] = [np.zeros(size) if x is None else x for x in outputs[-1]]
        last.append((states, vector))
    return np.array(outputs), np.array(weights), last


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


def retain(weights, visit_cell, gate_cell, visits, mask=None):
    """Choi et al. (2016), sections 2.2 and 2.3, of `(B, T, D)`: y, a and the contributions."""
    batch, steps, codes = visits.shape
    classes, units = weights["class_bias"].size, weights["visit_vector"].size
    logits, a = np.zeros((batch, classes)), np.zeros((batch, steps))
    shares = np.zeros((batch, steps, codes, classes))
    for b in range(batch):
        valid = _valid(mask, b, steps)
        g, h = np.zeros((2, units))
        scores, (gates, embedded) = np.zeros(steps), np.zeros((2, steps, units))
        for i in reversed(range(steps)):
            if valid[i]:
                embedded[i] = visits[b, i] @ weights["embedding_kernel"]
                g, _ = visit_cell(embedded[i], [g])
                h, _ = gate_cell(embedded[i], [h])
                scores[i] = weights["visit_vector"] @ g
                gates[i] = np.tanh(h @ weights["gate_kernel"] + weights["gate_bias"])
        a[b] = masked_softmax(scores, valid)
        context = np.zeros(units)
        for i in range(steps):
            context = context + a[b, i] * gates[i] * embedded[i]
            for k in range(codes):
                if valid[i]:
                    gated = gates[i] * weights["embedding_kernel"][k]
                    slope = a[b, i] * gated @ weights["class_kernel"]
                    shares[b, i, k] = visits[b, i, k] * slope
        logits[b] = context @ weights["class_kernel"] + weights["class_bias"]
    return logits, a, shares


def feature_attention(weights, cell, sizes, series, mask=None, normalizer="softmax"):
    """Qin et al. (2017), section 3.2, of `(B, T, D)`: the states of the cell, and the weights.

    A missing value is zero in the history of its series. A step without any value is no step.
    """
    batch, steps, count = series.shape
    outputs, a = np.zeros((batch, steps, sizes[0])), np.zeros(series.shape)
    for b in range(batch):
        there = np.ones((steps, count), bool) if mask is None else mask[b]
        known = np.where(there, series[b], 0.0)
        states = [np.zeros(n) for n in sizes]
        for t in range(steps):
            if any(there[t]):
                scores = np.zeros(count)
                for k in range(count):
                    state = np.concatenate(states) @ weights["query_kernel"]
                    history = known[:, k] @ weights["key_kernel"]
                    if "bias" in weights:
                        history = history + weights["bias"][k]
                    hidden = np.tanh(state + history)
                    scores[k] = weights["score_vector"] @ hidden
                a[b, t] = NORMALIZERS[normalizer](scores, there[t])
                outputs[b, t], states = cell(a[b, t] * known[t], states)
    return outputs, a
