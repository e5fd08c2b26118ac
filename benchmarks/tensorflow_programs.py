"""Writes the programs that TensorFlow would give to XLA on a GPU; `gpu_programs.py` compiles them.

    python benchmarks/tensorflow_programs.py FOLDER NAME ...

For each case NAME of `cases.py` there are our program and that of plain Keras (`plain_keras.py`),
forward and with gradients.
"""

import os
import sys
from pathlib import Path

os.environ["KERAS_BACKEND"] = "tensorflow"
sys.path.insert(0, str(Path(__file__).parents[1]))

from cases import BOTH
from steps import build, make_step

from keras_attention.backend import tensorflow as backend


def main():
    backend._device = lambda: "gpu"  # what `execution_context` would find where there is a GPU
    folder, *names = sys.argv[1:]
    for name in names:
        for peer in (None, "plain Keras"):
            for passes in BOTH:
                step = make_step("tensorflow", build(name, peer), "XLA", passes).run
                program = step.func.experimental_get_compiler_ir(*step.args)("hlo_serialized")
                Path(folder, f"{name}, {passes}, {peer}").write_bytes(program)


if __name__ == "__main__":
    main()
