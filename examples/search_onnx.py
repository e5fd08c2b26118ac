"""
Search without Keras: two ONNX files, and a search in NumPy
===========================================================

    python -m examples.search_onnx

A `Seq2Seq` becomes `encoder.onnx` and `step.onnx`. `beam_search`, in NumPy, runs both with ONNX
Runtime: copy it into your program. The script writes 1,000 dates with it and with `generate`, and
fails if a token differs.

Needs: pip install "keras-attention-layers[tensorflow,convert]".
"""

import argparse
import pathlib
import time

import keras
import numpy as np
import onnxruntime

from examples.common import dates
from keras_attention.seq2seq import Seq2Seq


class Start(keras.layers.Layer):
    """Encodes a source. Returns the tensors of state and memory, in a flat list."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def call(self, source):
        return flatten(self.model.start(source))


class Step(keras.layers.Layer):
    """Takes the last tokens, and state and memory. Returns the logits, and the next state."""

    def __init__(self, model, nesting):
        super().__init__()
        self.model, self.nesting = model, nesting

    def call(self, inputs):
        tokens, *tensors = inputs
        rest = iter(tensors)
        state, memory = keras.tree.map_structure(lambda x: next(rest) if x else None, self.nesting)
        logits, state, _ = self.model.step(tokens, state, memory)
        return [logits, *flatten(state)]


def flatten(tensors):
    return [x for x in keras.tree.flatten(tensors) if x is not None]


def export(model, folder):
    """Writes `encoder.onnx` and `step.onnx` of a model whose source is ids `(B, S)`."""
    folder.mkdir(parents=True, exist_ok=True)
    source = keras.Input((None,), dtype="int32", name="source")
    encoder = keras.Model(source, Start(model)(source))
    example = model.start(np.ones((2, 3), "int32"))
    nesting = keras.tree.map_structure(lambda x: x is not None, example)
    inputs = [keras.Input((), dtype="int32", name="tokens")]
    for number, x in enumerate(encoder.outputs):
        inputs.append(keras.Input(batch_shape=x.shape, dtype=x.dtype, name=f"x{number}"))
    step = keras.Model(inputs, Step(model, nesting)(inputs))
    for part, name, signature in (encoder, "encoder", [source]), (step, "step", [inputs]):
        path = str(folder / f"{name}.onnx")
        part.export(path, format="onnx", input_signature=signature, verbose=False)


def beam_search(encoder, step, source, start, end, max_length, width=5):
    """Finds the most probable sequences, as `Seq2Seq.generate` does with its defaults.

    Args:
        encoder, step: sessions of ONNX Runtime.
        source: `(B, S)`, int32, padded.
        start, end: the tokens that begin and end a sequence.
        max_length: L, the largest number of tokens.
        width: K, the number of beams.

    Returns:
        Tokens `(B, L)`, filled up with the end token.
    """
    batch, beams = len(source), (len(source), width)
    # x0, x1, ...: first the tensors that change from step to step, then the memory.
    tensors = [np.repeat(x, width, axis=0) for x in encoder.run(None, {"source": source})]
    used = [x.name for x in step.get_inputs()]
    tokens = np.full((batch * width, max_length), end)
    last = np.full(batch * width, start, "int32")
    active = np.tile(np.arange(width) == 0, (batch, 1))
    scores, totals = np.where(active, 0.0, -np.inf), np.zeros(beams)
    for t in range(max_length):
        feeds = {f"x{n}": x for n, x in enumerate(tensors)} | {"tokens": last}
        logits, *state = step.run(None, {name: feeds[name] for name in used})
        logits -= logits.max(axis=-1, keepdims=True)
        log_probs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        sums = totals[..., None] + log_probs.reshape(*beams, -1)
        proposed = np.where(active[..., None], sums / ((6 + t) / 6), -np.inf)
        proposed[..., end] = np.where(active, proposed[..., end], scores)  # an ended one stays
        proposed, sums = proposed.reshape(batch, -1), sums.reshape(batch, -1)
        best = np.argsort(-proposed, axis=1, kind="stable")[:, :width]
        scores, totals = (np.take_along_axis(x, best, axis=1) for x in (proposed, sums))
        beam, token = np.divmod(best, logits.shape[-1])
        rows = (np.arange(batch)[:, None] * width + beam).ravel()
        tokens, last = tokens[rows], token.ravel().astype("int32")
        tokens[:, t] = last
        tensors[: len(state)] = [x[rows] for x in state]
        active = (token != end) & (scores > -np.inf)
        if not active.any():
            break
    return tokens.reshape(*beams, -1)[:, 0]


def main(argv=None):
    kind = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("search_onnx", description=__doc__, formatter_class=kind)
    add = parser.add_argument
    add("--model", default="models/dates.keras", help="a Seq2Seq with texts of dates")
    add("--output", type=pathlib.Path, default="output/search_onnx", help="folder of the files")
    options = parser.parse_args(argv)
    model = keras.saving.load_model(options.model, compile=False)
    assert isinstance(model, Seq2Seq)
    export(model, options.output)
    texts, _ = dates.make_pairs((1000,), seed=5)[0]
    source, _ = model.tokenize(texts)
    length = 16
    expected = model.generate(source, max_length=length).tokens
    paths = (str(options.output / f"{name}.onnx") for name in ("encoder", "step"))
    began = time.perf_counter()
    sessions = map(onnxruntime.InferenceSession, paths)
    found = beam_search(*sessions, source, model.start_token, model.end_token, length)
    seconds = time.perf_counter() - began
    equal = (found == expected).all(axis=1)
    print(texts[0], "->", model.target_text.decode(found[0]))
    print(f"{equal.sum()} of {len(texts)} outputs equal those of generate; {seconds:.1f} s")
    assert equal.all()


if __name__ == "__main__":
    main()
