"""Trains the translator of `examples/translation` in PyTorch, with Luong's general attention.

    pip install torch
    PYTHONPATH=. python benchmarks/torch_translator.py --train train.de train.en \\
        --valid val.de val.en [--input-feeding] [--epochs N] [--stop N] [--seed N]

It uses the same model, subwords, batches and schedule as `python -m examples.translation`. Compare
the validation perplexities after each epoch to see whether the method or our code causes a result.
"""

import argparse
import math
import time

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from examples.common.training import pair_batches, warmup_cosine
from examples.translation.data import (
    PAD,
    START,
    drop_long,
    encode,
    learn_subwords,
    make_tokenizers,
    read_pairs,
)


class Translator(nn.Module):
    """A bidirectional GRU, a GRU cell with Luong's general attention, and tied embeddings."""

    def __init__(self, source_size, target_size, units, width, dropout, feeding):
        super().__init__()
        self.feeding, self.units, self.dropout = feeding, units, nn.Dropout(dropout)
        self.source = nn.Embedding(source_size, width)
        self.target = nn.Embedding(target_size, width)
        self.encoder = nn.GRU(width, units // 2, batch_first=True, bidirectional=True)
        self.initial = nn.Linear(units, units)
        self.cell = nn.GRUCell(width + units * feeding, units)
        self.key = nn.Linear(units, units, bias=False)
        self.output = nn.Linear(2 * units, units, bias=False)
        self.readout = nn.Linear(units + width, width)
        self.initialize(width)

    def initialize(self, width):
        """Draws the weights as Keras does."""
        for name, x in self.named_parameters():
            if "bias" in name:
                nn.init.zeros_(x)
            elif "weight_hh" in name:
                nn.init.orthogonal_(x)
            else:
                nn.init.xavier_uniform_(x)
        nn.init.normal_(self.source.weight, std=0.5)
        nn.init.normal_(self.target.weight, std=width**-0.5)

    def forward(self, source, target):
        shifted = nn.functional.pad(target[:, :-1], (1, 0), value=START)
        mask = source != PAD
        words = self.dropout(self.source(source))
        packed = nn.utils.rnn.pack_padded_sequence(
            words, mask.sum(1), batch_first=True, enforce_sorted=False
        )
        encoded, last = self.encoder(packed)
        encoded, _ = nn.utils.rnn.pad_packed_sequence(
            encoded, batch_first=True, total_length=source.shape[1]
        )
        encoded = self.dropout(encoded)
        state = torch.tanh(self.initial(torch.cat([*last], -1)))
        keys, words = self.key(encoded), self.dropout(self.target(shifted))
        fed, outputs = torch.zeros_like(state), []
        for t in range(words.shape[1]):
            x = torch.cat([words[:, t], fed], -1) if self.feeding else words[:, t]
            state = self.cell(x, state)
            scores = torch.bmm(keys, state[:, :, None])[:, :, 0].masked_fill(~mask, -1e9)
            context = torch.bmm(torch.softmax(scores, -1)[:, None], encoded)[:, 0]
            fed = torch.tanh(self.output(torch.cat([context, state], -1)))
            outputs.append(fed)
        hidden = torch.tanh(self.readout(torch.cat([torch.stack(outputs, 1), words], -1)))
        return self.dropout(hidden) @ self.target.weight.T


def loss_of(model, batch, smoothing):
    source, target = (torch.tensor(x, dtype=torch.long) for x in batch[0])
    return cross_entropy(
        model(source, target).flatten(0, 1),
        target.flatten(),
        ignore_index=PAD,
        label_smoothing=smoothing,
    )


def perplexity(model, data, size):
    model.eval()
    total = count = 0.0
    with torch.no_grad():
        for batch in pair_batches(data, size)():
            words = (batch[1] != PAD).sum()
            total += words * loss_of(model, batch, 0.0).item()
            count += words
    model.train()
    return math.exp(total / count)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--train", nargs=2, required=True)
    parser.add_argument("--valid", nargs=2, required=True)
    parser.add_argument("--input-feeding", action="store_true")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--stop", type=int, help="end after this epoch of the schedule")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    texts = [list(zip(*read_pairs(x), strict=True)) for x in (arguments.train, arguments.valid)]
    tokenizers = make_tokenizers([learn_subwords(side, 4000, "bpe") for side in texts[0]])
    train, valid = (encode(tokenizers, sides) for sides in texts)
    batches = pair_batches(drop_long(train, 100), 64, arguments.seed)
    torch.manual_seed(arguments.seed)
    sizes = [int(tokenizer.vocab_size()) for tokenizer in tokenizers]
    model = Translator(*sizes, 256, 256, 0.3, arguments.input_feeding)
    optimizer = torch.optim.Adam(model.parameters(), eps=1e-7)
    rate = warmup_cosine(2e-3, batches.steps * arguments.epochs, last=0.01)
    step = 0
    for epoch in range(arguments.stop or arguments.epochs):
        start, losses = time.perf_counter(), []
        batches.epoch = epoch
        for batch in batches():
            optimizer.param_groups[0]["lr"] = float(rate(step))
            optimizer.zero_grad()
            loss = loss_of(model, batch, 0.1)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
            step += 1
        seconds = time.perf_counter() - start
        print(
            f"epoch {epoch + 1}/{arguments.epochs}: training loss {np.mean(losses):.4f}, "
            f"validation perplexity {perplexity(model, valid, 64):.3f}, {seconds:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
