"""Tests, times and a training run on a GPU, with JAX.

    pip install -e ".[test]" "jax[cuda12]"
    python benchmarks/gpu.py

--small tries the command itself on a CPU, in a minute and without the tests.

1. The tests of layers, equations and searches, with products in whole float32.
2. The time of every layer, forward and backward, and of both searches: the median of 20 runs.
3. Training a translator to reverse sentences, in float32 and bfloat16. "of the limit" divides its
   operations per second by what a product of two large matrices reaches. Every weight counts six
   operations per token: two forward, four backward. Embeddings and attention do not count.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import time

os.environ["KERAS_BACKEND"] = "jax"

import jax
import keras
import numpy as np
from cuda_programs import PROGRAMS, jitted
from forms import translator_model

ROOT = pathlib.Path(__file__).resolve().parents[1]

SIZES = {"batch": 256, "length": 50, "units": 1024, "words": 32_000, "steps": 500}
LARGE = 8192  # rows and columns of the product that sets the limit
SMALL = {"batch": 16, "length": 7, "units": 64, "words": 20, "steps": 200}
RUNS = 20


def seconds(function, *arguments):
    """The median time of a function whose results are on the device."""
    jax.block_until_ready(function(*arguments))
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def operations_per_second(dtype, size):
    """What a product of two square matrices reaches."""
    matrix = jax.random.normal(jax.random.key(0), (size, size), dtype)
    return 2 * size**3 / seconds(jax.jit(jax.numpy.matmul), matrix, matrix)


def train(policy, batch, length, units, words, steps):
    """Trains a translator. Returns the losses, the seconds of a step, and operations per step."""
    keras.config.set_dtype_policy(policy)
    model = translator_model("XLA", units, words)
    generator = np.random.default_rng(0)

    def one():
        source = generator.integers(2, words, (batch, length)).astype("int32")
        target = source[:, ::-1]
        shifted = np.concatenate([np.ones_like(target[:, :1]), target[:, :-1]], axis=1)
        return float(model.train_on_batch([source, shifted], target))

    losses, times = [one()], []  # the first step compiles
    for _ in range(steps):
        start = time.perf_counter()
        losses.append(one())
        times.append(time.perf_counter() - start)
    products = [x for x in model.trainable_variables if len(x.shape) > 1 and "embed" not in x.path]
    weights = sum(int(np.prod(x.shape)) for x in products)
    return losses, statistics.median(times), 6 * weights * batch * length


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="a quick try on a CPU")
    small = parser.parse_args().small
    failed = 0
    if not small:
        sys.path.append(str(ROOT))
        from tests.matrix import TESTS

        # Before JAX starts here, and in one process, because a process takes the memory of the GPU.
        command = [sys.executable, "-m", "pytest", "-q", "-n", "0", *TESTS["jax"]]
        settings = {"JAX_PLATFORMS": "cuda", "JAX_DEFAULT_MATMUL_PRECISION": "highest"}
        environment = {**os.environ, **settings}
        failed = subprocess.run(command, env=environment, cwd=ROOT, check=False).returncode
    print(f"{jax.devices()[0].device_kind}, JAX {jax.__version__}, Keras {keras.__version__}")

    print("\n     ms  layer or search")
    for name in list(PROGRAMS)[: 3 if small else None]:
        print(f"{1000 * seconds(*jitted(name)):>7.2f}  {name}", flush=True)

    print("\nprecision            loss  ms a step  tokens a second  of the limit")
    sizes, large = (SMALL, 512) if small else (SIZES, LARGE)
    for policy, dtype in (("float32", "float32"), ("mixed_bfloat16", "bfloat16")):
        losses, step, operations = train(policy, **sizes)
        loss = f"{losses[0]:.2f} to {losses[-1]:.2f}"
        tokens = f"{sizes['batch'] * sizes['length'] / step:,.0f}"
        ratio = operations / step / operations_per_second(dtype, large)
        print(f"{dtype:<9}{loss:>16}{1000 * step:>11.1f}{tokens:>17}{ratio:>14.2f}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
