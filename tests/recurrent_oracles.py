"""The equations of attentions with a state as NumPy loops, to be checked by reading.

A mechanism is a function `row` as in `tests/oracles.py`. It keeps the state itself, so the rows of
a sample must be computed in their order, from position 0.
"""

import math

import numpy as np

from tests.oracles import NORMALIZERS, _read, sigmoid


def with_state(first, step):
    """A row that runs `weights, state = step(query, keys, values, allowed, state)`.

    `first` takes the list of valid memory steps and returns the state before the first step.
    """
    state = None

    def row(query, keys, values, valid, allowed, position):
        nonlocal state
        state = first(valid) if position == 0 else state
        if not any(allowed):  # the query is masked
            return np.zeros(values.shape[1]), np.zeros(len(keys))
        weights, state = step(query, keys, values, allowed, state)
        return _read(weights, values), weights

    return row


def nowhere(valid):
    return np.zeros(len(valid))


def at_the_start(valid):
    return np.eye(len(valid))[np.argmax(valid)]


def convolution(kernel, weights, j, before=None):
    """sum_w kernel[w] weights[j + w - before]"""
    before = (len(kernel) - 1) // 2 if before is None else before
    total = np.zeros(kernel.shape[1])
    for w in range(len(kernel)):
        if 0 <= j + w - before < len(weights):
            total = total + kernel[w] * weights[j + w - before]
    return total


def additive(weights, query, key, more=0.0, prefix=""):
    """v . tanh(W q + V k + b + more), with g v / |v| in place of v if there is a gain."""
    vector = weights[prefix + "score_vector"]
    if prefix + "gain" in weights:
        vector = weights[prefix + "gain"] * vector / math.sqrt(sum(vector**2))
    hidden = query @ weights[prefix + "query_kernel"] + key @ weights[prefix + "key_kernel"] + more
    return vector @ np.tanh(hidden + weights.get(prefix + "bias", 0.0))


def location_sensitive(weights, cumulative=True, normalizer="softmax"):
    def step(query, keys, values, allowed, state):
        filters = [convolution(weights["filter_kernel"], state, j) for j in range(len(keys))]
        seen = [x @ weights["location_kernel"] for x in filters]
        scores = [additive(weights, query, *pair) for pair in zip(keys, seen, strict=True)]
        align = NORMALIZERS[normalizer](scores, allowed)
        return align, state + align if cumulative else align

    return with_state(nowhere, step)


def coverage(weights, normalizer="softmax"):
    def step(query, keys, values, allowed, state):
        seen = [x * weights["coverage_vector"] for x in state]
        scores = [additive(weights, query, *pair) for pair in zip(keys, seen, strict=True)]
        align = NORMALIZERS[normalizer](scores, allowed)
        return align, state + align

    return with_state(nowhere, step)


def forward(weights, transition_agent=False):
    def step(query, keys, values, allowed, state):
        last, move = state
        scores = np.array([additive(weights, query, key) for key in keys])
        soft = NORMALIZERS["softmax"](scores, allowed)
        align = np.zeros(len(keys))
        for j in range(len(keys)):
            before = last[j - 1] if j > 0 else 0.0
            reached = (1 - move) * last[j] + move * before if transition_agent else last[j] + before
            align[j] = reached * soft[j]
        if not align.any():
            return align, state
        align = align / sum(align)
        if transition_agent:
            both = np.concatenate([align @ values, query])
            move = sigmoid(both @ weights["agent_vector"] + weights["agent_bias"])
        return align, (align, move)

    return with_state(lambda valid: (at_the_start(valid), 0.5), step)


def monotonic(weights, mode="parallel", chunk_size=None):
    def step(query, keys, values, allowed, state):
        scores = [additive(weights, query, key) + weights["offset_bias"] for key in keys]
        stop = [sigmoid(e) * bool(ok) for e, ok in zip(scores, allowed, strict=True)]
        last = np.zeros(len(keys))
        if mode == "hard":
            if state.any():
                start = int(np.argmax(state))
                chosen = [j for j in range(start, len(keys)) if stop[j] >= 0.5]
                last[chosen[:1]] = 1
        else:
            # The probability of stopping at j after stopping at l before, for every pair.
            for j in range(len(keys)):
                for before in range(j + 1):
                    passed = np.prod([1 - stop[m] for m in range(before, j)])
                    last[j] += state[before] * passed * stop[j]
        align = last if chunk_size is None else chunks(query, keys, allowed, last)
        return align, last

    def chunks(query, keys, allowed, last):
        scores = np.array([additive(weights, query, key, prefix="chunk_") for key in keys])
        align = np.zeros(len(keys))
        for end in range(len(keys)):
            inside = [ok and end - chunk_size < j <= end for j, ok in enumerate(allowed)]
            align = align + last[end] * NORMALIZERS["softmax"](scores, inside)
        return align

    return with_state(at_the_start, step)


def stepwise_monotonic(weights, hard=False, keep_last=False):
    def step(query, keys, values, allowed, state):
        align = np.zeros(len(keys))
        for j in range(len(keys)):
            after = [m for m in range(j + 1, len(keys)) if allowed[m]]
            stay = sigmoid(additive(weights, query, keys[j]) + weights["offset_bias"])
            stay = float(stay >= 0.5) if hard else stay
            stay = 1.0 if keep_last and not after else stay
            stay = stay if allowed[j] else 0.0
            align[j] += state[j] * stay
            if after:  # otherwise it is lost
                align[after[0]] += state[j] * (1 - stay)
        return align, align

    return with_state(at_the_start, step)


def gmm(weights, components=5, version="V2b"):
    def step(query, keys, values, allowed, state):
        hidden = np.tanh(query @ weights["query_kernel"] + weights["bias"])
        mixture = hidden @ weights["mixture_kernel"] + weights["mixture_bias"]
        factor, move, width = np.split(mixture, 3)
        if version == "V0":
            factor, move, sigma = np.exp(factor), np.exp(move), np.sqrt(np.exp(-width) / 2)
        else:
            move, sigma = np.log1p(np.exp(move)), np.log1p(np.exp(width)) + 0.01
            factor = np.exp(factor) / sum(np.exp(factor)) / np.sqrt(2 * np.pi * sigma**2)
        center = state + move
        align = np.zeros(len(keys))
        for j in range(len(keys)):
            if allowed[j]:
                align[j] = sum(factor * np.exp(-((j - center) ** 2) / (2 * sigma**2)))
        return align, center

    return with_state(lambda valid: np.full(components, float(np.argmax(valid))), step)


def dynamic_convolution(weights, prior_length=11, alpha=0.1, beta=0.9):
    prior = beta_binomial(prior_length - 1, alpha, beta)

    def step(query, keys, values, allowed, state):
        hidden = np.tanh(query @ weights["query_kernel"] + weights["query_bias"])
        filters = weights["dynamic_kernel"].shape[0]
        dynamic = (hidden @ weights["dynamic_filter_kernel"]).reshape(-1, filters)
        scores = np.zeros(len(keys))
        for j in range(len(keys)):
            hidden = convolution(weights["filter_kernel"], state, j) @ weights["static_kernel"]
            hidden = hidden + convolution(dynamic, state, j) @ weights["dynamic_kernel"]
            reached = sum(prior[m] * state[j - m] for m in range(min(j + 1, prior_length)))
            scores[j] = weights["score_vector"] @ np.tanh(hidden + weights["bias"])
            scores[j] += math.log(reached) if reached > 0 else -1e6
        align = NORMALIZERS["softmax"](scores, allowed)
        return align, align

    return with_state(at_the_start, step)


def beta_binomial(n, alpha, beta):
    """By its urn: after k successes in m draws, the next one succeeds at (k + alpha) / (m + ..)."""
    chances = [1.0]
    for m in range(n):
        more = [0.0] * (m + 2)
        for k, chance in enumerate(chances):
            success = (k + alpha) / (m + alpha + beta)
            more[k + 1] += chance * success
            more[k] += chance * (1 - success)
        chances = more
    return chances
