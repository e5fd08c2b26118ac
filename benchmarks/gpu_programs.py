"""What layers and decoders would do on a GPU, beside plain JAX, counted without one.

    python benchmarks/gpu_programs.py [--only NAME ...]
    python benchmarks/gpu_programs.py --tensorflow PYTHON [--only NAME ...]
    python benchmarks/gpu_programs.py --check [--tensorflow PYTHON]

--tensorflow: count programs of TensorFlow, which PYTHON, an interpreter that has it, traces.
--check: assert limits, and that two decoders in mixed precision convert nothing in their loops.

The cases are `COUNTED` in `cases.py`. JAX compiles each for an H100, forward and with all
gradients, in float32; of a search, one step counts. The table shows ours and plain JAX
(`plain_jax.py`), or `BESIDE_PLAIN_KERAS` on TensorFlow (`plain_keras.py`), and the ratio of their
estimates. A `Program` has:

- kernels: how many kernels the program launches (fusions, library calls, copies, sorts). A kernel
  in a loop counts once per iteration; where XLA does not know their number, as often as in the
  first loop. A conditional counts as its more expensive branch.
- moved: the bytes that these kernels read and write. Where a kernel reads only a slice or some rows
  of an operand, only these count.
- temporaries: the bytes that XLA allocates beside arguments and results.
- seconds: an estimate, not a measurement. A kernel takes the largest of three times: 1.6 us, its
  bytes at 2.7 TB/s, and its arithmetic: products at 67 TFLOP/s (float32 without tensor cores), at
  990 TFLOP/s in half precision; other operations at 33 TFLOP/s, of which a tanh or a
  sigmoid counts as 32, any other transcendental function as 16. `speed.py` measures, on a GPU:
  these estimates were often far off.

Needs, in an environment of its own, where the plugins have the version of jax:

    pip install keras numpy jax==0.10.2
    pip install --no-deps jax-cuda12-plugin==0.10.2 jax-cuda12-pjrt==0.10.2 nvidia-cuda-nvcc-cu12
"""

import argparse
import base64
import collections
import functools
import itertools
import math
import os
import re
import sys
from pathlib import Path
from typing import NamedTuple

os.environ["KERAS_BACKEND"] = "jax"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

sys.path.insert(0, str(Path(__file__).parents[1]))

import jax
import keras
from cases import COUNTED, FORWARD, GRADIENTS
from harness import ROOT, Worker, print_table
from jax._src.interpreters import mlir
from jax._src.lib import xla_client
from jax.experimental import topologies
from jaxlib._hlo import hlo_module_from_text
from jaxlib.mlir import ir
from steps import build, make_step

from keras_attention.backend import jax as backend

H100 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152
  shared_memory_per_core: 233472 threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: 3352320000000 l2_cache_size: 52428800 clock_rate_ghz: 1.98
  device_memory_size: 84929347584 shared_memory_per_block_optin: 232448
  cuda_compute_capability { major: 9 } registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}
platform_name: "CUDA" dnn_version_info { major: 9 minor: 7 }
runtime_version { major: 12 minor: 8 patch: 0 } device_description_str: "NVIDIA H100 80GB HBM3"
"""
KERNEL, BANDWIDTH, ADDITIONS = 1.6e-6, 2.7e12, 33e12
PRODUCTS = {4: 67e12, 2: 990e12}  # by the bytes of a number
SIZES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s16": 2, "u16": 2}
SIZES |= {"f32": 4, "s32": 4, "u32": 4, "f64": 8, "s64": 8, "u64": 8}
FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "domain"}
FREE |= {"partition-id", "replica-id", "async-done", "copy-done"}
SLOW = ["exponential", "log", "power", "rsqrt", "sqrt", "erf", "cosine", "sine", "tan"]
SLOW += ["exponential-minus-one", "log-plus-one", "divide", "atan2", "cbrt"]
# How many additions one of these counts as.
WORK = {**dict.fromkeys(SLOW, 16), "tanh": 32, "logistic": 32}
PLAIN = {"broadcast", "reshape", "transpose", "slice", "dynamic-slice", "gather", "iota", "pad"}
PLAIN |= {"concatenate", "copy", "convert", "reverse", "dynamic-update-slice"} | FREE
STEP = "a step"
TAKES = {"slice", "dynamic-slice", "gather"}
ONE = re.compile(r"^\s*(ROOT )?%?([\w.-]+) = (.*)$")
SHAPE, TRIPS = re.compile(r"\b([a-z]+\d*)\[([\d,]*)\]"), re.compile(r"known_trip_count.*?(\d+)")
BRANCH = re.compile(r"(?:true|false)_computation=(%[\w.-]+)")


class Program(NamedTuple):
    kernels: int = 0
    moved: int = 0
    seconds: float = 0.0
    temporaries: int = 0

    def plus(self, other, times=1):
        return Program(*(x + times * y for x, y in zip(self, other, strict=True)))


# One instruction: what it computes from what, and the computations that it calls.
Line = collections.namedtuple("Line", "name kind shapes operands text")


def lowered(function, *arguments):
    """A jitted function, lowered for an H100; the arguments only give shapes and dtypes."""
    topology = topologies.get_topology_desc("h100", "cuda", target_config=H100, topology="1x1x1")
    options = {"sharding": jax.sharding.SingleDeviceSharding(topology.devices[0])}
    specs = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, **options), arguments)
    return function.lower(*specs)


def compiled_for_tensorflow(program):
    """Compile what TensorFlow would give to XLA, in place of a function of as many tensors."""
    text = xla_client.XlaComputation(program).get_hlo_module().to_string()
    # JAX's compiler takes no copies, of which loops of plain code have some.
    module = hlo_module_from_text(text.replace(" copy(", " reshape("))
    computation = xla_client.XlaComputation(module.as_serialized_hlo_module_proto())
    shape = computation.program_shape()
    result, shapes = shape.result_shape(), shape.parameter_shapes()
    outputs = len(result.tuple_shapes()) if result.is_tuple() else 1
    arguments = [jax.ShapeDtypeStruct(x.dimensions(), x.numpy_dtype()) for x in shapes]
    same = lowered(jax.jit(lambda *_: [0.0] * outputs, keep_unused=True), *arguments)
    with mlir.make_ir_context():
        text = xla_client._xla.mlir.xla_computation_to_mlir_module(computation)
        same._lowering._hlo = ir.Module.parse(text)
    try:
        return same.compile()
    except jax.errors.JaxRuntimeError:  # Triton has no tiles for a product of plain code
        return same.compile({"xla_gpu_enable_triton_gemm": False})


def compiled(name, kind, peer=None):
    """The program of a case; of plain JAX, if that is the peer."""
    step = make_step(peer or "jax", build(name, peer), "traced", kind).run
    return lowered(step.func, *step.args).compile()


def count(program):
    found = total(*read(program.as_text()))
    return found._replace(temporaries=program.memory_analysis().temp_size_in_bytes)


def count_step(program):
    """What one step of the last loop of a program does, with the condition of the loop."""
    computations, _ = read(program.as_text())
    *_, loop = [x for lines in computations.values() for x in lines if x.kind == "while"]
    parts = re.findall(r"(?:body|condition)=%([\w.-]+)", loop.text)
    return functools.reduce(Program.plus, (total(computations, x) for x in parts))


def read(text):
    """The lines of each computation by its name, and the name of the first to run."""
    computations, entry, lines = {}, None, None
    for row in text.splitlines():
        start = re.match(r"^(ENTRY )?%([\w.-]+) \(.*\{$", row)
        if start:
            lines = computations[start[2]] = []
            entry = start[2] if start[1] else entry
        elif lines is not None and (match := ONE.match(row)):
            lines.append(line_of(match[2], match[3]))
    return computations, entry


def line_of(name, text):
    """Reads `shape kind(operands), attributes`; the shape may be a tuple."""
    depth, end = 0, 0
    while depth or text[end] != " ":
        depth += (text[end] in "({[") - (text[end] in ")}]")
        end += 1
    shapes, rest = SHAPE.findall(text[:end]), text[end + 1 :]
    kind, _, rest = rest.partition("(")
    operands = re.findall(r"%([\w.-]+)", rest.split("), ")[0])
    return Line(name, kind, shapes, operands, rest)


def total(computations, name):
    """What one run of a computation does."""
    found = Program()
    for times, *line in launches(computations, name):
        found = found.plus(kernel(*line), times)
    return found


def launches(computations, name, times=1):
    """Yield each kernel: its number of runs, its line, the lines beside it, those of its fusion."""
    lines = {line.name: line for line in computations[name]}
    for line in computations[name]:
        called = dict(re.findall(r"(body|condition|to_apply|calls)=%([\w.-]+)", line.text))
        if line.kind == "while":
            # The gradient of a loop in plain TensorFlow runs as often, which XLA does not know.
            loops = [line, *itertools.chain(*computations.values())]
            trips = (TRIPS.search(x.text) for x in loops if x.kind == "while")
            runs = next((int(x[1]) for x in trips if x), 1)
            for part in ("body", "condition"):
                yield from launches(computations, called[part], times * runs)
        elif line.kind == "conditional":
            names = re.search(r"branch_computations=\{([^}]*)\}", line.text)
            names = names[1] if names else " ".join(BRANCH.findall(line.text))
            branches = re.findall(r"%([\w.-]+)", names)
            longest = max(branches, key=lambda x: total(computations, x).seconds)
            yield from launches(computations, longest, times)
        elif line.kind == "call" or (line.kind == "async-start" and "to_apply" in called):
            yield from launches(computations, called["to_apply"], times)
        elif line.kind not in FREE:
            yield times, line, lines, computations.get(called.get("calls"), [])


def kernel(line, lines, inner):
    """What one kernel does; `inner` are the lines of a fusion."""
    moved = sum(map(size, line.shapes))
    parameters = [x for x in inner if x.kind == "parameter"]
    parameters.sort(key=lambda x: int(x.text.split(")")[0]))
    for n, operand in enumerate(line.operands):
        whole = sum(map(size, lines[operand].shapes))
        taken = whole
        if n < len(parameters):
            users = [x for x in inner if parameters[n].name in x.operands]
            first = [x.kind in TAKES and x.operands[0] == parameters[n].name for x in users]
            if users and all(first):
                taken = sum(size(x.shapes[0]) for x in users)
        moved += min(whole, taken)
    # A loop updates its buffers in place: only the slice is written.
    updates = [x for x in inner if x.kind == "dynamic-update-slice"]
    names = {x.name: x for x in inner}
    for update in updates:
        if update.shapes[0] in line.shapes:
            part = names[update.operands[1]]
            moved -= 2 * (size(update.shapes[0]) - size(part.shapes[0]))
    products, additions, narrow = 0, 0, 4
    for x in inner or [line]:
        if x.kind == "dot" or "gemm" in x.text or "matmul" in x.text:
            one, bytes_ = product(x, names if inner else lines)
            products, narrow = products + one, min(narrow, bytes_)
        elif x.kind == "reduce":
            additions += numbers(names[x.operands[0]].shapes[0]) if x.operands[0] in names else 0
        elif x.kind not in PLAIN and x.shapes:
            additions += numbers(x.shapes[0]) * WORK.get(x.kind, 1)
    arithmetic = products / PRODUCTS[narrow] + additions / ADDITIONS
    return Program(1, moved, max(KERNEL, moved / BANDWIDTH, arithmetic))


def product(line, lines):
    """The operations of a product, and the bytes of its narrowest factor."""
    if len(line.operands) < 2 or not all(x in lines for x in line.operands[:2]):
        return 0, 4
    first, second = (lines[x].shapes[0] for x in line.operands[:2])
    result = numbers(line.shapes[0])
    # For (B, M, K) times (B, K, N): (B M K) (B K N) / (B (B M N)) = K^2, the size that is summed.
    batch = re.search(r'lhs_batch_dims=\{([\d,]*)\}|lhs_batch_dimensions":\[([^\]]*)\]', line.text)
    axes = re.findall(r"\d+", (batch[1] or batch[2] or "")) if batch else []
    shared = math.prod(int(first[1].split(",")[int(axis)]) for axis in axes)
    summed = math.sqrt(numbers(first) * numbers(second) / max(1, result * shared))
    return 2 * result * summed, min(SIZES[first[0]], SIZES[second[0]])


def numbers(shape):
    return math.prod(int(x) for x in shape[1].split(",") if x)


def size(shape):
    return SIZES.get(shape[0], 4) * numbers(shape)


def both(name, kind):
    """Count our program and that of plain JAX: "forward", "with gradients" or "a step"."""
    counted = count_step if kind == STEP else count
    return [counted(compiled(name, kind, peer)) for peer in (None, "plain JAX")]


def both_on_tensorflow(worker, name, kind):
    """Count our program and that of plain Keras, which the worker traces."""
    programs = (worker.ask(name, "XLA", kind, peer) for peer in (None, "plain Keras"))
    return [count(compiled_for_tensorflow(base64.b64decode(x))) for x in programs]


MOVES = PLAIN - {"iota", "pad", "concatenate", "reverse"}
DECODERS = ["GRU, Bahdanau, 32 x 50 x 50, U 512", "2 LSTM, Luong, fed, 32 x 30 x 30, U 512"]
DECODERS += ["GRU, location-sensitive, 32 x 50 x 50, U 512"]
BESIDE_PLAIN_KERAS = [x for x in COUNTED if x.startswith(("additive", "gated"))] + DECODERS


def conversions(name):
    """The conversions of a decoder with gradients in mixed precision: runs, and tensors."""
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        computations, entry = read(compiled(name, GRADIENTS).as_text())
    finally:
        keras.config.set_dtype_policy("float32")
    for runs, line, _, inner in launches(computations, entry):
        kinds = {x.kind for x in inner or [line]}
        if "convert" in kinds and kinds <= MOVES:
            yield runs, line.shapes[0]


class Limit(NamedTuple):
    """The limits of one of our programs. A share is ours divided by plain code."""

    kernels: float = math.inf
    share_of_kernels: float = math.inf
    share_of_time: float = math.inf
    temporaries: float = math.inf  # MiB
    share_of_jax: float = 1.15  # of the kernels of our program on JAX


LIMITS = {
    ("additive, 16 x 128 x 128, U 256", "forward"): Limit(kernels=10),
    # The aim is 0.5. A form with three sums had 0.47, but a GPU took minutes to compile it.
    ("additive, 16 x 128 x 128, U 256", "with gradients"): Limit(28, 2, 0.7, 12),
    ("local-p, 8 x 512 x 512, D 256", "forward"): Limit(share_of_time=1),
    ("local-p, 8 x 512 x 512, D 256", "with gradients"): Limit(share_of_time=1),
    ("local-m, 2 x 8,192 x 8,192, D 64", "with gradients"): Limit(60, share_of_time=0.2),
    ("greedy search, 64, 8,000 words, U 512", "a step"): Limit(share_of_kernels=1.4),
    ("beam search, 64 x 5, 8,000 words, U 512", "a step"): Limit(share_of_kernels=1.6),
    **{(name, "with gradients"): Limit(math.inf, 0.5, 0.5) for name in DECODERS[:2]},
    (DECODERS[2], "with gradients"): Limit(math.inf, 0.6, 0.6),
    ("stack of 4 LSTM, 32 x 50 x 50, U 1,024", "with gradients"): Limit(2950, 0.5, 0.5),
}
ON_TENSORFLOW = {
    ("additive, 16 x 128 x 128, U 256", "with gradients"): Limit(27, temporaries=12),
    (DECODERS[0], "with gradients"): Limit(1300, 0.5, 0.5),
    (DECODERS[1], "with gradients"): Limit(1220, 0.5, 0.5),
    (DECODERS[2], "with gradients"): Limit(1900, 0.6, 0.6),
}


def check(on_tensorflow):
    own_on_jax = {}
    for limits, counted in ((LIMITS, both), (ON_TENSORFLOW, on_tensorflow)):
        for (name, kind), limit in limits.items() if counted else ():
            own, plain = counted(name, kind)
            shares = own.kernels / plain.kernels, own.seconds / plain.seconds
            of_jax = own.kernels / own_on_jax.setdefault((name, kind), own.kernels)
            found = Limit(own.kernels, *shares, own.temporaries / 2**20, of_jax)
            exceeds = f"{name}, {kind}: {found} exceeds {limit}"
            assert all(x <= most for x, most in zip(found, limit, strict=True)), exceeds
    for name in DECODERS[:2]:
        inside = [x for x in conversions(name) if x[0] > 1]
        assert not inside, f"{name} converts at every step: {inside}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=COUNTED, metavar="NAME")
    parser.add_argument("--tensorflow", metavar="PYTHON", help="which has TensorFlow")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    jax.config.update("jax_platforms", "cpu")
    backend._device = lambda: "gpu"  # what `execution_context` would find where there is a GPU
    worker = Worker("tensorflow", ROOT, "program", 600, options.tensorflow)
    on_tensorflow = options.tensorflow and functools.partial(both_on_tensorflow, worker)
    if options.check:
        return check(on_tensorflow)
    names = options.only or (BESIDE_PLAIN_KERAS if on_tensorflow else COUNTED)
    print(f"JAX {jax.__version__}, Keras {keras.__version__}; ours, plain")
    rows = []
    for name in names:
        for kind in (STEP,) if "search" in name else (FORWARD, GRADIENTS):
            pair = (on_tensorflow or both)(name, kind)
            row = [f"{name}, {kind}"]
            for column, unit in (("kernels", 1), ("moved", 2**20), ("temporaries", 2**20)):
                row.append(", ".join(f"{getattr(x, column) / unit:,.0f}" for x in pair))
            row += [f"{x.seconds * 1e6:,.0f}" for x in pair]
            rows.append([*row, f"{pair[0].seconds / pair[1].seconds:.2f}"])
            print(rows[-1], flush=True)
    heads = ["program", "kernels", "MiB moved", "MiB temporary", "us ours", "us plain", "ratio"]
    print_table(heads, rows)


if __name__ == "__main__":
    main()
