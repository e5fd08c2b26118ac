"""What a reader of the package has to follow does not grow back: counts, with a tenth to spare."""

import importlib
import sys

import keras
import pytest

from keras_attention import AttentionRNN, BahdanauAttention
from tests import ROOT
from tests.backends import BACKEND, compiled, on_tensorflow

sys.path.append(str(ROOT / "benchmarks"))
inside = importlib.import_module("inside")

# Functions of ours, their calls and files; `python benchmarks/inside.py` prints them.
PROGRAMS = {
    "eager layer": (36, 63, 10),
    "eager step": (45, 64, 14),
    "traced training step": (215, 1005, 21),
}
SOURCE = {
    "lines of code": 9100,
    "share of checks, %": 10.0,
    "modules of which more than 60% is checks": 2,
    "context variables": 1,
    "imports of private modules of another folder": 0,
    "names exported at the top": 30,
    "classes from keras.Layer to LocationSensitiveAttention": 4,
}
SPARE = 1.1


@on_tensorflow
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_passes_few_functions(name):
    found = inside.functions_in(inside.PROGRAMS[name]())
    counts = len(found), found.total(), len({file for file, *_ in found})
    assert all(0 < n <= SPARE * most for n, most in zip(counts, PROGRAMS[name], strict=True))


def test_the_source_stays_small():
    found = inside.of_the_source()
    assert found.keys() == SOURCE.keys()
    assert {name: n for name, n in found.items() if n > SPARE * SOURCE[name]} == {}


# Functions of ours between the call of a decoder and the score, and nested ones among them.
HOPS, CLOSURES = 10, 2


class Traced(BahdanauAttention):
    """Walks the stack from each score up to the call of the decoder."""

    def score(self, query, key):
        frame, names = sys._getframe().f_back, []
        while frame is not None and frame.f_code.co_qualname != "Decoder.call":
            if frame.f_code.co_filename.startswith(str(inside.ROOT)):
                names.append(frame.f_code.co_qualname)
            frame = frame.f_back
        if frame is not None:
            self.paths.append(names)
        return super().score(query, key)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_a_decoder_reaches_the_score_in_few_hops(mode, training):
    attention = Traced(5)
    attention.paths = []
    decoder = AttentionRNN(keras.layers.GRUCell(7), attention)
    decoder.build((None, None, 3), (None, None, 4))
    sequences, memory = keras.ops.ones((2, 3, 3)), keras.ops.ones((2, 6, 4))
    compiled(lambda *x: decoder(*x, training=training), mode == "compiled")(sequences, memory)
    # In a graph of TensorFlow, `scan` has one more function.
    spare = mode == "compiled" and BACKEND == "tensorflow"
    assert attention.paths
    for names in attention.paths:
        assert len(names) <= HOPS + spare, names
        assert sum("<locals>" in name for name in names) <= CLOSURES, names
