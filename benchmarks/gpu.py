"""Times on a GPU: programs beside plain JAX and PyTorch, a translator in training, and the tests.

    pip install -e ".[test]" "jax[cuda12]" torch
    python benchmarks/gpu.py [--parts plain cudnn torch training tests] [--only NAME ...]

--small tries the command itself on a CPU, in a few minutes and without the tests.

- plain: the programs of `gpu_programs.py`, ours beside plain JAX (`plain_jax.py`), and the ratio of
  their times beside the ratio of their estimates, if no loop is in them: some counts of loops
  compiled on a GPU were far off. Searches run all of their steps.
- cudnn: `DecoderStack` of Keras's LSTM with use_cudnn="auto", without cuDNN, and plain JAX with the
  attention inside of the recurrence.
- torch: some of these programs on JAX, as PyTorch runs them (`torch_forms.py`), and on PyTorch as
  the backend of Keras.
- training: a translator that learns to reverse sentences, in float32 and bfloat16. "of the limit"
  divides its operations per second by what a product of two large matrices reaches. Every weight
  counts six operations per token: two forward, four backward; embeddings and attention none.
- tests: the tests of layers, equations, decoders and searches, with products in whole float32.

Products of float32 use the tensor cores (TF32) everywhere except in the tests: JAX does that by
default, and PyTorch is told to. A time is the median of `BURSTS` bursts, in which a program starts
again before its last run has ended, divided by the runs of a burst. The programs of a row take
turns. Programs compile side by side, and those that XLA has not compiled within `LIMIT` seconds
after the last was traced are left out.
"""

import argparse
import functools
import json
import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

os.environ["KERAS_BACKEND"] = "torch" if "--torch" in sys.argv else "jax"
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # PyTorch and the tests need memory too

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import keras
import numpy as np
from measure import print_table

ROOT = Path(__file__).resolve().parents[1]
PARTS = ["plain", "cudnn", "torch", "training", "tests"]
SIZES = {"batch": 256, "length": 50, "units": 1024, "words": 32_000, "steps": 500}
LARGE = 8192  # rows and columns of the product that sets the limit
SMALL = {"batch": 16, "length": 7, "units": 64, "words": 20, "steps": 200}
SMALL_PROGRAMS = ["pooling, 64 x 200, D 200", "greedy search, 64, 8,000 words, U 512"]
KINDS = ["forward", "with gradients"]
MODES = ["eager", "compiled", "Keras"]  # of PyTorch
BURSTS, BURST = 9, 0.03  # seconds
LIMIT = 60  # seconds in which a program must be compiled
SEED = 11
GRU = {"cell": "GRU", "layers": 1, "attention": "Bahdanau"}
LSTMS = {"cell": "LSTM", "layers": 2, "attention": "Luong, fed"}
# Names in `gpu_programs.py`; the case in `forms.py` and `torch_forms.py`; the sizes.
IN_TORCH = {
    "additive, 16 x 128 x 128, U 256": ("additive", {"batch": 16, "steps": 128, "units": 256}),
    "additive, 2 x 2,048 x 2,048, U 256": ("additive", {"batch": 2, "steps": 2048, "units": 256}),
    "general, 32 x 128 x 128, D 256": ("general", {"batch": 32, "steps": 128, "units": 256}),
    "local-p, 8 x 512 x 512, D 256": (
        "local-p",
        {"batch": 8, "steps": 512, "units": 256, "half_width": 10},
    ),
    "pooling, 64 x 200, D 200": ("pooling", {"batch": 64, "steps": 200, "units": 200}),
    "gated pooling, 4 x 50,000, D 512, U 256": (
        "bag",
        {"batch": 4, "steps": 50_000, "features": 512, "units": 256},
    ),
    "GRU, Bahdanau, 32 x 50 x 50, U 512": (
        "decoder",
        {**GRU, "batch": 32, "steps": 50, "units": 512},
    ),
    "2 LSTM, Luong, fed, 32 x 30 x 30, U 512": (
        "decoder",
        {**LSTMS, "batch": 32, "steps": 30, "units": 512},
    ),
}


def in_turns(functions, wait_for):
    """The seconds of one run of each function; `wait_for` blocks until its results are there."""
    runs, times = {}, {name: [] for name in functions}
    for name, function in functions.items():
        for _ in range(2):
            wait_for(function())
        start = time.perf_counter()
        wait_for(function())
        runs[name] = max(3, int(BURST / (time.perf_counter() - start)))
    for _ in range(BURSTS):
        for name, function in functions.items():
            start = time.perf_counter()
            for _ in range(runs[name]):
                results = function()
            wait_for(results)
            times[name].append((time.perf_counter() - start) / runs[name])
    return {name: statistics.median(x) for name, x in times.items()}


def arrays(arguments):
    """Random arrays of the given shapes; weights get small values."""
    import jax

    keys = iter(jax.random.split(jax.random.key(SEED), len(jax.tree.leaves(arguments))))
    weights, *inputs = arguments
    small = [0.05 * jax.random.normal(next(keys), x.shape) for x in weights]
    return small, *(jax.random.normal(next(keys), x.shape) for x in inputs)


class Programs:
    """Functions of weights and inputs, which JAX compiles in the background, side by side."""

    def __init__(self, pairs):
        import jax

        self.pool = ThreadPoolExecutor()
        self.futures = {}
        for name, (run, arguments) in pairs:
            self.futures[name] = self.pool.submit(jax.jit(run).lower(*arguments).compile)
            print(f"{len(self.futures)} programs traced", end="\r", file=sys.stderr, flush=True)
        self.arguments = {name: arguments for name, (_, arguments) in pairs}
        wait(self.futures.values(), LIMIT)

    def __getitem__(self, name):
        """The program, or None where it was not compiled within the limit."""
        return self.futures[name].result() if self.futures[name].done() else None

    def times(self, names):
        """The seconds of each program; of those that are compiled too late None."""
        import jax

        found = {name: self[name] for name in names}
        steps = {
            name: functools.partial(program, *arrays(self.arguments[name]))
            for name, program in found.items()
            if program is not None
        }
        return {**dict.fromkeys(names), **in_turns(steps, jax.block_until_ready)}


def milliseconds(seconds):
    return "not compiled" if seconds is None else f"{1000 * seconds:.3f}"


def time_pairs(names):
    """Ours and plain JAX."""
    from gpu_programs import CASES, SEARCHES, figures, pulled

    rows, pairs = [], []
    print("\nOurs beside plain JAX", flush=True)
    for name in names:
        both = dict(zip(("ours", "plain"), (CASES | SEARCHES)[name](), strict=True))
        for kind in ["all steps"] if name in SEARCHES else KINDS:
            for whose, (run, arguments) in both.items():
                run = pulled(run) if kind == "with gradients" else run
                pairs.append(((f"{name}, {kind}", whose), (run, arguments)))
    programs = Programs(pairs)
    for name in dict.fromkeys(name for (name, _), _ in pairs):
        two = [(name, "ours"), (name, "plain")]
        ours, plain = programs.times(two).values()
        row = [name, milliseconds(ours), milliseconds(plain), "", ""]
        if ours and plain:
            row[3] = f"{ours / plain:.2f}"
            if not any(" while(" in programs[x].as_text() for x in two):
                estimates = [figures(programs[x]).seconds for x in two]
                row[4] = f"{estimates[0] / estimates[1]:.2f}"
        rows.append(row)
        print(row, file=sys.stderr, flush=True)
    print_table(["program", "ms ours", "ms plain", "ratio", "ratio of estimates"], rows)


def time_stacks(batch=32, steps=50, units=1024):
    """`DecoderStack` with cuDNN and without."""
    from gpu_programs import of_layer, pulled, stack

    from keras_attention import BahdanauAttention, DecoderStack

    def with_cudnn():
        rnns = [keras.layers.LSTM(units, return_sequences=True) for _ in range(4)]
        return DecoderStack(rnns, BahdanauAttention(units))

    ours, plain = stack(batch, steps, units)
    shapes = [(batch, steps, units)] * 2
    pairs = {"auto": of_layer(with_cudnn, *shapes), "without cuDNN": ours, "plain": plain}
    sizes = f"{batch} x {steps} x {steps}, U {units:,}"
    print(f"\nA stack of 4 LSTMs, {sizes}; plain: attention inside of the recurrence")
    changes = {"forward": lambda run: run, "with gradients": pulled}
    programs = Programs(
        [
            ((kind, name), (change(run), arguments))
            for kind, change in changes.items()
            for name, (run, arguments) in pairs.items()
        ]
    )
    rows = [
        [kind, *map(milliseconds, programs.times([(kind, name) for name in pairs]).values())]
        for kind in changes
    ]
    print_table(["", *(f"ms {name}" for name in pairs)], rows)
    program = programs["forward", "auto"]
    if program is not None:  # Keras falls back to a loop silently
        print("auto calls cuDNN:", "cudnn_rnn" in program.as_text())


def in_torch(names, mode):
    """Prints the milliseconds of programs on PyTorch: "eager", "compiled", or "Keras"."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_default_device(device)
    torch.set_float32_matmul_precision("high")
    found = {}
    for name in names:
        case, sizes = IN_TORCH[name]
        for backward in (False, True):
            if mode == "Keras":
                step = of_keras(case, sizes, backward)
            else:
                step = of_torch(case, sizes, backward, mode == "compiled")
            times = in_turns({name: step}, lambda _: device == "cuda" and torch.cuda.synchronize())
            kind = "with gradients" if backward else "forward"
            found[f"{name}, {kind}"] = 1000 * times[name]
            del step
    print(json.dumps(found))


def of_keras(case, sizes, backward):
    from forms import make_step

    if case == "decoder":
        return make_step("recurrence", None, "eager", backward, **sizes)
    return make_step("sweep", case, "eager", backward, **sizes)


def of_torch(case, sizes, backward, compiles):
    import torch
    from torch_forms import CASES, decoder

    torch.manual_seed(SEED)
    function, inputs, weights = decoder(**sizes) if case == "decoder" else CASES[case](**sizes)
    function = torch.compile(function) if compiles else function
    variables = [x.requires_grad_(backward) for x in (*inputs, *weights)]
    with torch.no_grad():
        upstream = torch.randn_like(function(*inputs))

    def step():
        if backward:
            return torch.autograd.grad(function(*inputs), variables, upstream)
        with torch.no_grad():
            return function(*inputs)

    return step


def beside_torch(names):
    """Some programs on JAX, plain PyTorch, and PyTorch as the backend of Keras."""
    from gpu_programs import CASES, pulled

    print("\nOurs on JAX and on PyTorch, beside plain PyTorch; milliseconds", flush=True)
    columns = {}
    for mode in MODES:
        # torch.compile would unroll the loop of a decoder, and compile for minutes.
        chosen = [x for x in names if mode != "compiled" or IN_TORCH[x][0] != "decoder"]
        if not chosen:
            continue
        command = [sys.executable, __file__, "--torch", mode, "--only", *chosen]
        environment = {**os.environ, "KERAS_BACKEND": "torch"}
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, encoding="utf-8", check=False
        )
        failed = dict.fromkeys((f"{x}, {kind}" for x in chosen for kind in KINDS), "failed")
        columns[mode] = failed if done.returncode else json.loads(done.stdout.splitlines()[-1])
    pairs = []
    for name in names:
        run, arguments = CASES[name]()[0]
        pairs += [(f"{name}, forward", (run, arguments))]
        pairs += [(f"{name}, with gradients", (pulled(run), arguments))]
    programs, rows = Programs(pairs), []
    for name, _ in pairs:
        others = [columns.get(mode, {}).get(name) for mode in MODES]
        row = [name, milliseconds(programs.times([name])[name])]
        rows.append([*row, *(f"{x:.3f}" if isinstance(x, float) else x or "" for x in others)])
        print(rows[-1], file=sys.stderr, flush=True)
    heads = ["program", "ours, JAX", "PyTorch", "torch.compile", "ours, PyTorch"]
    print_table(heads, rows)


def operations_per_second(dtype, size):
    """What a product of two square matrices reaches."""
    import jax

    matrix = jax.random.normal(jax.random.key(0), (size, size), dtype)
    run = functools.partial(jax.jit(jax.numpy.matmul), matrix, matrix)
    return 2 * size**3 / in_turns({"product": run}, jax.block_until_ready)["product"]


def train(policy, batch, length, units, words, steps):
    """Trains a translator. Returns the losses, the seconds of a step, and operations per step."""
    from forms import translator_model

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


def time_training(small):
    sizes, large = (SMALL, 512) if small else (SIZES, LARGE)
    print("\nTraining a translator:", ", ".join(f"{name} {x:,}" for name, x in sizes.items()))
    rows = []
    for policy, dtype in (("float32", "float32"), ("mixed_bfloat16", "bfloat16")):
        losses, step, operations = train(policy, **sizes)
        row = [dtype, f"{losses[0]:.2f} to {losses[-1]:.2f}", f"{1000 * step:.1f}"]
        row.append(f"{sizes['batch'] * sizes['length'] / step:,.0f}")
        rows.append([*row, f"{operations / step / operations_per_second(dtype, large):.2f}"])
    print_table(["precision", "loss", "ms a step", "tokens a second", "of the limit"], rows)


def run_tests():
    """The tests on the GPU. Several processes share its memory."""
    from tests.matrix import TESTS

    command = [sys.executable, "-m", "pytest", "-q", "-n", str(os.cpu_count()), *TESTS["jax"]]
    settings = {"JAX_PLATFORMS": "cuda", "JAX_DEFAULT_MATMUL_PRECISION": "highest"}
    print(
        "\nTests:",
        " ".join(f"{name}={x}" for name, x in settings.items()),
        *command[1:],
        flush=True,
    )
    return subprocess.run(command, env={**os.environ, **settings}, cwd=ROOT, check=False).returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="programs of gpu_programs.py")
    parser.add_argument("--small", action="store_true", help="a quick try on a CPU")
    parser.add_argument("--torch", choices=MODES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.torch:
        return in_torch(options.only, options.torch)
    import jax
    from gpu_programs import CASES, SEARCHES

    parts = [x for x in options.parts if not options.small or x not in ("cudnn", "tests")]
    names = options.only or (SMALL_PROGRAMS if options.small else [*CASES, *SEARCHES])
    if unknown := set(names) - {*CASES, *SEARCHES}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; the names are in gpu_programs.py")
    print(f"{jax.devices()[0].device_kind}, JAX {jax.__version__}, Keras {keras.__version__}")
    if "plain" in parts:
        time_pairs(names)
    if "cudnn" in parts:
        time_stacks()
    if "torch" in parts:
        beside_torch([name for name in names if name in IN_TORCH])
    if "training" in parts:
        time_training(options.small)
    return run_tests() if "tests" in parts else 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status or 0)  # does not wait for programs that are still being compiled
