"""Measures memory and time of a function, and prints and writes tables, for all benchmarks.

Memory is the rise of the peak of resident memory (VmHWM, reset through /proc/self/clear_refs)
during one run of the function. The run has a process of its own, which has already run the function
once. So the figure includes the function's results, but not what TensorFlow and XLA keep after the
first run: programs, thread pools, and tensors of the inputs.

Freed memory must return to the system at once, otherwise the first run would hide the second. So
`ALLOCATOR` tells the C library to keep no block above 64 KiB, and turns off oneDNN, whose pool
keeps everything. Times are measured without these settings. Linux only.
"""

import ctypes
import gc
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from importlib.metadata import distributions
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from examples.common.records import add_record, write_record  # noqa: F401

ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "65536",
    "MALLOC_ARENA_MAX": "1",
    "TF_ENABLE_ONEDNN_OPTS": "0",
}
PAUSE = 0.1  # seconds


def peak_memory(target, runs=3, backend="tensorflow", **arguments):
    """Extra memory, in MiB, of one run of a function: the median of `runs` of them.

    Args:
        target: "module:maker", the module beside this one; `maker(**arguments)` returns the
            function, which takes no arguments and has returned when its work is done.
        backend: the backend of Keras.
        arguments: for the maker, as JSON holds them.
    """
    command = [sys.executable, __file__, target, json.dumps(arguments), str(runs)]
    settings = {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    environment = {**os.environ, **ALLOCATOR, **settings}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{target} with {arguments} failed:\n{done.stderr}")
    return statistics.median(json.loads(done.stdout.splitlines()[-1]))


def interleaved_times(functions, repeats=15, warm_ups=3):
    """Median time in seconds of each function of a dict, all of them in turn, `repeats` times.

    In turn, so that what else the machine does falls on all of them alike. A pause before each turn
    lets JAX free the memory of the function before, which it does after that has returned. A run
    that does not count wakes the threads and fills the caches, as in a training loop.
    """
    for _ in range(warm_ups):
        for function in functions.values():
            function()
    found = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            time.sleep(PAUSE)
            function()
            start = time.perf_counter()
            function()
            found[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in found.items()}


def print_table(header, rows):
    """Columns as wide as they need to be; three significant digits. Returns the lines."""
    lines = [
        header,
        *([cell if isinstance(cell, str) else f"{cell:.3g}" for cell in r] for r in rows),
    ]
    widths = [max(len(line[n]) for line in lines) for n in range(len(header))]
    for line in lines:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        )
    return lines


def write_json(path, result):
    """Writes a whole file or none: what was measured, and what with."""
    names = {x.metadata["Name"].lower(): x.version for x in distributions()}
    packages = "keras", "keras-nightly", "tensorflow", "jax", "torch"
    versions = {name: names[name] for name in packages if name in names}
    temporary = Path(f"{path}.tmp")
    text = json.dumps({**result, **versions}, indent=2)
    temporary.write_text(text + "\n", encoding="utf-8")
    temporary.replace(path)


def _resident(field):
    """VmRSS or VmHWM of this process, in MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"/proc/self/status does not say {field}.")


def _extra_memory(function):
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = _resident("VmRSS")
    function()
    return _resident("VmHWM") - before


def _child(target, arguments, runs):
    module, maker = target.split(":")
    function = getattr(importlib.import_module(module), maker)(**json.loads(arguments))
    for _ in range(2):
        function()
    print(json.dumps([_extra_memory(function) for _ in range(int(runs))]))


if __name__ == "__main__":
    _child(*sys.argv[1:])
