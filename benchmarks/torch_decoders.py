"""The decoders of `sweep.py` as a PyTorch user writes them: a plain loop over the steps."""

import torch
from torch import nn


class Bahdanau(nn.Module):
    def __init__(self, units):
        super().__init__()
        self.query, self.key = (
            nn.Linear(units, units, bias=False),
            nn.Linear(units, units, bias=False),
        )
        self.vector = nn.Parameter(torch.randn(units) * units**-0.5)

    def prepare(self, memory):
        return self.key(memory)

    def forward(self, query, key, memory):
        scores = torch.tanh(self.query(query)[:, None] + key) @ self.vector
        return torch.bmm(torch.softmax(scores, -1)[:, None], memory)[:, 0]


class Luong(nn.Module):
    def __init__(self, units):
        super().__init__()
        self.kernel = nn.Linear(units, units, bias=False)
        self.output = nn.Linear(2 * units, units, bias=False)

    def prepare(self, memory):
        return self.kernel(memory)

    def forward(self, query, key, memory):
        """One query, `(B, D)`, or a sequence of them."""
        several = query if query.dim() == 3 else query[:, None]
        weights = torch.softmax(torch.bmm(several, key.transpose(1, 2)), -1)
        context = torch.bmm(weights, memory)
        output = torch.tanh(self.output(torch.cat([context, several], -1)))
        return output if query.dim() == 3 else output[:, 0]


class Decoder(nn.Module):
    """`attention` is None, "Bahdanau", "Luong" or "Luong, fed"."""

    def __init__(self, cell, layers, attention, units):
        super().__init__()
        make = {"GRU": nn.GRUCell, "LSTM": nn.LSTMCell}[cell]
        # Without attention, the inputs are as wide as inputs and context together.
        width = units if attention == "Luong" else 2 * units
        self.cells = nn.ModuleList(make(units if n else width, units) for n in range(layers))
        self.attention = None
        if attention is not None:
            self.attention = (Bahdanau if attention == "Bahdanau" else Luong)(units)
        self.mode, self.units, self.lstm = attention, units, cell == "LSTM"

    def run_cells(self, x, states):
        new = []
        for cell, state in zip(self.cells, states, strict=True):
            state = cell(x, state)
            new.append(state)
            x = state[0] if self.lstm else state
        return x, new

    def forward(self, x, memory):
        zeros = torch.zeros(len(x), self.units)
        states = [(zeros, zeros) if self.lstm else zeros for _ in self.cells]
        key = self.attention.prepare(memory) if self.attention else None
        hidden = fed = zeros
        outputs = []
        for t in range(x.shape[1]):
            if self.mode == "Bahdanau":
                context = self.attention(hidden, key, memory)
                hidden, states = self.run_cells(torch.cat([x[:, t], context], -1), states)
                outputs.append(hidden)
            elif self.mode == "Luong, fed":
                hidden, states = self.run_cells(torch.cat([x[:, t], fed], -1), states)
                fed = self.attention(hidden, key, memory)
                outputs.append(fed)
            else:
                hidden, states = self.run_cells(x[:, t], states)
                outputs.append(hidden)
        outputs = torch.stack(outputs, 1)
        return self.attention(outputs, key, memory) if self.mode == "Luong" else outputs


def decoder(cell, layers, attention, batch, steps, units):
    model = Decoder(cell, layers, attention, units)
    width = units if attention is not None else 2 * units
    inputs = [torch.randn(batch, steps, width), torch.randn(batch, steps, units)]
    if attention is None:
        return (lambda x: model(x, None)), inputs[:1], list(model.parameters())
    return model, inputs, list(model.parameters())


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

    def step():
        optimizer.zero_grad()
        logits = model(source, shifted)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())
        loss.backward()
        optimizer.step()
        return loss.item()

    return step
