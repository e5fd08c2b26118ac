"""The table of all public layers in their important configurations.

The tests of this folder run over it. A new layer joins with entries in CASES: `test_table.py` fails
until it and each of its arguments are there.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field

import keras
import numpy as np
import pytest
from keras import layers, tree

import keras_attention as ka
from tests.helpers import normal, randomize
from tests.past_weights import PastWeightsAttention

VOCABULARY = 9


@dataclass(frozen=True)
class Argument:
    """A call argument of shape (batch, *steps, features).

    Those whose names end in a number, such as "value 0" and "value 1", are the items of a list.
    With steps it is made of embedded words, whose padding is masked. The last number of steps
    counts words, the ones before it count groups of words. Without features the layer takes the
    ids themselves, and the id 0 is padding.
    """

    name: str
    steps: tuple
    features: int | None

    @property
    def size(self):
        return () if self.features is None else (self.features,)

    @property
    def dtype(self):
        return "int32" if self.features is None else "float32"


@dataclass(frozen=True)
class Case:
    layer: type
    options: dict
    arguments: tuple
    # The shapes of the attention weights, without the batch.
    scores: tuple
    # Arguments that are layers: functions of a dtype and of whether their loops are unrolled.
    parts: dict[str, Callable] = field(default_factory=dict)
    # The argument whose mask can hide the whole memory.
    memory: str = "value"
    # Whether the output is zero when the whole memory is hidden.
    reads_zeros: bool = True
    # The argument whose mask the output carries.
    masked_like: str | None = None
    # The axis of the weights that a mask hides parts of.
    masked_axis: int = -1
    # Whether the number of steps must be known, as in an unrolled loop.
    fixed: bool = False
    # The scale of random weights and inputs, smaller where numbers grow for want of a softmax.
    scale: float = 1.0
    # Whether it stands for its layer where tests are expensive: one case of each layer.
    first: bool = False
    # Whether it is exported to every format, and whether it has the other duties too.
    exported: bool = False
    duties: bool = True

    def make(self, dtype="float32", unroll=False):
        parts = {name: make(dtype, unroll) for name, make in self.parts.items()}
        loops = unroll and "unroll" in arguments_of(self.layer)
        options = {**self.options, **({"unroll": True} if loops else {})}
        return self.layer(**options, **parts, dtype=dtype)

    def named(self, items):
        """The arguments of a call by name, of one item for each of `arguments`."""
        found = {}
        for argument, x in zip(self.arguments, items, strict=True):
            name, _, number = argument.name.partition(" ")
            found[name] = [*found.get(name, []), x] if number else x
        return found

    def masks(self, masks):
        """The masks of a call by name, of one mask or None for each of `arguments`."""
        given = {name: x for name, x in self.named(masks).items() if x is not None}
        return {self.mask_of(name): x for name, x in given.items()}

    def mask_of(self, argument):
        argument = argument.partition(" ")[0]
        known = inspect.signature(self.layer.call).parameters
        return next((name for name in (f"{argument}_mask", "mask") if name in known), None)

    def shapes(self, batch, known=True, more=0):
        """The shapes of the arguments, with `more` steps than usual where steps are not fixed."""
        more, known = more * (not self.fixed), known or self.fixed
        return [
            (batch, *(step + more if known else None for step in a.steps), *a.size)
            for a in self.arguments
        ]

    def tensors(self, batch, more=0):
        made = []
        for n, shape in enumerate(self.shapes(batch, more=more)):
            ids = np.random.default_rng(n).integers(1, VOCABULARY, shape).astype("int32")
            floats = (self.scale * normal(n, *shape, dtype="float32")).astype("float32")
            made.append(floats if self.arguments[n].size else ids)
        return made

    def symbols(self):
        pairs = zip(self.arguments, self.shapes(None, known=False), strict=True)
        return [keras.Input(batch_shape=shape, dtype=x.dtype) for x, shape in pairs]

    def built(self, dtype="float32"):
        layer = self.make(dtype)
        layer.build(*self.named(self.shapes(None, known=False)).values())
        return randomize(layer, scale=0.5 * self.scale)

    def model(self, batch=None, then=None):
        """From words to a flat list of all that the layer returns, or to `then` of the first."""
        keras.utils.set_random_seed(7)
        inputs, tensors = [], []
        shapes = self.shapes(batch, known=batch is not None)
        for argument, shape in zip(self.arguments, shapes, strict=True):
            name = f"{argument.name}_in".replace(" ", "_")
            words = argument.steps and argument.size
            shape, dtype = (shape[:-1], "int32") if words else (shape, argument.dtype)
            inputs.append(keras.Input(batch_shape=shape, dtype=dtype, name=name))
            embed = words and layers.Embedding(VOCABULARY, argument.features, mask_zero=True)
            tensors.append(embed(inputs[-1]) if words else inputs[-1])
        tensors = self.named(tensors).values()
        outputs = tree.flatten(self.make()(*tensors, return_attention_scores=True))
        model = keras.Model(inputs, outputs if then is None else then(outputs[0]))
        return randomize(model, scale=0.5 * self.scale)

    def inputs(self, batch, more=0):
        """Words for `model`, at least one in each sequence and then padding of 0."""
        rng, made = np.random.default_rng(batch), []
        for argument in self.arguments:
            if not argument.steps:
                made.append(normal(batch, batch, argument.features).astype("float32"))
                continue
            steps = tuple(step + (0 if self.fixed else more) for step in argument.steps)
            words = rng.integers(1, VOCABULARY, (batch, *steps)).astype("int32")
            for axis, step in enumerate(steps):
                # Some groups are padding too; every document keeps at least one.
                lengths = rng.integers(1, step + 1, (batch, *steps[:axis], 1))
                kept = np.arange(step) < lengths
                words *= np.expand_dims(kept, tuple(range(axis + 2, words.ndim)))
            made.append(words)
        return made


def part(kind, *args, **kwargs):
    return lambda dtype, unroll: kind(*args, **kwargs, dtype=dtype)


def heads(kind, *args, **kwargs):
    return lambda dtype, unroll: ka.MultiHead(kind(*args, **kwargs, dtype=dtype), 2)


def cell(kind, units):
    # The default initializer, orthogonal, does not exist in half precision.
    return part(kind, units, recurrent_initializer="glorot_uniform")


def cells(*makers):
    return lambda dtype, unroll: [make(dtype, unroll) for make in makers]


def sources(*makers):
    return lambda dtype, unroll: ka.MultiSource(cells(*makers)(dtype, unroll), dtype=dtype)


def residual(*makers):
    return lambda dtype, unroll: ka.ResidualRNNCells(
        [make(dtype, unroll) for make in makers], dtype=dtype
    )


def recurrent(kind, units):
    options = {"return_sequences": True, "recurrent_initializer": "glorot_uniform"}
    return lambda dtype, unroll: kind(units, **options, unroll=unroll, dtype=dtype)


def both_ways(units):
    gru = recurrent(layers.GRU, units)
    return lambda dtype, unroll: layers.Bidirectional(gru(dtype, unroll), dtype=dtype)


def functional(units, features):
    def make(dtype, unroll):
        inputs = keras.Input((None, features), dtype=keras.DTypePolicy(dtype).compute_dtype)
        return keras.Model(inputs, layers.Dense(units, "tanh", dtype=dtype)(inputs))

    return make


def sequential(*makers):
    return lambda dtype, unroll: keras.Sequential([make(dtype, unroll) for make in makers])


TQ, TK, DQ, DV = 3, 7, 5, 11
QUERY, STEP = Argument("query", (TQ,), DQ), Argument("query", (), DQ)
VALUE, VALUE_Q = Argument("value", (TK,), DV), Argument("value", (TK,), DQ)
VALUES = Argument("value 0", (TK,), DV), Argument("value 1", (5,), 2)
CONTEXT, QUESTION = Argument("context", (TK,), DQ), Argument("query", (TQ,), DQ)
SEQUENCES, MEMORY = Argument("sequences", (TQ,), DQ), Argument("memory", (TK,), DV)
MEMORIES = Argument("memory 0", (TK,), DV), Argument("memory 1", (5,), 2)
STORY, ASKED = Argument("story", (5, 7), None), Argument("question", (3,), None)
WORDS, SENTENCES = Argument("inputs", (TK,), DV), Argument("inputs", (TQ, TK), DQ)


def attends(layer, options, value=VALUE, key=(), **more):
    more = {"masked_like": "query", "scores": ((TQ, TK),), **more}
    return Case(layer, options, (QUERY, *(value if value is VALUES else (value, *key))), **more)


def steps(layer, options, value=VALUE, key=(), scores=((TK,),), **more):
    values = value if value is VALUES else (value, *key)
    return Case(layer, options, (STEP, *values), scores, **more)


def flows(options, scores, arguments=(CONTEXT, QUESTION), **more):
    more = {"memory": "query", "masked_like": "context", "reads_zeros": False, **more}
    return Case(ka.BiDAFAttentionFlow, options, arguments, scores, **more)


def decodes(options, cell, attention, memories=(MEMORY,), **more):
    parts = {"cell": cell, "attention": attention}
    more = {"memory": "memory", "masked_like": "sequences", **more}
    scores = ((TQ, TK), (TQ, 5))[: len(memories)]
    return Case(ka.AttentionRNN, options, (SEQUENCES, *memories), scores, parts, **more)


def pools(layer, options, scores=((TK,),), inputs=WORDS, **more):
    return Case(layer, options, (inputs,), scores, memory="inputs", **more)


def documents(options, **more):
    scores = (TQ, TK), (TQ,)
    return pools(ka.HierarchicalAttention, {"units": 13, **options}, scores, SENTENCES, **more)


def series(options, cell, **more):
    more = {"fixed": True, "masked_like": "inputs", "masked_axis": -2, **more}
    options = {"units": 13, **options}
    return pools(ka.FeatureAttention, options, ((TK, DV),), parts={"cell": cell}, **more)


def answers(options, hops, **more):
    options = {"vocabulary_size": VOCABULARY, "units": 13, **options}
    more = {"memory": "story", "reads_zeros": False, "scale": 0.2, **more}
    return Case(ka.MemoryNetwork, options, (STORY, ASKED), ((hops, 5),), **more)


KEY_Q, KEY_2 = Argument("key", (TK,), DQ), Argument("key", (TK,), 2)
DROPOUT = {"dropout": 0.2, "seed": 3}
LOCAL_P = {"alignment": "local-p", "half_width": 2, "units": 13}
ATTENTION_2, GENERAL = part(ka.BahdanauAttention, 2), part(ka.LuongAttention, "general")
GENERAL_P = part(ka.LuongAttention, "general", **LOCAL_P)
GRU, LSTM = cell(layers.GRUCell, 13), cell(layers.LSTMCell, 13)
FIRST = {"first": True, "exported": True}
NO_ZEROS = {"reads_zeros": False}
# Choices of an argument that change an exported program; their other duties are tested elsewhere.
EXPORTED = {"exported": True, "duties": False}
# Attentions with a state, and all their options.
STATES = {
    "location-sensitive": (ka.LocationSensitiveAttention, {
        "filters": 2, "kernel_size": 3, "cumulative": False, "use_bias": False,
        "normalizer": "entmax15"}),
    "coverage": (ka.CoverageAttention, {
        "loss_weight": 0.5, "use_bias": False, "normalizer": "softmax"}),
    "monotonic": (ka.MonotonicAttention, {
        "mode": "hard", "noise": 0.5, "chunk_size": 2, "initial_offset": 0.5, "initial_gain": 0.5,
        "use_bias": True, "normalizer": "softmax"}),
    "stepwise monotonic": (ka.StepwiseMonotonicAttention, {
        "hard": True, "noise": 0.5, "temperature": 0.5, "keep_last": True, "initial_offset": 0.5,
        "initial_gain": 0.5, "use_bias": True, "normalizer": "softmax"}),
    "forward": (ka.ForwardAttention, {
        "transition_agent": True, "use_bias": False, "normalizer": "softmax"}),
    "gmm": (ka.GMMAttention, {
        "components": 2, "version": "V2", "initial_step": 1.0, "initial_width": 10.0,
        "normalizer": "softmax"}),
    "dynamic convolution": (ka.DynamicConvolutionAttention, {
        "filters": 2, "kernel_size": 3, "prior_length": 4, "alpha": 0.2, "beta": 0.7,
        "normalizer": "softmax"}),
}  # fmt: skip
CASES = {
    "bahdanau with keys": attends(ka.BahdanauAttention, {"units": 13}, key=(KEY_2,)),
    "bahdanau, all options": attends(
        ka.BahdanauAttention,
        {"units": 13, "use_bias": True, "weight_norm": True, "normalizer": "sparsemax", **DROPOUT},
        first=True),
    "bahdanau, one step": steps(ka.BahdanauAttention, {"units": 13}),
    "luong general": attends(ka.LuongAttention, {"score_mode": "general"}, exported=True),
    "luong concat local-m": attends(
        ka.LuongAttention, {"score_mode": "concat", "alignment": "local-m", "half_width": 2}),
    "luong location, one step": steps(
        ka.LuongAttention, {"score_mode": "location", "max_length": 17}),
    "luong dot local-p, all options": attends(
        ka.LuongAttention, {"score_mode": "dot", **LOCAL_P, "normalizer": "sparsemax", **DROPOUT},
        VALUE_Q, first=True, **NO_ZEROS),
    # Padding is at both ends, so no window but one as wide as the memory has all of it.
    **{name: attends(layer, {"units": 13, **options, "half_width": 2, **DROPOUT}, **FIRST)
       for name, (layer, options) in STATES.items()},
    "heads": attends(
        ka.MultiHead, {"num_heads": 3, "normalizer": "softmax", "dropout": 0.0, "seed": None},
        parts={"attention": part(ka.BahdanauAttention, 2, **DROPOUT)}, **FIRST),
    "heads with a state": attends(
        ka.MultiHead, {"num_heads": 2},
        parts={"attention": part(ka.LocationSensitiveAttention, 13, 2, 3, half_width=2)},
        exported=True),
    "heads, one step": steps(
        ka.MultiHead, {"num_heads": 2}, parts={"attention": GENERAL_P}, **NO_ZEROS),
    "sources": attends(
        ka.MultiSource, {"normalizer": "softmax", "dropout": 0.0, "seed": None},
        VALUES, scores=((TQ, TK), (TQ, 5)),
        parts={"attentions": cells(part(ka.BahdanauAttention, 13, **DROPOUT), GENERAL)}, **FIRST),
    "sources with a state": attends(
        ka.MultiSource, {}, VALUES, scores=((TQ, TK), (TQ, 5)),
        parts={"attentions": cells(
            part(ka.LuongAttention, "general", "local-p", half_width=2, units=3),
            part(ka.LocationSensitiveAttention, 13, 2, 3, half_width=2))},
        exported=True, **NO_ZEROS),
    "sources, one step": steps(
        ka.MultiSource, {}, VALUES, scores=((TK,), (5,)),
        parts={"attentions": cells(
            heads(ka.BahdanauAttention, 13), part(ka.LuongAttention, "location", max_length=17))}),
    "flow": flows({}, ((TK, TQ), (TK,)), **FIRST),
    "flow, context to query, all options": flows(
        {"query_to_context": False, "normalizer": "sparsemax", **DROPOUT}, ((TK, TQ),)),
    # With few steps one could win every maximum, and query_vector would have no gradient.
    "flow, query to context": flows(
        {"context_to_query": False}, ((13, 11), (13,)),
        (Argument("context", (13,), DQ), Argument("query", (11,), DQ))),
    "decoder": decodes(
        {"query": "previous", "output_mode": "attention"}, GRU, ATTENTION_2, **FIRST),
    "decoder, stacked, input feeding": decodes(
        {"query": "current", "input_feeding": True, "output_mode": "concat", "return_state": True},
        cells(LSTM, cell(layers.GRUCell, 2)), GENERAL_P, **NO_ZEROS),
    "decoder, residual cells": decodes(
        {"query": "previous", "return_state": True}, residual(LSTM, GRU), ATTENTION_2, **NO_ZEROS),
    "decoder, an attention with a state": decodes(
        {"query": "current", "input_feeding": True, "return_state": True},
        GRU, part(PastWeightsAttention)),
    "decoder, heads with a state": decodes(
        {"query": "previous"}, GRU, heads(ka.LocationSensitiveAttention, 2, 2, 3),
        exported=True, **NO_ZEROS),
    "decoder, several memories": decodes(
        {"query": "previous"}, GRU,
        sources(ATTENTION_2, part(ka.LocationSensitiveAttention, 13, 2, 3)),
        MEMORIES, exported=True, **NO_ZEROS),
    "decoder, unrolled": decodes(
        {"query": "current", "unroll": True, "return_state": True},
        LSTM, part(ka.LuongAttention, "concat", "local-m", half_width=2), fixed=True),
    "stack of layers": Case(
        ka.DecoderStack, {}, (SEQUENCES, MEMORY), ((TQ, TK),),
        {"rnns": cells(*[recurrent(layers.LSTM, 13)] * 3), "attention": ATTENTION_2},
        memory="memory", masked_like="sequences", **NO_ZEROS, **FIRST),
    "pooling": pools(ka.AttentionPooling, {"units": 13}, exported=True),
    "pooling, all options": pools(
        ka.AttentionPooling,
        {"units": 13, "gated": True, "rows": 3, "temperature": 0.5, "penalty": 0.1,
         "normalizer": "normalized_sigmoid", **DROPOUT},
        ((3, TK),), **FIRST),
    "hierarchical": documents({}, **FIRST),
    "hierarchical, all options": documents(
        {"sentence_units": 2, "normalizer": "sparsemax", **DROPOUT},
        parts={"word_encoder": both_ways(2), "sentence_encoder": both_ways(3)}),
    "hierarchical, models as encoders": documents(
        {}, parts={
            "word_encoder": functional(2, DQ),
            "sentence_encoder": sequential(
                part(layers.Dense, 11, "tanh"), recurrent(layers.GRU, 3))}),
    "target": attends(
        ka.TargetAttention, {"units": 13, "normalizer": "none", **DROPOUT}, key=(KEY_Q,),
        scale=0.5, **FIRST),
    "target, sigmoid, one step": steps(
        ka.TargetAttention, {"units": 13, "normalizer": "sigmoid"}, VALUE_Q, scale=0.5),
    "target, softmax": attends(ka.TargetAttention, {"units": 13, "normalizer": "softmax"}, VALUE_Q),
    "retain": pools(ka.RETAIN, {"units": 13, "classes": 3}, **NO_ZEROS, **FIRST),
    "retain, unrolled": pools(ka.RETAIN, {"units": 13, "unroll": True}, fixed=True, **NO_ZEROS),
    "features": series({}, cell(layers.LSTMCell, 2), first=True),
    "features, all options": series(
        {"use_bias": False, "normalizer": "sparsemax", "unroll": True},
        residual(cell(layers.GRUCell, 3), cell(layers.LSTMCell, 3))),
    "memory hop": steps(ka.MemoryHop, {"update": "add"}, VALUE_Q, (KEY_Q,), **NO_ZEROS),
    "memory hop, all options": attends(
        ka.MemoryHop, {"update": "linear", "normalizer": "sparsemax", **DROPOUT}, VALUE_Q,
        scale=0.25, first=True, **NO_ZEROS),
    "memory network": answers({}, 3, **FIRST),
    "memory network, all options": answers(
        {"hops": 2, "tying": "layerwise", "position_encoding": 4, "memory_size": 4,
         "null_memories": True}, 2),
    "bahdanau": attends(ka.BahdanauAttention, {"units": 13}, **EXPORTED),
    "bahdanau, sparsemax": attends(
        ka.BahdanauAttention, {"units": 13, "normalizer": "sparsemax"}, **EXPORTED),
    **{f"luong {name}": attends(ka.LuongAttention, options, value, **EXPORTED)
       for name, options, value in (
           ("dot", {"score_mode": "dot"}, VALUE_Q),
           ("concat", {"score_mode": "concat"}, VALUE),
           ("location", {"score_mode": "location", "max_length": 17}, VALUE),
           ("general local-m", {"alignment": "local-m", "half_width": 1}, VALUE),
           ("general local-p", {"alignment": "local-p", "half_width": 1}, VALUE))},
    "hierarchical, recurrent encoders": documents(
        {}, parts={"word_encoder": both_ways(3), "sentence_encoder": both_ways(3)}, **EXPORTED),
    "features, unrolled": series({"unroll": True}, cell(layers.LSTMCell, 2), **EXPORTED),
    "memory hop without keys": steps(ka.MemoryHop, {}, VALUE_Q, **EXPORTED),
    "decoder, input feeding": decodes(
        {"input_feeding": True}, LSTM, part(ka.LuongAttention, units=3), **EXPORTED),
}  # fmt: skip


def parameters(name, is_fast=lambda case: True):
    """Cases, or their names, as parameters. Others than the fast ones are slow or exhaustive."""
    values = []
    for key, case in CASES.items():
        if case.duties:
            marks = [] if is_fast(case) else [slow_or_exhaustive(case)]
            values.append(pytest.param(key if name == "name" else case, id=key, marks=marks))
    return pytest.mark.parametrize(name, values)


def slow_or_exhaustive(case):
    """Slow is one case of each layer; of the attentions with a state, which share a loop, one."""
    recurrent = issubclass(case.layer, ka.RecurrentScoringMixin)
    slow = case.first and (not recurrent or case.layer is ka.LocationSensitiveAttention)
    return pytest.mark.slow if slow else pytest.mark.exhaustive


def is_fast(case):
    """One case of each layer; of the layers with a loop, which takes longest, the decoder alone."""
    loops = ka.RecurrentScoringMixin, ka.DecoderStack, ka.FeatureAttention, ka.RETAIN
    return case.first and not issubclass(case.layer, loops)


every_case = parameters("case")
# For tests that take seconds a case.
first_cases, first_names = parameters("case", is_fast), parameters("name", is_fast)
# For tests that compile the gradient too: the tests of the decoder compile it.
compiled_cases = parameters("case", lambda x: is_fast(x) and x.layer is not ka.AttentionRNN)
# For tests that start another process; what another backend computes is tested there.
SERVED = "location-sensitive", "sources", "decoder", "hierarchical", "memory network", "retain"
slow_names = pytest.mark.parametrize("name", [
    pytest.param(x, marks=pytest.mark.slow if x in SERVED else pytest.mark.exhaustive)
    for x, case in CASES.items() if case.duties
])  # fmt: skip


def public_layers():
    """The layers of the package.

    The mixins are bases, without a score of their own. Cells are parts of a decoder. Heads have no
    weights to return; `tests/seq2seq` tests them.
    """
    exported = (getattr(ka, name) for name in ka.__all__)
    layers = {x for x in exported if inspect.isclass(x) and issubclass(x, keras.layers.Layer)}
    names = "ScoringMixin", "RecurrentScoringMixin", "ResidualRNNCells"
    layers -= {getattr(ka, name) for name in names}
    return {x for x in layers if not x.__module__.startswith("keras_attention.seq2seq")}


def arguments_of(layer):
    own = layer.__mro__[: layer.__mro__.index(keras.layers.Layer)]
    own = [vars(c)["__init__"] for c in own if "__init__" in vars(c)]
    names = {name for init in own for name in inspect.signature(init).parameters}
    return names - {"self", "args", "kwargs"}
