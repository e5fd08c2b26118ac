"""The harness of all benchmarks that measure: processes that take turns, medians, and a table.

Every framework has a process of its own, so that no other library is loaded. The processes take
turns: what else the machine does falls on all of them alike. Before each turn a pause lets the
threads of the process before fall asleep. Then a run that does not count wakes the threads of this
one and fills the caches, as in a training loop; only a search has none. Searches run all their
steps, since no hypothesis ends early. On a GPU a turn is a burst: a program starts again before its
last run has ended, and the time of all is divided by their number.

Memory is the rise of the peak of resident memory (VmHWM, reset through /proc/self/clear_refs)
during one run, in a process that has run twice before. So the figure includes the results, but not
what TensorFlow and XLA keep after the first run. `ALLOCATOR` makes the C library return freed
memory at once and turns off oneDNN, whose pool keeps everything. Linux only. Of programs of JAX,
memory is the compiler's own figure, of results and temporary arrays.
"""

import argparse
import base64
import ctypes
import functools
import gc
import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

from cases import CASES, GROUPS
from steps import build, make_step

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))

from examples.common.records import add_record, write_record  # noqa: E402

ALLOCATOR = {
    **{"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"},
    **{"MALLOC_ARENA_MAX": "1", "TF_ENABLE_ONEDNN_OPTS": "0"},
}
# The framework and the mode of each column.
COLUMNS = {
    "TF eager": ("tensorflow", "eager"),
    "TF graph": ("tensorflow", "graph"),
    "TF-XLA": ("tensorflow", "XLA"),
    "JAX": ("jax", "XLA"),
    "on PyTorch": ("torch", "eager"),
    "torch.compile": ("torch", "compiled"),
}
USUAL = ["TF graph", "TF-XLA", "JAX", "on PyTorch"]  # torch.compile compiles for minutes
# Peers with a process of their own, which does not load Keras.
ALONE = "PyTorch", "plain JAX"
PLAIN = {
    "PyTorch": ("PyTorch", "eager"),
    "PyTorch, compiled": ("PyTorch", "compiled"),
    "plain JAX": ("plain JAX", "XLA"),
}
PAUSE, BURST = 0.05, 0.03  # seconds
SLOW = 1.0  # Rows whose turns take more seconds have a third of the turns.
OTHER = "other checkout"


class Worker:
    """A process of one framework, which measures a case whenever it is asked."""

    def __init__(self, framework, folder, figure, limit, python=sys.executable):
        self.framework, self.figure, self.limit, self.process = framework, figure, limit, None
        file = folder / "benchmarks" / "harness.py"
        # Checkouts before this file have a worker of the same protocol, but know no options.
        self.knows_options = file.exists()
        if not self.knows_options:
            file = folder / "benchmarks" / "sweep.py"
        self.command = [python, file, "--worker", framework]
        # JAX would keep all memory of a GPU for itself.
        self.environment = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_CPP_MIN_LOG_LEVEL": "3"}
        self.environment |= os.environ | {"PYTHONPATH": str(folder)}
        self.environment |= ALLOCATOR if figure == "memory" else {}
        if framework not in ALONE:
            self.environment["KERAS_BACKEND"] = framework

    def ask(self, case, mode, passes, peer):
        """A figure, or None if the process ends or takes longer than the limit."""
        if self.process is None:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "encoding": "utf-8"}
            self.process = subprocess.Popen(self.command, env=self.environment, **pipes)
        options = [self.figure, passes, peer] if self.knows_options else []
        self.process.stdin.write(json.dumps([case, mode, *options]) + "\n")
        self.process.stdin.flush()
        timer = threading.Timer(self.limit, self.process.kill)
        timer.start()
        answer = self.process.stdout.readline()
        timer.cancel()
        if not answer:
            print(f"{self.framework}: no result of {case} ({mode})", file=sys.stderr)
        if not answer or self.figure in ("first", "memory"):
            self.close()  # others need a fresh process, in which nothing was compiled
        return json.loads(answer) if answer else None

    def close(self):
        if self.process is not None:
            self.process.stdin.close()
            self.process.stdout.close()
            self.process.wait()
        self.process = None


def work(framework):
    """Answers each request on standard input with one figure."""
    answers, sys.stdout = sys.stdout, sys.stderr
    steps = Steps(framework)
    for line in sys.stdin:
        case, mode, figure, passes, peer = json.loads(line)
        answer = getattr(steps, figure)(case, mode, passes, peer)
        print(json.dumps(answer), file=answers, flush=True)


class Steps:
    """The steps of one case, in one process."""

    def __init__(self, framework):
        self.framework, self.case, self.steps = framework, None, {}

    def build(self, case, peer):
        return build(case, self.framework if self.framework in ALONE else peer)

    def kept(self, case, mode, passes, peer):
        if case != self.case:
            self.case, self.steps = case, {}
        key = mode, passes, peer
        if key not in self.steps:
            step = make_step(self.framework, self.build(case, peer), mode, passes)
            for _ in range(3):
                step.wait(step.run())
            seconds = time_runs(step, 1)
            runs = max(3, int(BURST / seconds)) if has_gpu() else 1
            self.steps[key] = step, runs
        return self.steps[key]

    def seconds(self, case, mode, passes, peer):
        """The time of one run."""
        step, runs = self.kept(case, mode, passes, peer)
        time.sleep(PAUSE)
        if case not in GROUPS["search"]:
            time_runs(step, 1)
        return time_runs(step, runs)

    def first(self, case, mode, passes, peer):
        """CPU seconds to trace, compile and run a case once. Other programs hardly change them."""
        built, start = self.build(case, peer), time.process_time()
        step = make_step(self.framework, built, mode, passes)
        step.wait(step.run())
        return time.process_time() - start

    def memory(self, case, mode, passes, peer):
        """MiB of one run."""
        step = make_step(self.framework, self.build(case, peer), mode, passes)
        if step.memory is not None:
            return step.memory
        rises = [memory_rise(step) for _ in range(5)]
        return statistics.median(rises[2:])

    def program(self, case, _, passes, peer):
        """What TensorFlow would give to XLA on a GPU, encoded."""
        from keras_attention.backend import tensorflow as backend

        backend._device = lambda: "gpu"  # what `execution_context` finds where there is a GPU
        run = make_step("tensorflow", self.build(case, peer), "XLA", passes).run
        program = run.func.experimental_get_compiler_ir(*run.args)("hlo_serialized")
        return base64.b64encode(program).decode()


def time_runs(step, runs):
    start = time.perf_counter()
    for _ in range(runs):
        results = step.run()
    step.wait(results)
    return (time.perf_counter() - start) / runs


def has_gpu():
    jax, torch = (sys.modules.get(name) for name in ("jax", "torch"))
    on_jax = jax is not None and jax.default_backend() == "gpu"
    return on_jax or (torch is not None and torch.cuda.is_available())


def memory_rise(step):
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    step.wait(step.run())
    return resident("VmHWM") - before


def resident(field):
    """VmRSS or VmHWM of this process, in MiB."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(rf"{field}:\s+(\d+)", status)[1]) / 1024


def measure(requests, repeats):
    """The median of each request, all of them in turn; one without a result is left out.

    Args:
        requests: a dict from names to functions that return a number or None.
        repeats: how many turns count; the first does not, because it compiles.
    """
    found = {name: [] for name in requests}
    for turn in range(repeats + 1):
        start = time.perf_counter()
        for name, request in requests.items():
            if name in found:
                found[name].append(request())
                if found[name][-1] is None:
                    del found[name]
        if turn >= max(1, repeats // 3) and time.perf_counter() - start > SLOW:
            break
    return {name: statistics.median(x[1:] or x) for name, x in found.items()}


def print_table(header, rows):
    """Columns as wide as they need to be; floats with three significant digits."""
    rows = [[x if isinstance(x, str) else f"{x:.3g}" for x in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for row in (header, *rows):
        print("  ".join(x.ljust(n) for x, n in zip(row, widths, strict=True)).rstrip(), flush=True)


def report(arguments, header, rows):
    """Prints the table of a run, and writes its record if asked for."""
    print_table(header, rows)
    write_record(arguments.record, tables={"table": [header, *rows]})


def make_parser(description):
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=description, formatter_class=raw)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="groups or cases of cases.py")
    parser.add_argument("--columns", nargs="+", choices=COLUMNS)
    parser.add_argument("--peers", nargs="+", metavar="PEER", help="compare with these alone")
    parser.add_argument("--repeats", type=int, default=25, help="slow rows have a third of them")
    parser.add_argument("--limit", type=float, default=600, help="seconds that a result may take")
    parser.add_argument("--beside", type=Path, metavar="FOLDER", help="compare with a checkout")
    add_record(parser)
    return parser


def run_all(arguments, names, figure="seconds", unit="ms", scale=1000.0):
    """Measures each case in each column beside each peer, and reports it. Returns all medians.

    Args:
        arguments: of a parser from `make_parser`.
        names: groups or cases, unless `--only` names others.
        figure: the method of `Steps` that measures.
        unit: of the table.
        scale: from the figure to this unit.
    """
    chosen = arguments.only or names
    if unknown := set(chosen) - {*GROUPS, *CASES}:
        raise SystemExit(f"Unknown: {', '.join(unknown)}. The groups are {', '.join(GROUPS)}.")
    names = list(dict.fromkeys(x for name in chosen for x in GROUPS.get(name, [name])))
    columns = {name: columns_of(CASES[name], arguments) for name in names}
    used = [x for x in COLUMNS if any(x in y for y in columns.values())]
    header = ["case", "beside", f"peer, {unit}", *(f"{x}, {unit} (ratio)" for x in used)]
    workers, found, rows = {}, {}, []
    for name, passes, peer in all_rows(names, columns, arguments):
        label = name if len(CASES[name].passes) == 1 else f"{name}, {passes}"
        requests = requests_of((name, passes, peer), columns[name], figure, arguments, workers)
        medians = measure(requests, arguments.repeats if figure == "seconds" else 0)
        found[f"{label} | {peer}" if peer else label] = medians
        base = f"{scale * medians[peer]:.3g}" if peer in medians else ""
        rows.append([label, peer or "", base, *(cell(medians, x, peer, scale) for x in used)])
        print("  ".join(rows[-1]), file=sys.stderr, flush=True)
    for worker in workers.values():
        worker.close()
    report(arguments, header, rows)
    return found


def columns_of(case, arguments):
    known = case.columns or COLUMNS
    chosen = [x for x in arguments.columns or USUAL if x in known]
    return chosen or ([] if arguments.columns else list(known))


def all_rows(names, columns, arguments):
    """The case, the passes and the peer of each row of the table."""
    for name in (x for x in names if columns[x]):
        peers = CASES[name].peers or (None,)
        if arguments.beside:
            peers = (OTHER,)
        elif arguments.peers:
            peers = [x for x in arguments.peers if x.removesuffix(", compiled") in peers]
        for passes in CASES[name].passes:
            for peer in peers:
                yield name, passes, peer


def requests_of(row, columns, figure, arguments, workers):
    """Functions that ask for the figures of a row, by their names."""
    name, passes, peer = row
    runs = {peer: (*PLAIN[peer], ROOT, None)} if peer in PLAIN else {}
    for column in columns:
        runs[column] = *COLUMNS[column], ROOT, None
        if peer == OTHER:
            runs[f"{column}, {peer}"] = *COLUMNS[column], arguments.beside.resolve(), None
        elif peer and peer not in PLAIN:
            runs[f"{column}, {peer}"] = *COLUMNS[column], ROOT, peer

    def ask(framework, mode, folder, peer):
        new = Worker(framework, folder, figure, arguments.limit)
        return workers.setdefault((framework, folder), new).ask(name, mode, passes, peer)

    return {label: functools.partial(ask, *run) for label, run in runs.items()}


def cell(medians, column, peer, scale):
    """Our figure, and its ratio to that of the peer."""
    if column not in medians:
        return ""
    base = medians.get(peer, medians.get(f"{column}, {peer}"))
    ratio = f" ({medians[column] / base:.3g})" if base else ""
    return f"{scale * medians[column]:.3g}{ratio}"


if __name__ == "__main__":
    work(sys.argv[2])
