"""The cases as a user of PyTorch writes them. `steps.py` says what a builder returns.

Each has the sizes, the inputs and the arithmetic of the function of the same name in `ours.py`.
"""

import math

import torch
from steps import SEED, Computation, Step, normal
from torch import nn

torch.manual_seed(SEED)
if torch.cuda.is_available():
    torch.set_default_device("cuda")
    torch.set_float32_matmul_precision("high")  # TF32, as JAX has it by default


def kernels(*shapes):
    return [torch.tensor(x) for x in normal(shapes, 0.05)]


def additive_step(batch, steps, units):
    kernel, vector = weights = kernels((units, units), (units,))

    def function(query, key, value):
        scores = torch.tanh((query @ kernel)[:, None] + key) @ vector
        return torch.bmm(torch.softmax(scores, -1)[:, None], value)[:, 0]

    return Computation(function, weights, [(batch, units), *[(batch, steps, units)] * 2])


def additive(batch, steps, units):
    query_kernel, key_kernel, vector = weights = kernels((units, units), (units, units), (units,))

    def function(query, value):
        pairs = (query @ query_kernel)[:, :, None] + (value @ key_kernel)[:, None]
        return torch.bmm(torch.softmax(torch.tanh(pairs) @ vector, -1), value)

    return Computation(function, weights, [(batch, steps, units)] * 2)


def luong(batch, steps, units, alignment="global", **options):
    shapes = [(batch, steps, units)] * 2
    if alignment != "global":
        return Computation(*local(steps, units, alignment == "local-p"), shapes)
    score_kernel, output_kernel = kernels((units, units), (2 * units, units))
    projects, vector = options.get("score") != "dot", options.get("vector", False)
    normalizer = sparsemax if "normalizer" in options else torch.softmax

    def function(query, value):
        key = value @ score_kernel.T if projects else value
        weights = normalizer(torch.bmm(query, key.transpose(1, 2)), -1)
        context = torch.bmm(weights, value)
        return torch.tanh(torch.cat([context, query], -1) @ output_kernel) if vector else context

    return Computation(function, [score_kernel] * projects + [output_kernel] * vector, shapes)


def sparsemax(scores, axis):
    ordered = torch.sort(scores, axis, descending=True).values
    rank = torch.arange(1, scores.shape[axis] + 1, dtype=scores.dtype)
    sums = torch.cumsum(ordered, axis) - 1
    size = (rank * ordered > sums).sum(axis, keepdim=True)
    return torch.clamp(scores - sums.gather(axis, size - 1) / size, min=0)


def local(steps, units, predictive, half_width=10):
    score_kernel, position_kernel, position_vector = kernels(*[(units, units)] * 2, (units,))
    positions = torch.arange(steps, dtype=torch.float32)

    def function(query, value):
        if predictive:
            hidden = torch.tanh(query @ position_kernel)
            center = steps * torch.sigmoid(hidden @ position_vector)[:, :, None]
        else:
            center = positions[None, :, None]
        scores = torch.bmm(query, (value @ score_kernel.T).transpose(1, 2))
        inside = (positions - torch.floor(center)).abs() <= half_width
        weights = torch.softmax(scores.masked_fill(~inside, -math.inf), -1)
        if predictive:
            weights = weights * torch.exp((positions - center) ** 2 * (-2 / half_width**2))
        return torch.bmm(weights, value)

    return function, [score_kernel, *[position_kernel, position_vector][: 2 * predictive]]


def bidaf(batch, context, query, units):
    of_context, of_query, of_product = weights = kernels(*[(2 * units,)] * 3)

    def function(h, u):
        scores = torch.bmm(h * of_product, u.transpose(1, 2))
        scores = scores + (h @ of_context)[:, :, None] + (u @ of_query)[:, None]
        attended = torch.bmm(torch.softmax(scores, -1), u)
        summary = torch.bmm(torch.softmax(scores.max(-1).values, -1)[:, None], h)
        return torch.cat([h, attended, h * attended, h * summary], -1)

    shapes = [(batch, steps, 2 * units) for steps in (context, query)]
    return Computation(function, weights, shapes, 0.3)


def pool(sequence, kernel, bias, vector):
    weights = torch.softmax(torch.tanh(sequence @ kernel + bias) @ vector, -1)
    return torch.bmm(weights[:, None], sequence)[:, 0]


def pooling(batch, steps, units):
    weights = kernels((units, units), (units,), (units,))
    return Computation(lambda x: pool(x, *weights), weights, [(batch, steps, units)])


def bag(batch, steps, features, units):
    shapes = [(features, units), (units,)] * 2
    kernel, bias, gate_kernel, gate_bias, vector = weights = kernels(*shapes, (units,))

    def function(x):
        hidden = torch.tanh(x @ kernel + bias) * torch.sigmoid(x @ gate_kernel + gate_bias)
        return torch.bmm(torch.softmax(hidden @ vector, -1)[:, None], x)[:, 0]

    return Computation(function, weights, [(batch, steps, features)])


def hierarchical(batch, sentences, words, units, torch_gru=False):
    encoders = [nn.GRU(units, units, batch_first=True) for _ in range(2)]
    weights = [kernels((units, units), (units,), (units,)) for _ in range(2)]

    def function(x):
        encoded, _ = encoders[0](x.reshape(batch * sentences, words, units))
        vectors = pool(encoded, *weights[0]).reshape(batch, sentences, units)
        encoded, _ = encoders[1](vectors)
        return pool(encoded, *weights[1])

    parameters = [x for encoder in encoders for x in encoder.parameters()]
    shape = (batch, sentences, words, units)
    return Computation(function, [*parameters, *weights[0], *weights[1]], [shape])


def memory_hop(batch, steps, units):
    def function(query, value):
        weights = torch.softmax(torch.bmm(value, query[:, :, None])[:, :, 0], -1)
        return query + torch.bmm(weights[:, None], value)[:, 0]

    return Computation(function, [], [(batch, units), (batch, steps, units)])


class Bahdanau(nn.Module):
    def __init__(self, units):
        super().__init__()
        self.query, self.key = (nn.Linear(units, units, bias=False) for _ in range(2))
        self.vector = nn.Parameter(torch.randn(units) * units**-0.5)

    def forward(self, query, key, memory):
        scores = torch.tanh(self.query(query)[:, None] + key) @ self.vector
        return torch.bmm(torch.softmax(scores, -1)[:, None], memory)[:, 0]


class Luong(nn.Module):
    def __init__(self, units):
        super().__init__()
        self.key = nn.Linear(units, units, bias=False)
        self.output = nn.Linear(2 * units, units, bias=False)

    def forward(self, query, key, memory):
        """One query, `(B, D)`, or a sequence of them."""
        queries = query if query.dim() == 3 else query[:, None]
        weights = torch.softmax(torch.bmm(queries, key.transpose(1, 2)), -1)
        context = torch.bmm(weights, memory)
        output = torch.tanh(self.output(torch.cat([context, queries], -1)))
        return output if query.dim() == 3 else output[:, 0]


class Decoder(nn.Module):
    """A plain loop over the steps; `attention` is None, "Bahdanau", "Luong" or "Luong, fed"."""

    def __init__(self, cell, layers, attention, units):
        super().__init__()
        make = {"GRU": nn.GRUCell, "LSTM": nn.LSTMCell}[cell]
        # Without attention, the inputs are as wide as inputs and context together.
        width = units if attention == "Luong" else 2 * units
        self.cells = nn.ModuleList(make(units if n else width, units) for n in range(layers))
        self.mode, self.units, self.lstm = attention, units, cell == "LSTM"
        if attention is not None:
            self.attention = (Bahdanau if attention == "Bahdanau" else Luong)(units)

    def run_cells(self, x, states):
        new = []
        for cell, state in zip(self.cells, states, strict=True):
            new.append(cell(x, state))
            x = new[-1][0] if self.lstm else new[-1]
        return x, new

    def forward(self, x, memory=None):
        zeros = torch.zeros(len(x), self.units)
        states = [(zeros, zeros) if self.lstm else zeros for _ in self.cells]
        key = self.attention.key(memory) if self.mode else None
        outputs, hidden = [], zeros
        for t in range(x.shape[1]):
            given, fed = x[:, t], self.mode == "Luong, fed"
            if self.mode == "Bahdanau":
                given = torch.cat([given, self.attention(hidden, key, memory)], -1)
            elif fed:
                given = torch.cat([given, outputs[-1] if outputs else zeros], -1)
            hidden, states = self.run_cells(given, states)
            outputs.append(self.attention(hidden, key, memory) if fed else hidden)
        outputs = torch.stack(outputs, 1)
        return self.attention(outputs, key, memory) if self.mode == "Luong" else outputs


def decoder(batch, steps, units, cell, layers, attention):
    model = Decoder(cell, layers, attention, units)
    shapes = [(batch, steps, units)] * 2 if attention else [(batch, steps, 2 * units)]
    return Computation(model, list(model.parameters()), shapes)


class Translator(nn.Module):
    def __init__(self, units, words):
        super().__init__()
        self.source, self.target = nn.Embedding(words, units), nn.Embedding(words, units)
        self.encoder = nn.GRU(units, units // 2, batch_first=True, bidirectional=True)
        self.decoder = Decoder("GRU", 1, "Bahdanau", units)
        self.head = nn.Linear(units, words)

    def forward(self, source, shifted):
        memory, _ = self.encoder(self.source(source))
        return self.head(self.decoder(self.target(shifted), memory))


def translator(batch, steps, units, words):
    """One step of training with Adam."""
    model = Translator(units, words)
    optimizer = torch.optim.Adam(model.parameters())
    source, shifted, target = torch.randint(1, words, (3, batch, steps))

    def run():
        optimizer.zero_grad()
        logits = model(source, shifted)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())
        loss.backward()
        optimizer.step()
        return loss.item()

    return lambda mode: Step(run)


def search(batch, steps, units, words, longest, beams):
    """A decoder of one GRU cell with additive attention, driven by a plain loop."""
    embedding, head = nn.Embedding(words, units), nn.Linear(3 * units, words)
    cell = nn.GRUCell(3 * units, units)
    query_kernel, key_kernel, vector = kernels((units, units), (2 * units, units), (units,))

    def advance(tokens, state, key, value):
        scores = torch.tanh((state @ query_kernel)[:, None] + key) @ vector
        context = torch.bmm(torch.softmax(scores, -1)[:, None], value)[:, 0]
        state = cell(torch.cat([embedding(tokens), context], -1), state)
        return torch.log_softmax(head(torch.cat([context, state], -1)), -1), state

    def function(memory):
        value = memory.repeat_interleave(beams, 0)
        key = (memory @ key_kernel).repeat_interleave(beams, 0)
        rows = batch * beams
        state, tokens = torch.zeros(rows, units), torch.ones(rows, dtype=torch.long)
        found = torch.zeros(rows, longest, dtype=torch.long)
        totals = torch.full((batch, beams), -math.inf)
        totals[:, 0] = 0.0
        offset = torch.arange(batch)[:, None] * beams
        for t in range(longest):
            logs, state = advance(tokens, state, key, value)
            logs = totals[:, :, None] + logs.reshape(batch, beams, words)
            totals, chosen = logs.reshape(batch, -1).topk(beams)
            parent = (offset + chosen // words).reshape(-1)
            tokens = (chosen % words).reshape(-1)
            state, found = state[parent], found[parent]
            found[:, t] = tokens
        return found

    return Computation(function, [], [(batch, steps, 2 * units)])
