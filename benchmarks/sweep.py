"""Every layer and both searches beside the same computation in plain PyTorch, in one run.

    pip install torch
    python benchmarks/sweep.py [--only NAME ...] [--columns NAME ...] [--beside FOLDER]
        [--output FILE.json]

Prints for each case the median time of PyTorch, and our times as ratios to it: in a TensorFlow
graph, on TensorFlow with XLA, on JAX, and on PyTorch as the backend of Keras; if asked for, also
on PyTorch with torch.compile, beside PyTorch without it. Layers run forward
and backward, with gradients for all weights and inputs; a search runs all its steps, since no
hypothesis ends early. Each framework runs in a process of its own, and they take turns, so that
noise falls on all of them alike. "translator" is a whole step of training. Sizes: `SIZES`,
`DECODERS`, `SEARCH` and `TRANSLATOR`. With `--beside`, the ratios are to the package in another
checkout of this repository, each column to the same column there, in place of PyTorch.
"""

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MATCHING = {"batch": 32, "steps": 128, "units": 256}
SIZES = {
    "additive, one step": {"batch": 64, "steps": 50, "units": 512},
    "additive": {"batch": 16, "steps": 128, "units": 256},
    "dot": MATCHING,
    "general": MATCHING,
    "general, attentional vector": MATCHING,
    "general, sparsemax": MATCHING,
    "local-m": {**MATCHING, "half_width": 10},
    "local-p": {**MATCHING, "half_width": 10},
    "BiDAF": {"batch": 8, "context": 400, "query": 30, "units": 100},
    "pooling": {"batch": 64, "steps": 200, "units": 200},
    "bag": {"batch": 4, "steps": 50_000, "features": 512, "units": 256},
    "hierarchical": {"batch": 16, "sentences": 20, "words": 25, "units": 100},
    "memory hop": {"batch": 64, "steps": 50, "units": 128},
}
# The encoders are torch.nn.GRU on both sides, instead of Keras's GRU on ours.
SIZES["hierarchical, torch.nn.GRU"] = SIZES["hierarchical"]
PYTORCH_ONLY = ("hierarchical, torch.nn.GRU",)
DECODERS = {
    f"{layers if layers > 1 else ''}{cell}, {attention or 'no attention'}, {steps} steps": {
        **{"cell": cell, "layers": layers, "attention": attention},
        **{"batch": 32, "steps": steps, "units": 512},
    }
    for cell, layers in (("GRU", 1), ("LSTM", 1), ("LSTM", 2))
    for attention in (None, "Bahdanau", "Luong", "Luong, fed")
    for steps in (20, 50)
}
SEARCH = {"batch": 64, "steps": 20, "units": 256, "words": 8000, "longest": 30, "beams": 5}
TRANSLATOR = {"batch": 32, "steps": 50, "units": 512, "words": 8000}
PAUSE = 0.05  # seconds
PLAIN = "plain PyTorch"
SEARCHES = ("greedy search", "beam search")
COLUMNS = {
    "TF graph": ("tensorflow", "graph"),
    "TF-XLA": ("tensorflow", "XLA"),
    "JAX": ("jax", "XLA"),
    "on PyTorch": ("torch", "eager"),
    "torch.compile": ("torch", "compiled"),
}
USUAL = [name for name in COLUMNS if name != "torch.compile"]  # which compiles for minutes


class Worker:
    """A process of one framework, which times a case whenever it is asked."""

    def __init__(self, framework, folder=ROOT):
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(folder)}
        if framework != PLAIN:
            environment["KERAS_BACKEND"] = framework
        self.process = subprocess.Popen(
            [sys.executable, folder / "benchmarks" / "sweep.py", "--worker", framework],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            env=environment,
        )

    def seconds(self, case, mode):
        self.process.stdin.write(json.dumps([case, mode]) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"The process that times {case} ({mode}) ended; see its error above.")
        return json.loads(answer)

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


def work(framework):
    """Answers each case on standard input with the seconds that one run of it takes."""
    answers, sys.stdout = sys.stdout, sys.stderr
    name, step = None, None
    for line in sys.stdin:
        case, mode = json.loads(line)
        if (case, mode) != name:
            name = case, mode
            step = _kept(framework, case, mode)
        # The threads of the framework before may still wait for work, and take a core.
        time.sleep(PAUSE)
        if case not in SEARCHES:
            step()  # its own threads wake up, and the caches hold its data, as in a training loop
        start = time.perf_counter()
        step()
        print(time.perf_counter() - start, file=answers, flush=True)


_steps = {}


def _kept(framework, case, mode):
    if not any(of_case == case for of_case, _ in _steps):
        _steps.clear()
    if (case, mode) not in _steps:
        if framework == PLAIN:
            from torch_forms import make_step

            step = make_step(case, backward=True)
        else:
            from forms import make_step, translator

            if case == "translator":
                step = translator(mode, **TRANSLATOR)
            elif case in DECODERS:
                step = make_step("recurrence", None, mode, True, **DECODERS[case])
            else:
                sizes = SEARCH if case in SEARCHES else SIZES[case]
                step = make_step("sweep", case, mode, case not in SEARCHES, **sizes)
        for _ in range(3):
            step()
        _steps[case, mode] = step
    return _steps[case, mode]


def measure(workers, runs, case, repeats):
    """Return the median seconds of each run, all of them in turn."""
    times = {name: [] for name in runs}
    for n in range(repeats + 1):
        for name, (worker, mode) in runs.items():
            seconds = workers[worker].seconds(case, mode)
            if n:  # the first call compiles
                times[name].append(seconds)
    return {name: statistics.median(seconds) for name, seconds in times.items()}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [*SIZES, *SEARCHES, "translator", *DECODERS]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--columns", nargs="+", choices=COLUMNS, default=USUAL)
    parser.add_argument("--repeats", type=int, default=25, help="runs of each (searches: a third)")
    parser.add_argument("--beside", type=Path, metavar="FOLDER", help="another checkout")
    parser.add_argument("--output", type=Path, help="a JSON file of all medians")
    parser.add_argument("--record", type=Path, help="a record of the table, in TOML")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        return work(arguments.worker)
    if importlib.util.find_spec("torch") is None and not arguments.beside:
        raise SystemExit("The sweep compares with PyTorch, which is missing: pip install torch")
    from measure import print_table, write_json, write_record

    columns, beside = {name: COLUMNS[name] for name in arguments.columns}, arguments.beside
    frameworks = dict.fromkeys(framework for framework, _ in columns.values())
    workers = {framework: Worker(framework) for framework in frameworks}
    if beside:
        workers |= {("beside", x): Worker(x, beside.resolve()) for x in frameworks}
    else:
        workers[PLAIN] = Worker(PLAIN)
    results, rows = {}, []
    for case in arguments.only:
        slow = case not in SIZES
        repeats = arguments.repeats // 3 if slow else arguments.repeats
        wanted = {n: c for n, c in columns.items() if c[0] == "torch" or case not in PYTORCH_ONLY}
        runs = {} if beside else {"PyTorch": (PLAIN, None)}
        for name, (framework, mode) in wanted.items():
            runs[name] = framework, mode
            if beside:
                runs[f"{name}, beside"] = ("beside", framework), mode
        medians = results[case] = measure(workers, runs, case, max(1, repeats))
        bases = {name: f"{name}, beside" if beside else "PyTorch" for name in wanted}
        ratios = [medians[x] / medians[bases[x]] if x in wanted else "" for x in columns]
        rows.append([case, *([] if beside else [1e3 * medians["PyTorch"]]), *ratios])
        print(*(x if isinstance(x, str) else f"{x:.3g}" for x in rows[-1]), file=sys.stderr)
        if arguments.output:
            write_json(arguments.output, {"seconds": results})
    for worker in workers.values():
        worker.close()
    if beside:
        table = print_table(["case", *(f"{name} / beside" for name in columns)], rows)
    else:
        names = "PyTorch, ms", *(f"{name} / PyTorch" for name in columns)
        table = print_table(["case", *names], rows)
    write_record(arguments.record, tables={"table": table})
    return None


if __name__ == "__main__":
    main()
