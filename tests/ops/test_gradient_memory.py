"""How large the tensors are that a layer makes, and that its backward pass keeps.

Graphs, tapes and compiled programs are measured in numbers of elements. Nothing is timed.
"""

import functools
import math
import re
import weakref

import keras
import pytest
import tensorflow as tf

import keras_attention as ka
from keras_attention.backend import ops
from keras_attention.ops import additive_score
from keras_attention.ops.additive import dispatch, feature_blocked
from tests import fast
from tests.backends import graphs
from tests.helpers import AnyCell
from tests.ops.scores import both_with, shapes_of

# The value of a size that a graph does not know.
UNKNOWN = 64


def count(x):
    sizes = () if x.shape.rank is None else x.shape
    return math.prod(UNKNOWN if size is None else size for size in sizes)


def made(graph):
    return [x for one in graphs(graph) for op in one.get_operations() for x in op.outputs]


def held(graph, upstream):
    """The tensors that stay in memory until the upstream gradient arrives.

    They do not depend on it, and an operation that depends on it uses them.
    """
    reached = {upstream.op}
    for operation in graph.get_operations():
        sources = [x.op for x in operation.inputs] + list(operation.control_inputs)
        if any(source in reached for source in sources):
            reached.add(operation)
    before = [x for op in graph.get_operations() if op not in reached for x in op.outputs]
    return [x for x in before if any(user in reached for user in x.consumers())]


def held_by_steps(graph):
    """The tensors that loops hold for their gradient, once for every step."""
    pushes = [op for one in graphs(graph) for op in one.get_operations()]
    return [op.inputs[1] for op in pushes if op.type == "TensorListPushBack"]


def graph_of(sizes, choice, jit):
    specs = [tf.TensorSpec(shape) for shape in shapes_of(*sizes)]
    function = tf.function(both_with(choice), specs, jit_compile=jit).get_concrete_function()
    return function.graph, function.inputs[3]


SMALL, LARGE, DYNAMIC = (2, 5, 7, 11), (2, 64, 96, 128), (None, None, None, 11)
every_context = pytest.mark.parametrize(("choice", "jit"), [
    (None, None), (None, True), (False, None), (True, None),
], ids=["graph", "compiled", "not compiled", "in training"])  # fmt: skip


@every_context
@pytest.mark.parametrize("sizes", [SMALL, LARGE, DYNAMIC], ids=["small", "large", "dynamic"])
@pytest.mark.each_value
def test_the_gradient_of_a_score_needs_the_inputs_only(sizes, choice, jit):
    """No tanh of the forward pass is kept, or computed again before the upstream gradient."""
    graph, upstream = graph_of(sizes, choice, jit)
    batch, steps, length, units = (UNKNOWN if size is None else size for size in sizes)
    assert max(count(x) for x in held(graph, upstream)) == batch * max(steps, length) * units


@every_context
def test_large_scores_are_made_in_parts(choice, jit):
    batch, steps, length, units = sizes = 3, 512, 640, 64
    graph, _ = graph_of(sizes, choice, jit)
    # One block of pairs or a sum for each pair, never an element for each pair and unit.
    assert max(count(x) for x in made(graph)) <= 2**20 == 1024 * 1024
    assert batch * steps * length * units > 2**25


# One list for the module, because a graph that one test makes also serves the next test.
SIZES_OF_PAIRS = []


@pytest.fixture
def pairs(monkeypatch):
    """The sizes at run time of the tensors of rank 4 that go through tanh."""
    tanh = ops.tanh

    def spy(x):
        if len(x.shape) < 4:
            return tanh(x)
        with tf.control_dependencies([tf.py_function(SIZES_OF_PAIRS.append, [tf.size(x)], [])]):
            return tanh(tf.identity(x))

    monkeypatch.setattr(ops, "tanh", spy)
    SIZES_OF_PAIRS.clear()
    return SIZES_OF_PAIRS


LATE = {
    "eager": (None, False),
    "eager, not compiled": (False, False),
    "graph": (None, True),
    "graph, in training": (True, True),
}


@pytest.mark.parametrize("place", fast(LATE, [*LATE][:2]))
@pytest.mark.parametrize("sizes", fast([(2, 160, 160, 97), (8, 1, 8192, 97)], [(8, 1, 8192, 97)]))
@pytest.mark.each_value
def test_large_scores_of_sizes_that_are_known_late_are_made_in_parts(sizes, place, pairs):
    choice, as_graph = LATE[place]
    run = both_with(choice)
    if as_graph:
        run = tf.function(run, [tf.TensorSpec(s) for s in shapes_of(None, None, None, sizes[3])])
    run(*[tf.zeros(shape) for shape in shapes_of(*sizes)])
    assert max(map(int, pairs), default=0) <= 2**20 < math.prod(sizes)
    pairs.clear()
    run(*[tf.zeros(shape) for shape in shapes_of(1, 2, 3, sizes[3])])
    # Small scores are computed whole, and in a graph again for the gradient, so the test measures
    # something.
    assert [int(size) for size in pairs] == [2 * 3 * sizes[3]] * (1 + as_graph)


@pytest.mark.parametrize("small", [0, 2**18])
def test_a_tape_holds_no_tanh_beyond_the_small(small, monkeypatch):
    """Up to `SMALL_EAGER` numbers, eager code stores the tanh."""
    monkeypatch.setattr(dispatch, "SMALL_EAGER", small)
    sizes = (2, 3, 5, 7) if small == 0 else (1, 64, 64, 65)
    assert math.prod(sizes) > small
    results, tanh = [], ops.tanh

    def spy(x):
        results.append(weakref.ref(y := tanh(x)))
        return y

    monkeypatch.setattr(ops, "tanh", spy)
    inputs = [tf.ones(shape) for shape in shapes_of(*sizes)[:3]]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        scores = additive_score(*inputs)
    forward = [ref() for ref in results]
    assert forward
    assert not [x for x in forward if x is not None and not tf.is_symbolic_tensor(x)]
    del forward
    assert tape.gradient(scores, inputs)[0] is not None


LAYERS = {
    "bahdanau": lambda: ka.BahdanauAttention(13),
    "concat": lambda: ka.LuongAttention("concat"),
    "general, windows": lambda: ka.LuongAttention("general", "local-p", half_width=2),
    "concat, windows": lambda: ka.LuongAttention("concat", "local-p", half_width=2),
}


def gradient_graph(layer, shapes, jit):
    """A graph of the gradients by the inputs and all weights; and the upstream gradient in it."""
    outputs = layer(*[tf.zeros([size or 2 for size in shape]) for shape in shapes])

    def run(query, value, upstream):
        with tf.GradientTape() as tape:
            tape.watch((query, value))
            outputs = layer(query, value, training=True)
        sources = [query, value, *(weight.value for weight in layer.trainable_weights)]
        return tape.gradient(outputs, sources, upstream)

    shapes = *shapes, (*shapes[0][:2], outputs.shape[-1])
    return tf.function(run, [tf.TensorSpec(shape) for shape in shapes], jit_compile=jit)


BATCH, QUERIES, MEMORY, FEATURES = 2, 97, 311, 17


def layer_graph(name, known, jit):
    batch, queries, steps = (BATCH, QUERIES, MEMORY) if known else [None] * 3
    shapes = (batch, queries, FEATURES), (batch, steps, FEATURES)
    return gradient_graph(LAYERS[name](), shapes, jit)


@pytest.mark.parametrize("jit", [None, True])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.each_value
def test_the_gradient_of_a_layer_needs_nothing_as_large_as_all_pairs(name, known, jit):
    function = layer_graph(name, known, jit).get_concrete_function()
    batch, queries, steps = (BATCH, QUERIES, MEMORY) if known else [UNKNOWN] * 3
    largest = max(count(x) for x in held(function.graph, function.inputs[2]))
    # The values, or the weights when the whole memory is read, but no windows of rows.
    windows = known and "windows" in name
    assert largest <= batch * (steps * FEATURES if windows else max(queries, FEATURES) * steps)


def largest_array(function, *shapes):
    program = function.experimental_get_compiler_ir(*map(tf.zeros, shapes))(stage="optimized_hlo")
    arrays = re.findall(r"\b[a-z]+\d*\[([\d,]+)\]", program)
    return max(math.prod(map(int, sizes.split(","))) for sizes in arrays)


@pytest.mark.parametrize(("name", "known"), [
    ("general, windows", True),
    pytest.param("concat, windows", False, marks=pytest.mark.slow),
])  # fmt: skip
def test_a_compiled_layer_never_holds_all_windows(name, known):
    shapes = [(BATCH, n, FEATURES) for n in (QUERIES, MEMORY, QUERIES)]
    largest = largest_array(layer_graph(name, known, True), *shapes)
    assert largest == BATCH * MEMORY * FEATURES < BATCH * QUERIES * 5 * FEATURES


SLICES = pytest.mark.xfail(strict=True, reason="parts of the kernel are cut out at every step")
SAMPLES, STEPS, LENGTH, CELL, VALUES = 2, 11, 211, 31, 17
DECODER_SHAPES = (SAMPLES, STEPS, 3), (SAMPLES, LENGTH, VALUES)


def make_decoder(name, cell=keras.layers.GRUCell, **options):
    return ka.AttentionRNN(cell(CELL), LAYERS[name](), **options)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("options", [{"query": "previous"}, {"input_feeding": True}])
@pytest.mark.parametrize("name", [
    pytest.param(x, marks=[SLICES] * x.startswith("concat")) for x in LAYERS
])  # fmt: skip
@pytest.mark.each_value
def test_a_loop_holds_neither_the_memory_nor_weights_for_every_step(name, options, known):
    decoder = make_decoder(name, AnyCell, **options)
    shapes = [s if known else (None, None, s[2]) for s in DECODER_SHAPES]
    graph = gradient_graph(decoder, shapes, jit=None).get_concrete_function().graph
    # Scalars and lists of sizes are small.
    tensors = [x for x in held_by_steps(graph) if x.shape.rank and x.shape.rank > 1]
    # Tensors of a step have an axis of samples, and at most an axis of memory steps.
    assert tensors
    assert all(x.shape[0] == (SAMPLES if known else None) for x in tensors)
    batch, length = (SAMPLES, LENGTH) if known else (UNKNOWN, UNKNOWN)
    assert max(count(x) for x in tensors) <= batch * max(length, 3 * CELL)


@pytest.mark.slow
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.each_value
def test_a_compiled_loop_holds_the_memory_once(name, known, monkeypatch):
    # Small sums of all steps at once may hold all pairs, or slices of them.
    monkeypatch.setitem(dispatch.SMALLEST, "tensorflow", 1)
    monkeypatch.setattr(feature_blocked, "LARGEST_SLICE", 0)
    shapes = [s if known else (None, None, s[2]) for s in DECODER_SHAPES]
    function = gradient_graph(make_decoder(name, query="previous"), shapes, jit=True)
    largest = largest_array(function, *DECODER_SHAPES, (SAMPLES, STEPS, CELL))
    # Sums over the keys pad them to groups of one size, up to an eighth more.
    assert largest <= SAMPLES * LENGTH * CELL * 9 // 8


STATES = {
    "location": ka.LocationSensitiveAttention,
    "monotonic": ka.MonotonicAttention,
    "forward": functools.partial(ka.ForwardAttention, transition_agent=True),
    "gmm": ka.GMMAttention,
    "convolution": ka.DynamicConvolutionAttention,
    "chunks": functools.partial(ka.MonotonicAttention, chunk_size=4),
}
CHUNKS = pytest.mark.xfail(strict=True, reason="the two parts of the keys are cut out")


@pytest.mark.parametrize("decoder", [True, False], ids=["decoder", "alone"])
@pytest.mark.parametrize("name", [
    pytest.param(name, marks=[pytest.mark.slow] * (n > 1) + [CHUNKS] * (name == "chunks"))
    for n, name in enumerate(STATES)
])  # fmt: skip
@pytest.mark.each_value
def test_a_loop_holds_no_hidden_layer_of_an_attention_with_a_state(name, decoder):
    units = 64
    layer = STATES[name](units)
    layer = ka.AttentionRNN(AnyCell(CELL), layer) if decoder else layer
    graph = gradient_graph(layer, DECODER_SHAPES, jit=None).get_concrete_function().graph
    sizes = [count(x) for x in held_by_steps(graph)]
    assert 0 < max(sizes) < SAMPLES * LENGTH * units // 2
