"""Wrong options and wrong tensors of all layers are refused by name.

`tests/test_checks.py` has the mistakes of newcomers, with whole messages.
"""

import functools

import numpy as np
import pytest
from keras import layers

from keras_attention import (
    RETAIN,
    AttentionPooling,
    AttentionRNN,
    BahdanauAttention,
    BiDAFAttentionFlow,
    CoverageAttention,
    DynamicConvolutionAttention,
    FeatureAttention,
    ForwardAttention,
    GMMAttention,
    HierarchicalAttention,
    LocationSensitiveAttention,
    LuongAttention,
    MemoryHop,
    MemoryNetwork,
    MonotonicAttention,
    MultiHead,
    StepwiseMonotonicAttention,
    TargetAttention,
)
from tests.helpers import DK, DQ, DV, TK, TQ, B, arguments, assert_refused

OPTIONS = {
    LuongAttention: {},
    BiDAFAttentionFlow: {},
    MemoryHop: {},
    MemoryNetwork: {"vocabulary_size": 9, "units": 4},
    RETAIN: {"units": 3, "classes": 2},
    FeatureAttention: {"cell": layers.GRUCell(3), "units": 3},
    MultiHead: {"attention": BahdanauAttention(3), "num_heads": 2},
}
SIZES = [
    *((kind, "units") for kind in (BahdanauAttention, AttentionPooling, HierarchicalAttention)),
    *((kind, "units") for kind in (TargetAttention, RETAIN, FeatureAttention, MemoryNetwork)),
    *((kind, "units") for kind in (ForwardAttention, GMMAttention, MonotonicAttention)),
    *((kind, "units") for kind in (StepwiseMonotonicAttention, DynamicConvolutionAttention)),
    *((DynamicConvolutionAttention, x) for x in ("filters", "kernel_size", "prior_length")),
    *((MemoryNetwork, x) for x in ("vocabulary_size", "hops", "memory_size")),
    (AttentionPooling, "rows"),
    (GMMAttention, "components"),
    (RETAIN, "classes"),
    (MultiHead, "num_heads"),
    (LuongAttention, "half_width"),
]
# These may be None.
OPTIONAL = [
    (LuongAttention, "units"),
    (HierarchicalAttention, "sentence_units"),
    (LocationSensitiveAttention, "half_width"),
    (MonotonicAttention, "chunk_size"),
]


def refuses(kind, name, value, *fragments, **more):
    options = OPTIONS.get(kind, {"units": 3})
    assert_refused(
        lambda: kind(**{**options, name: value}, **more, name="mine"),
        f"mine: `{name}`",
        *fragments,
        f"received {value!r}",
    )


@pytest.mark.parametrize(("kind", "name"), [*SIZES, *OPTIONAL])
def test_sizes_are_positive_integers(kind, name):
    values = 0, -1, 2.0, True, False, "7", (3,), *[None] * ((kind, name) in SIZES)
    for value in values:
        refuses(kind, name, value, "must be a positive integer")


def test_the_longest_memory_is_a_positive_integer():
    refuses(LuongAttention, "max_length", 0, "a positive integer", score_mode="location")


LEAST, ZERO = "a number of at least 0.001", "a number of at least 0"
ONE_OF, SWITCH = "must be one of 'softmax'", "must be True or False"
WRONG_OPTIONS = [
    *(
        (kind, "dropout", value, "a number in [0, 1)")
        for kind in (BahdanauAttention, LuongAttention, AttentionPooling, HierarchicalAttention)
        for value in (-0.1, 1.0, True, "a")
    ),
    *(
        (kind, "normalizer", "relu", "must be one of 'softmax', 'sparsemax', 'entmax15', 'hardmax'")
        for kind in (BahdanauAttention, LuongAttention)
    ),
    *(
        (kind, "normalizer", "sigmoid", "must be one of 'softmax', 'sparsemax'")
        for kind in (AttentionPooling, HierarchicalAttention)
    ),
    *(
        (kind, "normalizer", "sparsemax", ONE_OF)
        for kind in (MonotonicAttention, StepwiseMonotonicAttention, GMMAttention)
    ),
    (TargetAttention, "normalizer", "no", "must be one of 'none', 'sigmoid', 'softmax'"),
    (HierarchicalAttention, "seed", "a", "must be an integer from 0 to 4294967295"),
    (LuongAttention, "score_mode", "cosine", "'dot', 'general', 'concat', 'location'"),
    (LuongAttention, "alignment", "local", "'global', 'local-m', 'local-p'"),
    (MonotonicAttention, "mode", "soft", "'parallel', 'recursive', 'hard'"),
    *(
        (kind, name, value, ZERO)
        for kind in (MonotonicAttention, StepwiseMonotonicAttention)
        for name, value in (("noise", -1), ("noise", np.nan), ("initial_gain", -1))
    ),
    *(
        (kind, "initial_offset", "4", "a number")
        for kind in (MonotonicAttention, StepwiseMonotonicAttention)
    ),
    (StepwiseMonotonicAttention, "hard", "yes", SWITCH),
    (StepwiseMonotonicAttention, "keep_last", 1, SWITCH),
    (StepwiseMonotonicAttention, "temperature", 0, "a number of at least 1e-06"),
    (GMMAttention, "version", "V1", "'V0', 'V2', 'V2b'"),
    (GMMAttention, "initial_step", 0, LEAST),
    (GMMAttention, "initial_width", -1, "at least 0.1"),
    (ForwardAttention, "use_bias", 1, SWITCH),
    (ForwardAttention, "transition_agent", "no", SWITCH),
    (DynamicConvolutionAttention, "alpha", 0, LEAST),
    (DynamicConvolutionAttention, "beta", -1, LEAST),
    *((CoverageAttention, "loss_weight", value, ZERO) for value in (-1, np.inf, True, "1")),
    (AttentionPooling, "gated", 1, SWITCH),
    (AttentionPooling, "temperature", 0, "a number of at least 1e-06"),
    (AttentionPooling, "penalty", -1.0, ZERO),
    *((MemoryHop, "update", x, "must be one of 'add', 'linear'") for x in ("Linear", None, 1)),
    (MemoryNetwork, "tying", "none", "must be one of 'adjacent', 'layerwise'"),
    *(
        (MemoryNetwork, "position_encoding", x, "a positive integer", "Or it is True or False.")
        for x in (None, "words", 0)
    ),
    (MemoryNetwork, "position_encoding", 2.0, "a positive integer", "Write position_encoding=2."),
    *((MemoryNetwork, "null_memories", x, SWITCH) for x in ("no", None, 2, 0.5)),
]


@pytest.mark.parametrize(
    ("kind", "name", "value", "fragments"), [(*x[:3], x[3:]) for x in WRONG_OPTIONS]
)
def test_wrong_options(kind, name, value, fragments):
    refuses(kind, name, value, *fragments)


def test_where_gaussians_start_goes_with_one_version():
    message = "go with version V2b", "received version V2"
    assert_refused(lambda: GMMAttention(3, initial_step=2, version="V2"), *message)


S, W, J, N, D = 3, 7, 3, 5, 5
# How a layer is made, and the shapes of a good call.
CALLS = {
    "bahdanau": (
        lambda: BahdanauAttention(17),
        {"query": (B, TQ, DQ), "value": (B, TK, DV), "key": (B, TK, DK)},
    ),
    "luong": (LuongAttention, {"query": (B, TQ, DQ), "value": (B, TK, DV), "key": (B, TK, DK)}),
    "one step": (lambda: BahdanauAttention(17), {"query": (B, DQ), "value": (B, TK, DV)}),
    "flow": (BiDAFAttentionFlow, {"context": (B, TK, D), "query": (B, J, D)}),
    "pooling": (lambda: AttentionPooling(11), {"inputs": (B, TK, D)}),
    "retain": (lambda: RETAIN(3, 2), {"inputs": (B, TK, D)}),
    "hierarchical": (lambda: HierarchicalAttention(11), {"inputs": (B, S, W, D)}),
    "hierarchical, encoders": (
        lambda: HierarchicalAttention(
            11, word_encoder=layers.Bidirectional(layers.GRU(2, return_sequences=True))
        ),
        {"inputs": (B, S, W, D)},
    ),
    "hop": (MemoryHop, {"query": (B, D), "value": (B, TK, D)}),
    "network": (
        lambda: MemoryNetwork(9, 4),
        {"story": (B, N, W, "int32"), "question": (B, 13, "int32")},
    ),
    "decoder": (
        lambda: AttentionRNN(layers.GRUCell(11), BahdanauAttention(17)),
        {"sequences": (B, N, 3), "memory": (B, TK, DV)},
    ),
}
STEPS, OR_STEP = "(batch, steps, *)", "(batch, steps, *) or (batch, *)"
MEMORY, OTHER_BATCH = "(2, memory steps, *)", "has batch size 2"
PAIRS = "(3, 7) or (2, 3, 7)"
# What is wrong in a call, and the shape that the message asks for; a star stands for the features.
WRONG_CALLS = {
    ("bahdanau", "luong"): [
        ({"query": (B,)}, OR_STEP),
        ({"query": (B, TQ, 1, DQ)}, OR_STEP),
        ({"value": (B, DV), "key": None}, MEMORY),
        ({"value": None, "key": None}, "", "Call layer(query, value)"),
        ({"key": (B, DK)}, "(2, 7, *)"),
        ({"value": (3, TK, DV), "key": (3, TK, DK)}, MEMORY, "`query` " + OTHER_BATCH),
        ({"key": (3, TK, DK)}, "(2, 7, *)", "`query` " + OTHER_BATCH),
        ({"key": (B, TK + 1, DK)}, "(2, 7, *)", "because `value` has 7 memory steps"),
        ({"value_mask": (B, TK, "float32")}, "(2, 7)", 'cast(value_mask, "bool")'),
        ({"value_mask": (B, TQ)}, "(2, 7)"),
        ({"value_mask": (B, TK, 1)}, "(2, 7)"),
        ({"query_mask": (B, TQ, "int32")}, "(2, 3)"),
        ({"query_mask": (B, TK)}, "(2, 3)"),
        ({"attention_mask": (TQ, TK, "int32")}, PAIRS),
        ({"attention_mask": (TK, TQ)}, PAIRS),
        ({"attention_mask": (B, 1, TQ, TK)}, PAIRS),
    ],
    ("one step",): [
        ({"query_mask": (B, 1)}, "(2,)"),
        ({"attention_mask": (B, 1, TK)}, "(2, 7)"),
    ],
    ("flow",): [
        ({"query": None}, "(2, steps, 5)"),
        ({"context": (B, D)}, STEPS),
        ({"context": (B, TK, 1, D)}, STEPS),
        ({"query": (B, D)}, "(2, steps, 5)"),
        ({"query": (B, J, 1, D)}, "(2, steps, 5)"),
        ({"query": (B, J, 2)}, "(2, 3, 5)", "5 features"),
        ({"query": (3, J, D)}, "(2, steps, 5)", "`context` " + OTHER_BATCH),
        ({"context_mask": (B, TK, "float32")}, "(2, 7)"),
        ({"context_mask": (B, J)}, "(2, 7)"),
        ({"query_mask": (B, J, "int32")}, "(2, 3)", 'cast(query_mask, "bool")'),
        ({"query_mask": (B, TK)}, "(2, 3)"),
        ({"query_mask": (B, TK, J)}, "(2, 3)"),
    ],
    ("pooling", "retain"): [
        ({"inputs": (B, D)}, STEPS),
        ({"inputs": (B, 3, TK, D)}, STEPS),
        ({"mask": (B, TK, "float32")}, "(2, 7)", 'cast(mask, "bool")'),
        ({"mask": (B, TK, "int32")}, "(2, 7)"),
        *(({"mask": x}, "(2, 7)") for x in ((B, 3), (3, TK), (B, TK, D), (TK,))),
    ],
    ("hierarchical", "hierarchical, encoders"): [
        ({"inputs": (B, W, D)}, "(batch, sentences, words, *)"),
        ({"inputs": (B, 1, S, W, D)}, "(batch, sentences, words, *)"),
        ({"mask": (B, S, W, "float32")}, "(2, 3, 7)", 'cast(mask, "bool")'),
        ({"mask": (B, S, W, "int32")}, "(2, 3, 7)"),
        *(
            ({"mask": x}, "(2, 3, 7)")
            for x in ((B, S), (B, 2, W), (B, S, 2), (3, S, W), (B, S, W, D))
        ),
    ],
    ("hop",): [({"value": None}, "(2, memory steps, 5)"), ({"value": (B, D)}, MEMORY)],
    ("network",): [
        ({"question": None}, "(2, words)", "Call layer(story, "),
        ({"story": (B, W, "int32")}, "(batch, sentences, words)"),
        ({"story": (B, N, W, D, "int32")}, "(batch, sentences, words)"),
        ({"question": (B, "int32")}, "(2, words)"),
        ({"question": (B, 13, D, "int32")}, "(2, words)"),
        ({"question": (3, 13, "int32")}, "(2, words)", "`story` " + OTHER_BATCH),
        ({"story": (B, N, W, "float32")}, "(batch, sentences, words)"),
        ({"question": (B, 13, "float32")}, "(2, words)"),
        ({"story": (B, N, W, "bool")}, "(batch, sentences, words)"),
    ],
    ("decoder",): [
        ({"memory": None}, MEMORY, "Call layer("),
        ({"sequences": (B, 3)}, STEPS),
        ({"memory": (B, DV)}, MEMORY),
        ({"memory": (3, TK, DV)}, MEMORY, "`sequences` " + OTHER_BATCH),
        ({"memory_mask": (B, TK, "float32")}, "(2, 7)"),
        ({"memory_mask": (B, N)}, "(2, 7)"),
        ({"sequences_mask": (B, N, "int32")}, "(2, 5)"),
        ({"sequences_mask": (B, TK)}, "(2, 5)"),
    ],
}
KINDS = {"story": "integer ids", "question": "integer ids"}
every_call = pytest.mark.parametrize("name", CALLS)


def fresh_and_built(name):
    make, shapes = CALLS[name]
    built = make()
    built(**arguments(shapes, symbolic=False))
    return [(make(), True), (make(), False), (built, True), (built, False)]


def split(shape):
    """A shape and its dtype."""
    return (shape[:-1], shape[-1]) if isinstance(shape[-1], str) else (shape, None)


@pytest.mark.parametrize(
    ("name", "given", "fragments"),
    [
        pytest.param(name, x[0], x[1:], id=f"{name}, {x[0]}")
        for names, calls in WRONG_CALLS.items()
        for name in names
        for x in calls
    ],
)
def test_wrong_calls(name, given, fragments):
    """On arrays and on symbols, of a layer that is built and of one that is not."""
    argument, shape = next(iter(given.items()))
    mask = "mask" in argument
    kind = "boolean" if mask else KINDS.get(argument, "floating-point")
    received = "None"
    if shape is not None:
        shape, dtype = split(shape)
        received = f"{dtype or ('bool' if mask else 'float32')} of shape {shape}"
    wanted, *more = fragments
    shapes = {**CALLS[name][1], **given}
    shapes = {key: x for key, x in shapes.items() if x is not None}
    for layer, symbolic in fresh_and_built(name):
        inputs = arguments(shapes, symbolic)
        first = [inputs.pop(x) for x in list(inputs)[:1]]
        words = f"`{argument}` must be {kind}, of shape {wanted}".split("*")
        call = functools.partial(layer, *first, **inputs)
        assert_refused(call, layer.name, *words, f"received {received}", *more)


@every_call
def test_a_list_of_tensors(name):
    shapes = CALLS[name][1]
    first = next(iter(shapes))
    for layer, symbolic in fresh_and_built(name):
        for kind, bracket in ((list, "["), (tuple, "(")):
            inputs = kind([*arguments(shapes, symbolic).values()] * 2)
            wanted = f"`{first}` must be", f"received {bracket}", f"Call layer({first}"
            assert_refused(functools.partial(layer, inputs), layer.name, *wanted)


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


@pytest.mark.parametrize("name", ["pooling", "hierarchical", "flow"])
def test_shapes_that_do_not_fit_have_no_output_shape(name):
    shape = {"pooling": (B, D), "hierarchical": (B, W, D), "flow": (B, TK, D)}[name]
    wanted = "must be floating-point, of shape ("
    assert_refused(lambda: CALLS[name][0]().compute_output_shape(shape), wanted)
    assert_refused(lambda: CALLS[name][0]().build((*shape[:-1], None)), wanted)
