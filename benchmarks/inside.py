"""Counts what a reader of the package has to follow: functions, calls, files, checks and lines.

    python benchmarks/inside.py [--functions NAME]

Prints, for an eager call of a layer, a step of a decoder, and a training step of that decoder while
TensorFlow traces it, how many functions of the package run, how often, and in how many files. Then
it prints what the source holds: lines, checks, context variables, imports of private modules and
public names. `--functions` lists the functions of one program with their calls instead.

Rules: functions are told apart by file and qualified name; comprehensions (before Python 3.12) and
lambdas count. A line of code is a line that is neither blank nor a comment nor a part of a
docstring. A line checks if it is in a function whose name begins with check or raise, in a `raise`
statement, or in a call of such a function.
"""

import argparse
import ast
import io
import os
import sys
import tokenize
from collections import Counter
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras

import keras_attention
from keras_attention import AttentionRNN, BahdanauAttention, LocationSensitiveAttention

ROOT = Path(keras_attention.__file__).parent
CHECKS = ("check", "raise_", "_check", "_raise")
NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
NO_CODE |= {tokenize.ENDMARKER}


def functions_in(run):
    """How often `run` calls each function of the package, by file and name."""
    found = Counter()

    def profile(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(f"{ROOT}{os.sep}"):
            found[os.path.relpath(code.co_filename, ROOT), code.co_qualname] += 1

    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)
    return found


def a_layer():
    """An eager call of additive attention, after one that builds it."""
    query, value = keras.ops.ones((8, 5, 32)), keras.ops.ones((8, 20, 32))
    mask = keras.ops.ones((8, 20), "bool")
    layer = BahdanauAttention(32)
    layer(query, value, value_mask=mask)
    return lambda: layer(query, value, value_mask=mask)


def a_decoder():
    decoder = AttentionRNN(keras.layers.GRUCell(64), BahdanauAttention(32))
    decoder.build((None, None, 16), (None, None, 32))
    return decoder


def a_step():
    """An eager step of a decoder, after another."""
    decoder = a_decoder()
    memory = decoder.prepare(keras.ops.ones((8, 20, 32)), keras.ops.ones((8, 20), "bool"))
    state = decoder.get_initial_state(memory)
    inputs = keras.ops.ones((8, 16))
    decoder.step(inputs, state, memory)
    return lambda: decoder.step(inputs, state, memory)


def a_trace():
    """TensorFlow traces a training step of the decoder, for sizes that it does not know."""
    import tensorflow as tf

    decoder = a_decoder()

    def step(sequences, memory, mask):
        with tf.GradientTape() as tape:
            outputs = decoder(sequences, memory, memory_mask=mask, training=True)
            loss = tf.reduce_sum(outputs)
        return tape.gradient(loss, decoder.trainable_variables)

    specs = [tf.TensorSpec((None, None, 16)), tf.TensorSpec((None, None, 32))]
    specs.append(tf.TensorSpec((None, None), "bool"))
    step = tf.function(step, specs, autograph=False)
    return step.get_concrete_function


PROGRAMS = {"eager layer": a_layer, "eager step": a_step, "traced training step": a_trace}


def code_lines(source):
    """The numbers of the lines that hold code."""
    lines, documented = set(), (ast.Module, ast.ClassDef, ast.FunctionDef)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, documented) and ast.get_docstring(node) is not None:
            lines -= lines_of(node.body[0])
    return lines


def lines_of(node):
    return set(range(node.lineno, node.end_lineno + 1))


def check_lines(source):
    """The numbers of the lines that check something."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        name = node.name if isinstance(node, ast.FunctionDef) else ""
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", None) or getattr(node.func, "id", "")
        if isinstance(node, ast.Raise) or name.startswith(CHECKS):
            found |= lines_of(node)
    return found


def of_the_source():
    """What the source of the package holds, by name."""
    total, checks, mostly, variables, private = 0, 0, 0, set(), 0
    for path in sorted(ROOT.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        code = code_lines(source)
        checking = code & check_lines(source)
        total, checks = total + len(code), checks + len(checking)
        mostly += bool(code) and len(checking) > 0.6 * len(code)
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "ContextVar":
                variables.add(node.args[0].value)
            if isinstance(node, ast.ImportFrom) and node.module:
                private += is_foreign(path, node.module)
    mro = LocationSensitiveAttention.__mro__
    return {
        "lines of code": total,
        "share of checks, %": round(100 * checks / total, 1),
        "modules of which more than 60% is checks": mostly,
        "context variables": len(variables),
        "imports of private modules of another folder": private,
        "names exported at the top": len(keras_attention.__all__),
        "classes from keras.Layer to LocationSensitiveAttention": mro.index(keras.layers.Layer),
    }


def is_foreign(path, module):
    """Whether a file imports a private module that belongs to another folder."""
    root, *folder = module.split(".")
    is_private = root == "keras_attention" and folder[1:] and folder[-1].startswith("_")
    return bool(is_private) and path.parent != ROOT.joinpath(*folder[:-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--functions", choices=PROGRAMS, metavar="NAME")
    arguments = parser.parse_args()
    if arguments.functions:
        for (file, name), calls in functions_in(PROGRAMS[arguments.functions]()).most_common():
            print(f"{calls:5d} {file}: {name}")
        return
    from harness import print_table

    rows = []
    for name, make in PROGRAMS.items():
        found = functions_in(make())
        rows.append([name, len(found), found.total(), len({file for file, *_ in found})])
    print_table(["program", "functions", "calls", "files"], rows)
    print_table(["source", "count"], [list(x) for x in of_the_source().items()])


if __name__ == "__main__":
    main()
