"""Wrong options and wrong tensors of all layers are refused by name.

`tests/test_checks.py` has the mistakes of newcomers, with whole messages.
"""

import functools

import numpy as np
import pytest
from keras import layers

import keras_attention as ka
from tests.helpers import DK, DQ, DV, TK, TQ, B, arguments, assert_refused, refusals

OPTIONS = {
    ka.LuongAttention: {},
    ka.MemoryHop: {},
    ka.MemoryNetwork: {"vocabulary_size": 9, "units": 4},
    ka.RETAIN: {"units": 3, "classes": 2},
    ka.MultiHead: {"attention": ka.BahdanauAttention(3), "num_heads": 2},
}
INTEGER, LEAST, ZERO = "a positive integer", "a number of at least 0.001", "a number of at least 0"
RATE, SWITCH = "a number in [0, 1)", "must be True or False"
SOFTMAX, ANY = "must be one of 'softmax'", "must be one of 'softmax', 'sparsemax', 'entmax15'"
ENCODING, MONOTONIC = "position_encoding", (ka.MonotonicAttention, ka.StepwiseMonotonicAttention)
WRONG_OPTIONS = [
    *((ka.BahdanauAttention, "units", x, INTEGER) for x in (0, -1, 2.0, True, "7", (3,))),
    (ka.MultiHead, "num_heads", None, INTEGER),
    (ka.MemoryNetwork, "hops", None, INTEGER),
    (ka.RETAIN, "classes", None, INTEGER),
    (ka.DynamicConvolutionAttention, "prior_length", None, INTEGER),
    # These may be None.
    (ka.LuongAttention, "units", 0, INTEGER),
    (ka.HierarchicalAttention, "sentence_units", 0, INTEGER),
    (ka.LocationSensitiveAttention, "half_width", 0, INTEGER),
    (ka.MonotonicAttention, "chunk_size", 0, INTEGER),
    *((ka.BahdanauAttention, "dropout", x, RATE) for x in (-0.1, 1.0, True, "a")),
    *((x, "dropout", 1.0, RATE) for x in (ka.AttentionPooling, ka.HierarchicalAttention)),
    *((x, "normalizer", "relu", ANY) for x in (ka.BahdanauAttention, ka.LuongAttention)),
    *((x, "normalizer", "sigmoid", ANY) for x in (ka.AttentionPooling, ka.HierarchicalAttention)),
    *((x, "normalizer", "sparsemax", SOFTMAX) for x in (*MONOTONIC, ka.GMMAttention)),
    (ka.TargetAttention, "normalizer", "no", "must be one of 'none', 'sigmoid', 'softmax'"),
    (ka.HierarchicalAttention, "seed", "a", "must be an integer from 0 to 4294967295"),
    (ka.LuongAttention, "score_mode", "cosine", "'dot', 'general', 'concat', 'location'"),
    (ka.LuongAttention, "alignment", "local", "'global', 'local-m', 'local-p'"),
    (ka.MonotonicAttention, "mode", "soft", "'parallel', 'recursive', 'hard'"),
    *((MONOTONIC[0], name, x, ZERO) for name in ("noise", "initial_gain") for x in (-1, np.nan)),
    (ka.MonotonicAttention, "initial_offset", "4", "a number"),
    (ka.StepwiseMonotonicAttention, "hard", "yes", SWITCH),
    (ka.StepwiseMonotonicAttention, "keep_last", 1, SWITCH),
    (ka.StepwiseMonotonicAttention, "temperature", 0, "a number of at least 1e-06"),
    (ka.GMMAttention, "version", "V1", "'V0', 'V2', 'V2b'"),
    (ka.GMMAttention, "initial_step", 0, LEAST),
    (ka.GMMAttention, "initial_width", -1, "at least 0.1"),
    (ka.ForwardAttention, "use_bias", 1, SWITCH),
    (ka.ForwardAttention, "transition_agent", "no", SWITCH),
    (ka.DynamicConvolutionAttention, "alpha", 0, LEAST),
    (ka.DynamicConvolutionAttention, "beta", -1, LEAST),
    *((ka.CoverageAttention, "loss_weight", x, ZERO) for x in (-1, np.inf, True, "1")),
    (ka.AttentionPooling, "gated", 1, SWITCH),
    (ka.AttentionPooling, "temperature", 0, "a number of at least 1e-06"),
    (ka.AttentionPooling, "penalty", -1.0, ZERO),
    *((ka.MemoryHop, "update", x, "must be one of 'add', 'linear'") for x in ("Linear", None)),
    (ka.MemoryNetwork, "tying", "none", "must be one of 'adjacent', 'layerwise'"),
    *((ka.MemoryNetwork, ENCODING, x, INTEGER, "Or it is True or False.") for x in (None, 0)),
    (ka.MemoryNetwork, ENCODING, 2.0, INTEGER, "Write position_encoding=2."),
    (ka.MemoryNetwork, "null_memories", "no", SWITCH),
]


@pytest.mark.parametrize("option", WRONG_OPTIONS)
def test_wrong_options(option):
    kind, name, value, *fragments = option
    options = OPTIONS.get(kind, {"units": 3}) | {name: value, "name": "mine"}
    assert_refused(lambda: kind(**options), f"mine: `{name}`", *fragments, f"received {value!r}")


test_options_that_go_together = refusals(
    (lambda: ka.GMMAttention(3, initial_step=2, version="V2"),
     "go with version V2b", "received version V2"),
    (lambda: ka.LuongAttention("location", max_length=0), "`max_length`", INTEGER, "received 0"),
)  # fmt: skip


S, W, J, N, D = 3, 7, 3, 5, 5
QUERIES = {"query": (B, TQ, DQ), "value": (B, TK, DV), "key": (B, TK, DK)}
# How a layer is made, and the shapes of a good call.
CALLS = {
    "bahdanau": (lambda: ka.BahdanauAttention(17), QUERIES),
    "luong": (ka.LuongAttention, QUERIES),
    "one step": (lambda: ka.BahdanauAttention(17), {"query": (B, DQ), "value": (B, TK, DV)}),
    "flow": (ka.BiDAFAttentionFlow, {"context": (B, TK, D), "query": (B, J, D)}),
    "pooling": (lambda: ka.AttentionPooling(11), {"inputs": (B, TK, D)}),
    "retain": (lambda: ka.RETAIN(3, 2), {"inputs": (B, TK, D)}),
    "hierarchical": (lambda: ka.HierarchicalAttention(11), {"inputs": (B, S, W, D)}),
    "hop": (ka.MemoryHop, {"query": (B, D), "value": (B, TK, D)}),
    "network": (lambda: ka.MemoryNetwork(9, 4), {
        "story": (B, N, W, "int32"), "question": (B, 13, "int32")}),
    "decoder": (lambda: ka.AttentionRNN(layers.GRUCell(11), ka.BahdanauAttention(17)), {
        "sequences": (B, N, 3), "memory": (B, TK, DV)}),
}  # fmt: skip
STEPS, OR_STEP = "(batch, steps, *)", "(batch, steps, *) or (batch, *)"
MEMORY, OTHER_BATCH = "(2, memory steps, *)", "has batch size 2"
PAIRS = "(3, 7) or (2, 3, 7)"
# What is wrong in a call, and the shape that the message asks for; a star stands for the features.
# `tests/test_spec.py` has what the declarations of all layers share.
WRONG_CALLS = {
    ("bahdanau", "luong"): [
        ({"query": (B,)}, OR_STEP),
        ({"value": (B, DV), "key": None}, MEMORY),
        ({"value": None, "key": None}, "", "Call layer(query, value)"),
        ({"key": (B, TK + 1, DK)}, "(2, 7, *)", "because `value` has 7 memory steps"),
        ({"value_mask": (B, TK, "float32")}, "(2, 7)", 'cast(value_mask, "bool")'),
        ({"query_mask": (B, TK)}, "(2, 3)"),
        ({"attention_mask": (TK, TQ)}, PAIRS),
    ],
    ("one step",): [({"query_mask": (B, 1)}, "(2,)"), ({"attention_mask": (B, 1, TK)}, "(2, 7)")],
    ("flow",): [
        ({"context": (B, D)}, STEPS),
        ({"query": (B, J, 2)}, "(2, 3, 5)", "5 features"),
        ({"query": (3, J, D)}, "(2, steps, 5)", "`context` " + OTHER_BATCH),
        ({"query_mask": (B, TK)}, "(2, 3)"),
    ],
    ("pooling", "retain"): [({"inputs": (B, D)}, STEPS), ({"mask": (B, 3)}, "(2, 7)")],
    ("hierarchical",): [
        ({"inputs": (B, W, D)}, "(batch, sentences, words, *)"),
        ({"mask": (B, S)}, "(2, 3, 7)"),
    ],
    ("hop",): [
        ({"value": None}, "(2, memory steps, 5)"),
        ({"value": (B, TK, 3)}, "(2, 7, 5)", "5 features"),
        ({"key": (B, TK, 3)}, "(2, 7, 5)", "5 features"),
    ],
    ("network",): [
        ({"story": (B, W, "int32")}, "(batch, sentences, words)"),
        ({"question": (3, 13, "int32")}, "(2, words)", "`story` " + OTHER_BATCH),
        ({"story": (B, N, W, "float32")}, "(batch, sentences, words)"),
    ],
    ("decoder",): [
        ({"sequences": (B, 3)}, STEPS),
        ({"memory": (3, TK, DV)}, MEMORY, "`sequences` " + OTHER_BATCH),
        ({"sequences_mask": (B, TK)}, "(2, 5)"),
    ],
}
KINDS = {"story": "integer ids", "question": "integer ids"}


def fresh_and_built(name):
    make, shapes = CALLS[name]
    built = make()
    built(**arguments(shapes, symbolic=False))
    return [(make(), True), (make(), False), (built, True), (built, False)]


@pytest.mark.parametrize(("name", "given", "fragments"), [
    pytest.param(name, x[0], x[1:], id=f"{name}, {x[0]}")
    for names, calls in WRONG_CALLS.items() for name in names for x in calls
])  # fmt: skip
def test_wrong_calls(name, given, fragments):
    argument, shape = next(iter(given.items()))
    mask = "mask" in argument
    kind = "boolean" if mask else KINDS.get(argument, "floating-point")
    received = "None"
    if shape is not None:
        *shape, dtype = (*shape, None) if isinstance(shape[-1], int) else shape
        received = f"{dtype or ('bool' if mask else 'float32')} of shape {(*shape,)}"
    wanted, *more = fragments
    shapes = {**CALLS[name][1], **given}
    shapes = {key: x for key, x in shapes.items() if x is not None}
    for layer, symbolic in fresh_and_built(name):
        inputs = arguments(shapes, symbolic)
        first = [inputs.pop(x) for x in list(inputs)[:1]]
        words = f"`{argument}` must be {kind}, of shape {wanted}".split("*")
        call = functools.partial(layer, *first, **inputs)
        assert_refused(call, layer.name, *words, f"received {received}", *more)


FLOATS = [(name, x) for name, (_, shapes) in CALLS.items() if name != "network" for x in shapes]


@pytest.mark.parametrize(("name", "argument"), FLOATS)
def test_features_are_known_and_those_the_layer_was_built_for(name, argument):
    make, shapes = CALLS[name]
    *steps, size = shapes[argument]
    layer = fresh_and_built(name)[-1][0]
    for symbolic in (False, True):
        call = functools.partial(layer, **arguments({**shapes, argument: (*steps, 2)}, symbolic))
        received = f"received float32 of shape {(*steps, 2)}"
        assert_refused(call, f"built for `{argument}` of {size} features; {received}")
    call = functools.partial(make(), **arguments({**shapes, argument: (*steps, None)}, True))
    unknown = f"`{argument}` must be floating-point", "None). Give the features to keras.Input."
    assert_refused(call, *unknown)
