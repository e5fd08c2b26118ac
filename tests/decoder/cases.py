"""Decoders and their oracles, for the tests of this folder."""

import itertools
from dataclasses import dataclass, field

import keras
import numpy as np
import pytest
from keras import layers

from keras_attention import AttentionRNN, LuongAttention
from tests import fast, helpers, oracles
from tests.helpers import BAHDANAU, DQ, HEADS, LUONG, MECHANISMS, TK, B, normal, randomize
from tests.past_weights import PastWeightsAttention

T, D, DV, H = 5, 3, 13, 11
CELLS = {"gru": (layers.GRUCell, oracles.gru), "lstm": (layers.LSTMCell, oracles.lstm)}
# TensorFlow has no orthogonal initializer in bfloat16.
INITIALIZER = {"recurrent_initializer": "glorot_uniform"}


@dataclass(frozen=True)
class Decoder:  # A configuration of an AttentionRNN, and the oracle of the same equations
    mechanism: helpers.Mechanism
    cells: tuple = (("gru", H),)
    options: dict = field(default_factory=dict)

    def make(self, dtype="float64", **kwargs):
        cells = [CELLS[kind][0](units, dtype=dtype, **INITIALIZER) for kind, units in self.cells]
        cell = cells if len(cells) > 1 else cells[0]
        attention = self.mechanism.make(dtype=dtype)
        return AttentionRNN(cell, attention, dtype=dtype, **self.options, **kwargs)

    def built(self, d=D, dv=DV, dtype="float64", **kwargs):
        layer = self.make(dtype, **kwargs)
        layer.build((None, T if layer.unroll else None, d), (None, None, dv))
        return randomize(layer)

    def run_oracle(self, layer, sequences, memory, weights=None, initial=None, fed=None, **masks):
        cells = layer.cell.cells if len(self.cells) > 1 else [layer.cell]
        parts = oracle_parts(layer, self.mechanism, self.cells, cells, weights, initial)
        if fed is None:
            fed = np.zeros((B, layer.attention.output_size(None, memory.shape[-1])))
        options = {"query": "previous", **self.options}
        options.setdefault("output_mode", "cell" if options["query"] == "previous" else "attention")
        row, steps, states = parts
        outputs, weights, last = oracles.attention_rnn(
            row, steps, sequences, memory, states, fed, **options, **masks
        )
        flat = [[*keras.tree.flatten(s), *[feed] * layer.input_feeding] for s, feed in last]
        states = [np.array(x) for x in zip(*flat, strict=True)]
        if self.mechanism.layer is PastWeightsAttention:
            states.append(np.sum(weights, axis=1))
        return outputs, weights, states


def oracle_parts(layer, mechanism, kinds, cells, weights=None, initial=None):
    arrays = weights or helpers.weight_arrays(layer)
    arrays = {id(w): x for w, x in zip(layer.trainable_weights, arrays, strict=True)}
    steps = [
        CELLS[kind][1](**{w.name: arrays[id(w)] for w in cell.trainable_weights})
        for (kind, _), cell in zip(kinds, cells, strict=True)
    ]
    attention = layer.attention
    row = mechanism.row(attention, [arrays[id(w)] for w in attention.trainable_weights])
    counts = [1 if kind == "gru" else 2 for kind, _ in kinds]
    if initial is None:
        initial = [np.zeros((B, n)) for n in np.repeat([units for _, units in kinds], counts)]
    ends = list(itertools.pairwise([0, *itertools.accumulate(counts)]))
    return row, steps, [[[x[b] for x in initial[i:j]] for i, j in ends] for b in range(B)]


PREVIOUS, CURRENT = {"query": "previous"}, {"query": "current"}
FEEDING = {**CURRENT, "input_feeding": True}
STACK = (("lstm", DQ), ("gru", H))
VECTOR, PAST = MECHANISMS["vector"], MECHANISMS["past weights"]
CASES = {
    "bahdanau": Decoder(BAHDANAU["plain"]),
    "bahdanau-lstm-concat": Decoder(BAHDANAU["sparse"], (("lstm", H),), {"output_mode": "concat"}),
    "bahdanau-stack": Decoder(BAHDANAU["normalized"], STACK, {"output_mode": "attention"}),
    "previous-local-m": Decoder(LUONG["general-local-m"], (("lstm", H),), PREVIOUS),
    "current": Decoder(LUONG["general-global"], (("gru", H),), CURRENT),
    "current-stack-concat": Decoder(VECTOR, STACK, {**CURRENT, "output_mode": "concat"}),
    "current-dot-local-m": Decoder(LUONG["dot-local-m"], (("lstm", DV),), CURRENT),
    "current-bahdanau": Decoder(BAHDANAU["bias"], options={**CURRENT, "output_mode": "cell"}),
    "feeding": Decoder(VECTOR, (("lstm", H),), FEEDING),
    "feeding-stack": Decoder(LUONG["concat-local-m"], STACK, {**FEEDING, "output_mode": "concat"}),
    "heads": Decoder(HEADS["heads, bahdanau"], STACK, {"output_mode": "concat"}),
    "heads, feeding": Decoder(helpers.Heads(LuongAttention, {"units": 3}), (("lstm", H),), FEEDING),
    "past weights": Decoder(PAST, STACK, PREVIOUS),
    "past weights after the loop": Decoder(PAST, (("gru", H),), CURRENT),
    "past weights-feeding": Decoder(PAST, (("lstm", H),), FEEDING),
}
ATTENTIONS = {
    **{f"bahdanau-{name}": mechanism for name, mechanism in BAHDANAU.items()},
    **LUONG,
    "vector": VECTOR,
    **{name: HEADS[name] for name in ("heads, concat-local-m", "heads, bahdanau")},
    "past weights": PAST,
}
# For tests that take seconds a case: the default run has one decoder of each kind.
FEW = ("bahdanau", "current-stack-concat", "feeding-stack", "past weights")
few_cases = pytest.mark.parametrize("name", fast(CASES, FEW))
SEQUENCES_MASK = np.array([[False, True, False, True, True], [True, True, True, False, False]])
MEMORY_MASK = np.stack([helpers.lengths_mask([5], TK)[0], np.arange(TK) >= 1])
# One sample has a hole in the middle; the other has holes in front, in the middle, at the end.
HOLES = np.array([[1, 0, 1, 1, 1, 1, 1], [0, 1, 1, 0, 1, 1, 0]], bool)
MASKS = {"sequences_mask": SEQUENCES_MASK, "memory_mask": HOLES}


def tensors(dtype="float64"):
    return normal(1, B, T, D, dtype=dtype), normal(2, B, TK, DV, dtype=dtype)


def assert_masked_steps_may_hold_anything(layer, jit):
    """NaN and infinity at what `MASKS` hide change neither outputs nor gradients."""
    sequences, memory = tensors()
    spoiled = (
        np.where(SEQUENCES_MASK[..., None], sequences, np.nan),
        np.where(HOLES[..., None], memory, np.inf),
    )

    def call(*inputs):
        return layer(*inputs, **MASKS, return_attention_scores=True)

    found = [helpers.gradients(layer, call, x, jit) for x in ((sequences, memory), spoiled)]
    helpers.assert_all_close(*([*outputs, *grads] for outputs, grads in found))
