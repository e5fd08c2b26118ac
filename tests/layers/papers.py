"""Layers without steps or states, beside the oracles of their papers."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field

import keras
import numpy as np

from keras_attention import RETAIN, AttentionPooling, BiDAFAttentionFlow, MemoryHop, TargetAttention
from tests import oracles
from tests.helpers import B, lengths_mask, normal, randomize, weight_arrays

T, D, U = 7, 5, 11


@dataclass(frozen=True)
class Paper:  # A configuration of a layer, its inputs, and the oracle of the same equations
    make: Callable  # of a dtype, and perhaps of more options
    shapes: dict  # of the inputs, by name, without the batch
    masks: dict  # by name, each with the numbers of the inputs that it hides
    oracle: Callable  # of the layer, its weights by name, inputs and masks
    scale: float = 1.0  # of the inputs
    tolerance: dict = field(default_factory=dict)
    known: bool = False  # whether the number of steps must be known

    def built(self, dtype="float64", scale=0.5, **options):
        layer = self.make(dtype=dtype, **options)
        for_any = [[s if self.known else None for s in x[:-1]] for x in self.shapes.values()]
        sizes = [x[-1] for x in self.shapes.values()]
        layer.build(*((None, *x, size) for x, size in zip(for_any, sizes, strict=True)))
        return randomize(layer, scale=scale)

    def inputs(self, dtype="float64", batch=B):
        shapes = enumerate(self.shapes.values())
        return [normal([1, n], batch, *x, dtype=dtype) * self.scale for n, x in shapes]

    def all_masks(self):
        return {name: mask for name, (mask, _) in self.masks.items()}

    def paper(self, layer, inputs, weights=None, **masks):
        arrays = weights or weight_arrays(layer)
        names = [x.path.partition("/")[2] for x in layer.trainable_weights]
        named = dict(zip(names, arrays, strict=True))
        return keras.tree.flatten(self.oracle(layer, named, *inputs, **masks))


def run(layer, *inputs, **options):
    return keras.tree.flatten(layer(*inputs, return_attention_scores=True, **options))


# A gap, and padding at both ends.
GAPS = np.stack([np.arange(T) >= 1, lengths_mask([5], T)[0] & (np.arange(T) != 2)])


def pooling(layer, weights, inputs, mask=None):
    return oracles.attention_pooling(weights, inputs, layer.normalizer, mask, layer.temperature)


def flow(layer, weights, *inputs, **masks):
    names = "query_to_context", "context_to_query", "normalizer"
    options = {name: getattr(layer, name) for name in names}
    return oracles.attention_flow(weights, *inputs, **options, **masks)


def target(layer, weights, *inputs, **masks):
    return oracles.attend(oracles.target(weights, layer.normalizer), *inputs, **masks)


def hop(layer, weights, *inputs, value_mask=None):
    options = {"update": layer.update, "linear": layer.linear, "normalizer": layer.normalizer}
    return oracles.memory_hop(weights, *inputs, mask=value_mask, **options)


def retain(layer, weights, inputs, mask=None):
    cells = {"visit_rnn": {}, "gate_rnn": {}}
    for path in [x for x in weights if "/" in x]:
        cells[path.split("/")[0]][path.split("/")[-1]] = weights.pop(path)
    return oracles.retain(weights, *(oracles.gru(**x) for x in cells.values()), inputs, mask)


def linear_hop(**options):
    layer = MemoryHop(**options)
    layer.linear = True
    return layer


POOLING = {
    "softmax": {},
    "sparsemax": {"normalizer": "sparsemax"},
    "gated": {"gated": True, "normalizer": "normalized_sigmoid", "temperature": 0.3},
    "rows": {"gated": True, "rows": 3, "penalty": 0.7},
}
FLOW = {
    "both": {},
    "context to query": {"query_to_context": False},
    "query to context": {"context_to_query": False},
    "sparse": {"normalizer": "sparsemax"},
    "sparse context to query": {"query_to_context": False, "normalizer": "sparsemax"},
    "sparse query to context": {"context_to_query": False, "normalizer": "sparsemax"},
}
# A short text and padding in front; a question with a gap, and one with padding behind.
FLOW_MASKS = {
    "context_mask": (np.stack([lengths_mask([5], T)[0], np.arange(T) >= 1]), [0]),
    "query_mask": (np.array([[True, False, True], [True, True, False]]), [1]),
}
HOPS = {
    "hop": (MemoryHop, {}, True),
    "hop, linear update": (MemoryHop, {"update": "linear", "normalizer": "sparsemax"}, False),
    "hop, no softmax": (linear_hop, {}, True),
    "hop, linear update, no softmax": (linear_hop, {"update": "linear"}, False),
}
HISTORY = {"query": (3, D), "value": (T, 13), "key": (T, D)}
PAPERS = {
    f"pooling, {name}": Paper(
        functools.partial(AttentionPooling, U, **options),
        {"inputs": (T, D)}, {"mask": (GAPS, [0])}, pooling)
    for name, options in POOLING.items()
} | {
    f"flow, {name}": Paper(
        functools.partial(BiDAFAttentionFlow, **options),
        {"context": (T, D), "query": (3, D)}, FLOW_MASKS, flow)
    for name, options in FLOW.items()
} | {
    f"target, {name}": Paper(
        functools.partial(TargetAttention, U, name),
        HISTORY, {"value_mask": (GAPS, [1, 2])}, target,
        # In half precision the sums of kernels are rounded too, and sums of weights are large.
        tolerance={"times": 4, "before": 2})
    for name in ("none", "sigmoid", "softmax")
} | {
    name: Paper(
        functools.partial(make, **options),
        {"query": (D,), "value": (T, D), **({"key": (T, D)} if own_key else {})},
        {"value_mask": (GAPS, [1, 2] if own_key else [1])}, hop,
        scale=0.25)  # because numbers grow without a softmax
    for name, (make, options, own_key) in HOPS.items()
} | {
    name: Paper(
        functools.partial(RETAIN, 3, 2, unroll=known), {"inputs": (T, D)}, {"mask": (GAPS, [0])},
        lambda *args, **masks: retain(*args, **masks)[:2],
        # The recurrences round at every step.
        tolerance={"times": 2, "before": 4}, known=known)
    for name, known in (("retain", False), ("retain, unrolled", True))
}  # fmt: skip
