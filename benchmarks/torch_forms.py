"""The computations of `sweep.py` as a PyTorch user writes them.

`make_step(case, backward)` returns a function without arguments. Every case has the sizes, the
inputs and the arithmetic of the case of the same name in `sweep.py`.
"""

import math

import numpy as np
import torch
from sweep import DECODERS, SEARCH, SIZES, TRANSLATOR
from torch_decoders import decoder, translator

SEED = 11


def make_step(case, backward):
    torch.manual_seed(SEED)
    if case in ("greedy search", "beam search"):
        return search(beam_width=1 if case == "greedy search" else SEARCH["beams"])
    if case == "translator":
        return translator(**TRANSLATOR)
    if case in DECODERS:
        function, inputs, weights = decoder(**DECODERS[case])
    else:
        function, inputs, weights = CASES[case](**SIZES[case])
    variables = [x.requires_grad_(backward) for x in (*inputs, *weights)]

    def step():
        if not backward:
            with torch.no_grad():
                return function(*inputs)
        return torch.autograd.grad(function(*inputs), variables, upstream)

    with torch.no_grad():
        upstream = normal(function(*inputs).shape)
    return step


def normal(*shapes, scale=1.0):
    rng = np.random.default_rng(SEED)
    found = [torch.tensor(rng.normal(scale=scale, size=s), dtype=torch.float32) for s in shapes]
    return found if len(found) > 1 else found[0]


def kernels(*shapes):
    return normal(*shapes, scale=0.05) if len(shapes) > 1 else [normal(*shapes, scale=0.05)]


def additive_step(batch, steps, units):
    inputs = normal((batch, units), *[(batch, steps, units)] * 2)
    kernel, vector = kernels((units, units), (units,))

    def function(query, key, value):
        scores = torch.tanh((query @ kernel)[:, None] + key) @ vector
        return torch.bmm(torch.softmax(scores, -1)[:, None], value)[:, 0]

    return function, inputs, [kernel, vector]


def additive(batch, steps, units):
    inputs = normal(*[(batch, steps, units)] * 2)
    query_kernel, key_kernel, vector = kernels((units, units), (units, units), (units,))

    def function(query, value):
        pairs = (query @ query_kernel)[:, :, None] + (value @ key_kernel)[:, None]
        return torch.bmm(torch.softmax(torch.tanh(pairs) @ vector, -1), value)

    return function, inputs, [query_kernel, key_kernel, vector]


def luong(batch, steps, units, score="general", normalizer=torch.softmax, vector=False):
    inputs = normal(*[(batch, steps, units)] * 2)
    score_kernel, output_kernel = kernels((units, units), (2 * units, units))

    def function(query, value):
        key = value @ score_kernel.T if score == "general" else value
        weights = normalizer(torch.bmm(query, key.transpose(1, 2)), -1)
        context = torch.bmm(weights, value)
        return torch.tanh(torch.cat([context, query], -1) @ output_kernel) if vector else context

    weights = [score_kernel] * (score == "general") + [output_kernel] * vector
    return function, inputs, weights


def sparsemax(scores, axis):
    ordered = torch.sort(scores, axis, descending=True).values
    rank = torch.arange(1, scores.shape[axis] + 1, dtype=scores.dtype)
    sums = torch.cumsum(ordered, axis) - 1
    size = (rank * ordered > sums).sum(axis, keepdim=True)
    return torch.clamp(scores - sums.gather(axis, size - 1) / size, min=0)


def local(batch, steps, units, alignment, half_width):
    inputs = normal(*[(batch, steps, units)] * 2)
    score_kernel, position_kernel, position_vector = kernels(*[(units, units)] * 2, (units,))
    places = torch.arange(steps, dtype=torch.float32)

    def function(query, value):
        if alignment == "local-p":
            hidden = torch.tanh(query @ position_kernel)
            center = steps * torch.sigmoid(hidden @ position_vector)[:, :, None]
        else:
            center = places[None, :, None]
        scores = torch.bmm(query, (value @ score_kernel.T).transpose(1, 2))
        inside = (places - torch.floor(center)).abs() <= half_width
        weights = torch.softmax(scores.masked_fill(~inside, -math.inf), -1)
        if alignment == "local-p":
            weights = weights * torch.exp((places - center) ** 2 * (-2 / half_width**2))
        return torch.bmm(weights, value)

    predictive = alignment == "local-p"
    return function, inputs, [score_kernel, *[position_kernel, position_vector][: 2 * predictive]]


def bidaf(batch, context, query, units):
    inputs = normal(*[(batch, steps, 2 * units) for steps in (context, query)], scale=0.3)
    of_context, grad_query, of_product = kernels(*[(2 * units,)] * 3)

    def function(h, u):
        scores = torch.bmm(h * of_product, u.transpose(1, 2))
        scores = scores + (h @ of_context)[:, :, None] + (u @ grad_query)[:, None]
        attended = torch.bmm(torch.softmax(scores, -1), u)
        summary = torch.bmm(torch.softmax(scores.max(-1).values, -1)[:, None], h)
        return torch.cat([h, attended, h * attended, h * summary], -1)

    return function, inputs, [of_context, grad_query, of_product]


def pool(sequence, kernel, bias, vector):
    weights = torch.softmax(torch.tanh(sequence @ kernel + bias) @ vector, -1)
    return torch.bmm(weights[:, None], sequence)[:, 0]


def pooling(batch, steps, units):
    weights = kernels((units, units), (units,), (units,))
    return lambda x: pool(x, *weights), [normal((batch, steps, units))], weights


def bag(batch, steps, features, units):
    kernels_of = [kernels((features, units), (units,)) for _ in range(2)]
    (vector,) = kernels((units,))

    def function(x):
        (kernel, bias), (gate_kernel, gate_bias) = kernels_of
        hidden = torch.tanh(x @ kernel + bias) * torch.sigmoid(x @ gate_kernel + gate_bias)
        return torch.bmm(torch.softmax(hidden @ vector, -1)[:, None], x)[:, 0]

    return function, [normal((batch, steps, features))], [*kernels_of[0], *kernels_of[1], vector]


def hierarchical(batch, sentences, words, units):
    encoders = [torch.nn.GRU(units, units, batch_first=True) for _ in range(2)]
    weights = [kernels((units, units), (units,), (units,)) for _ in range(2)]

    def function(x):
        encoded, _ = encoders[0](x.reshape(batch * sentences, words, units))
        vectors = pool(encoded, *weights[0]).reshape(batch, sentences, units)
        encoded, _ = encoders[1](vectors)
        return pool(encoded, *weights[1])

    found = [x for encoder in encoders for x in encoder.parameters()]
    return function, [normal((batch, sentences, words, units))], [*found, *weights[0], *weights[1]]


def memory_hop(batch, steps, units):
    def function(query, value):
        weights = torch.softmax(torch.bmm(value, query[:, :, None])[:, :, 0], -1)
        return query + torch.bmm(weights[:, None], value)[:, 0]

    return function, normal((batch, units), (batch, steps, units)), []


CASES = {
    "additive, one step": additive_step,
    "additive": additive,
    "dot": lambda **sizes: luong(score="dot", **sizes),
    "general": luong,
    "general, attentional vector": lambda **sizes: luong(vector=True, **sizes),
    "general, sparsemax": lambda **sizes: luong(normalizer=sparsemax, **sizes),
    "local-m": lambda **sizes: local(alignment="local-m", **sizes),
    "local-p": lambda **sizes: local(alignment="local-p", **sizes),
    "BiDAF": bidaf,
    "pooling": pooling,
    "bag": bag,
    "hierarchical": hierarchical,
    "hierarchical, torch.nn.GRU": hierarchical,
    "memory hop": memory_hop,
}


def search(beam_width):
    """A decoder of one GRU cell with additive attention, driven by a plain loop."""
    batch, steps, units, words, longest = (
        SEARCH[name] for name in ("batch", "steps", "units", "words", "longest")
    )
    memory = normal((batch, steps, 2 * units))
    embedding, head = torch.nn.Embedding(words, units), torch.nn.Linear(3 * units, words)
    cell = torch.nn.GRUCell(3 * units, units)
    query_kernel, key_kernel, vector = kernels((units, units), (2 * units, units), (units,))

    def advance(tokens, state, key, value):
        scores = torch.tanh((state @ query_kernel)[:, None] + key) @ vector
        context = torch.bmm(torch.softmax(scores, -1)[:, None], value)[:, 0]
        state = cell(torch.cat([embedding(tokens), context], -1), state)
        return torch.log_softmax(head(torch.cat([context, state], -1)), -1), state

    @torch.no_grad()
    def step():
        value = memory.repeat_interleave(beam_width, 0)
        key = (memory @ key_kernel).repeat_interleave(beam_width, 0)
        rows = batch * beam_width
        state, tokens = torch.zeros(rows, units), torch.ones(rows, dtype=torch.long)
        found = torch.zeros(rows, longest, dtype=torch.long)
        totals = torch.full((batch, beam_width), -math.inf)
        totals[:, 0] = 0.0
        offset = torch.arange(batch)[:, None] * beam_width
        for t in range(longest):
            logs, state = advance(tokens, state, key, value)
            logs = totals[:, :, None] + logs.reshape(batch, beam_width, words)
            totals, chosen = logs.reshape(batch, -1).topk(beam_width)
            parent = (offset + chosen // words).reshape(-1)
            tokens = (chosen % words).reshape(-1)
            state, found = state[parent], found[parent]
            found[:, t] = tokens
        return found

    return step
