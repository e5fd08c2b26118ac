"""Lowers every layer, forward and backward, and both searches for CUDA, without a GPU.

    python benchmarks/cuda_programs.py

Prints the size of every program in KiB, and the functions outside of XLA that it calls, such as
callbacks into Python. The inputs have the sizes of `sweep.py`.
"""

import os
import re

os.environ["KERAS_BACKEND"] = "jax"

import jax
import keras
import numpy as np
from forms import CASES, jax_program
from jax import export
from sweep import DECODERS, MATCHING, PYTORCH_ONLY, SEARCH, SEARCHES, SIZES

from keras_attention import MemoryNetwork


def network():
    """A memory network of three hops over 50 sentences of 7 words, with 180 words."""
    layer = MemoryNetwork(180, 20, hops=3)
    shapes = (32, 50, 7), (32, 7)
    ids = [np.random.default_rng(n).integers(1, 180, shape) for n, shape in enumerate(shapes)]
    layer(*ids)
    return lambda: layer(*ids), [], layer.weights


LONG = [name for name in DECODERS if name.endswith("50 steps")]
PROGRAMS = {
    **{name: ("sweep", name, x) for name, x in SIZES.items() if name not in PYTORCH_ONLY},
    "gathered windows": ("windows", "local-p", {**MATCHING, "steps": 1000}),
    **{name: ("recurrence", None, DECODERS[name]) for name in LONG},
    **{name: ("sweep", name, SEARCH) for name in SEARCHES},
    "memory network": ("network", None, {}),
}


def jitted(name):
    """A case as a function, which JAX compiles when it is called or lowered, and its arguments."""
    keras.utils.set_random_seed(11)
    case, variant, sizes = PROGRAMS[name]
    made = network() if case == "network" else CASES[case](variant, **sizes)
    return jax_program(*made, backward=name not in SEARCHES)


def program_of(name):
    """The program of a case that JAX would run on a CUDA device."""
    return lowered(*jitted(name))


def lowered(function, *arguments):
    return export.export(function, platforms=["cuda"])(*arguments)


def outside_calls(program):
    """The functions outside of XLA that a program calls."""
    calls = set(re.findall(r'custom_call @"?([\w.$]+)', program.mlir_module()))
    return sorted(calls - {"mhlo.topk"})  # how JAX 0.6 writes XLA's own operation


def main():
    print(f"JAX {jax.__version__}, Keras {keras.__version__}")
    print(" KiB  program")
    for name in PROGRAMS:
        program = program_of(name)
        calls = ", ".join(outside_calls(program))
        size = len(program.mlir_module_serialized) / 1024
        print(f"{size:>4.0f}  {name}{calls and f' (calls {calls})'}")


if __name__ == "__main__":
    main()
