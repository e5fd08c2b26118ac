"""Which operations the graphs and compiled programs of layers and searches contain.

A slow operation gives the right numbers, so only a look at the program finds it.
"""

import functools
import re

import numpy as np
import pytest
import tensorflow as tf
from keras import ops, tree

from keras_attention import beam_search, greedy_search, sample_search
from tests import fast
from tests.backends import graphs
from tests.conformance.layers import first_cases


def nodes_of(graph):
    for one in graphs(graph):
        for operation in one.get_operations():
            yield operation.type, [x.shape.as_list() for x in operation.inputs if x.shape.rank]


def training_graph(case):
    layer = case.built()
    inputs = [tf.constant(x) for x in case.tensors(3)]

    @tf.function(autograph=False)
    def step(*inputs):
        with tf.GradientTape() as tape:
            floats = [x for x in inputs if x.dtype.is_floating]
            tape.watch(floats)
            named = case.named(inputs)
            outputs = tree.flatten(layer(**named, return_attention_scores=True, training=True))
            loss = tf.add_n([tf.reduce_sum(tf.square(tf.cast(x, "float32"))) for x in outputs])
        return tape.gradient(loss, [*floats, *(w.value for w in layer.trainable_weights)])

    return step.get_concrete_function(*inputs).graph


@first_cases
def test_products_and_sorts_in_a_graph(case):
    nodes = list(nodes_of(training_graph(case)))
    assert not [inputs for kind, inputs in nodes if kind in ("TopK", "TopKV2", "Sort")]
    products = [inputs for kind, inputs in nodes if kind.startswith("BatchMatMul")]
    assert all(first[:-2] == second[:-2] for first, second in products)


SEARCHES = {
    "greedy": greedy_search,
    "beam": beam_search,
    "sample": functools.partial(sample_search, top_p=0.9, seed=1),
    "limits": functools.partial(beam_search, min_length=2, no_repeat_ngram_size=2),
}


@pytest.mark.parametrize("name", fast(SEARCHES, ["beam", "sample"], slow=len(SEARCHES)))
def test_a_search_does_not_sort_the_vocabulary(name):
    vocabulary, search = 501, SEARCHES[name]

    def step(tokens, state, memory):
        return ops.one_hot(tokens, vocabulary) + memory, state, memory

    @tf.function(jit_compile=True, autograph=False)
    def run(memory):
        found = search(step, None, memory, start_token=1, end_token=2, max_length=4)
        return found.tokens, found.scores

    memory = tf.constant(np.random.default_rng(1).normal(size=(3, vocabulary)), "float32")
    program = run.experimental_get_compiler_ir(memory)(stage="optimized_hlo")
    sorts = re.findall(r"^(.*)\bsort\(", program, re.MULTILINE)
    sizes = [int(x) for line in sorts for x in re.findall(r"\[(?:\d+,)*(\d+)\]", line)]
    assert max(sizes, default=0) < vocabulary
