"""Measures time and memory of the layers beside their alternatives, in one run.

    python benchmarks/speed.py --output FOLDER [--only GROUP ...] [--picture] [--check]

Prints a table and writes speed.json and speed.png. The picture shows the ratios, and how time
grows with the length of the memory. The groups:

    additive   `additive_score`, also with nothing compiled, and sum(v * tanh(q + k), -1)
    layers     BahdanauAttention and Keras's AdditiveAttention; LuongAttention and Keras's Attention
    windows    local-p and local-m with a half width of 10, and global attention of the same score
    decoder    AttentionRNN, and a cell that projects the keys at every step
    flow       BiDAFAttentionFlow, and the same layer with a concatenated similarity
    long       additive self-attention over 16,384 steps; other forms run out of memory
    lengths    all lengths from 1 to 128 in turn, to count the compilations

Times are medians of alternating runs, in one process per backend; `first` is the first call, which
compiles everything. Memory covers forward and backward. On TensorFlow it is the rise of resident
memory in a process of its own (`measure.py`), on JAX the compiler's own figure. The command takes
about 25 minutes on two cores; with `--picture`, which measures the times of the picture alone,
about five. An interrupted run resumes with the same command.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

from measure import (
    add_record,
    interleaved_times,
    peak_memory,
    print_table,
    write_json,
    write_record,
)

BOTH = ("tensorflow", "jax")
MODES = {"tensorflow": ("eager", "graph", "XLA"), "jax": ("XLA",)}
SIZES = {
    "B16 T128 U256": {"batch": 16, "steps": 128, "units": 256},
    "B2 T512 U256": {"batch": 2, "steps": 512, "units": 256},
    "B32 T50 U512": {"batch": 32, "steps": 50, "units": 512},
}
LENGTHS = (1024, 4096, 16384)
# The sizes whose memory is measured. Every number needs a process.
MEMORY = (
    *("B2 T512 U256", "T16384 U64 general", "B32 T100 U512", "B8 T400 J30 d100", "B1 T16384 U64"),
)
# The largest allowed ratios to the alternative, which is the last variant. Each entry holds
# (group, backend, mode, backward, size), where None stands for all of them, and the variant.
TARGETS = [
    (("additive", "tensorflow", "XLA", False, "B16 T128 U256"), "ours", "time", 0.2),
    (("additive", "tensorflow", "XLA", True, "B16 T128 U256"), "ours", "time", 0.12),
    (("additive", "jax", "XLA", False, "B16 T128 U256"), "ours", "time", 0.05),
    (("additive", "jax", "XLA", True, "B16 T128 U256"), "ours", "time", 0.08),
    (("additive", "tensorflow", "graph", True, "B16 T128 U256"), "ours", "time", 0.2),
    (
        ("additive", "tensorflow", "graph", True, "B16 T128 U256"),
        "ours, nothing compiled",
        "time",
        0.55,
    ),
    (("layers", None, None, True, "B2 T512 U256"), "BahdanauAttention", "memory", 0.05),
    (("windows", None, None, True, "T4096 U64 general"), "local-p", "time", 0.15),
    (("windows", None, None, True, "T4096 U64 concat"), "local-p", "time", 0.15),
    (("decoder", None, None, True, None), "ours", "time", 0.6),
    (("decoder", None, None, True, None), "ours", "memory", 0.4),
]
# What the bars of the picture show: group, size and variant, and their name.
BARS = {
    ("additive", "B16 T128 U256", "ours"): "additive score\n/ sum(v * tanh(q + k))",
    ("layers", "B2 T512 U256", "BahdanauAttention"): "BahdanauAttention\n/ keras AdditiveAttention",
    ("layers", "B2 T512 U256", "LuongAttention, dot"): "LuongAttention, dot\n/ keras Attention",
    ("windows", "T4096 U64 concat", "local-p"): "LuongAttention, local-p\n/ the same, global",
    ("decoder", "B32 T100 U512", "ours"): "AttentionRNN\n/ a cell that projects the keys",
    ("flow", "B8 T400 J30 d100", "ours"): "BiDAFAttentionFlow\n/ concatenated similarity",
}
STEEPEST, MOST_MEMORY, MOST_COMPILED, SLOWEST = 1.15, 5 * 1024, 4, 3.0


def make_rows():
    """What to measure: variants that take turns, the last the alternative if there are several."""
    found = []

    def add(group, case, size, variants, backend, modes, sizes, passes=(False, True)):
        for mode in modes:
            for backward in passes:
                found.append(
                    {
                        **{"group": group, "case": case, "size": size, "variants": variants},
                        **{"backend": backend, "mode": mode, "backward": backward},
                        **{"sizes": sizes},
                    }
                )

    for name, sizes in SIZES.items():
        ours = {"tensorflow": ["ours", "ours, nothing compiled"], "jax": ["ours"]}
        for backend in BOTH:
            add(
                "additive",
                "additive",
                name,
                [*ours[backend], "plain"],
                backend,
                MODES[backend],
                sizes,
            )
            for pair in (
                ["BahdanauAttention", "keras AdditiveAttention"],
                ["LuongAttention, dot", "keras Attention"],
            ):
                add("layers", "layer", name, pair, backend, MODES[backend][-2:], sizes)
    for score in ("general", "concat"):
        for length in LENGTHS:
            sizes = {"batch": 1, "steps": length, "units": 64, "score": score}
            # All scores of the longest take a gigabyte, and copies of them more than there is.
            variants = ["local-m", "local-p", *(["global"] if length <= 4096 else [])]
            for backend in BOTH:
                name = f"T{length} U64 {score}"
                add("windows", "windows", name, variants, backend, MODES[backend][-2:], sizes)
    modes = ("graph", "XLA")
    sizes = {"batch": 32, "steps": 100, "units": 512}
    variants = ["ours", "projecting cell"]
    add("decoder", "decoder", "B32 T100 U512", variants, "tensorflow", modes, sizes)
    sizes = {"batch": 8, "context": 400, "query": 30, "units": 100}
    add("flow", "flow", "B8 T400 J30 d100", ["ours", "theirs"], "tensorflow", modes, sizes)
    sizes = {"batch": 1, "steps": 16384, "units": 64}
    add("long", "self_attention", "B1 T16384 U64", ["ours"], "tensorflow", modes, sizes, (True,))
    add("long", "self_attention", "B1 T16384 U64", ["ours"], "jax", ("XLA",), sizes, (True,))
    sizes = {"batch": 16, "units": 256, "longest": 128}
    add("lengths", "lengths", "B16 U256", ["ours"], "tensorflow", ("graph",), sizes, (True,))
    return found


def key_of(row):
    names = ("backend", "case", "size", "mode", "backward", "variants")
    return json.dumps([row[name] for name in names])


def measure_times(row):
    """In a process of the backend: for each variant milliseconds, and what else is known."""
    import forms

    if row["case"] == "lengths":
        return {"ours": forms.lengths(**row["sizes"])}
    steps, found = {}, {}
    for variant in row["variants"]:
        start = time.perf_counter()
        step = forms.make_step(row["case"], variant, row["mode"], row["backward"], **row["sizes"])
        step()
        found[variant] = {"first": time.perf_counter() - start}
        if hasattr(step, "memory") and row["backward"]:
            found[variant]["memory"] = step.memory
        start = time.perf_counter()
        step()
        took = time.perf_counter() - start
        steps[variant] = step
    # About five seconds for a row.
    repeats = max(3, min(15, int(5 / len(steps) / max(took, 1e-3))))
    for variant, seconds in interleaved_times(steps, repeats, warm_ups=min(3, repeats)).items():
        found[variant]["time"] = 1e3 * seconds
    return found


def measure_memory(row, found):
    """On TensorFlow, in a process for each variant."""
    if not row["backward"] or row["mode"] == "eager" or row["size"] not in MEMORY:
        return
    for variant in row["variants"]:
        names = {name: row[name] for name in ("case", "mode", "backward")}
        found[variant]["memory"] = peak_memory(
            "forms:make_step", runs=1, variant=variant, **names, **row["sizes"]
        )


def ratios(row, found):
    """Divides time and memory of every variant by those of the last variant."""
    *ours, other = row["variants"]
    if other.startswith("local"):  # the longest texts have no alternative
        return {}
    return {
        variant: {
            what: found[variant][what] / found[other][what]
            for what in ("time", "memory")
            if what in found[variant] and found[other].get(what)
        }
        for variant in ours
    }


def slopes(rows, found):
    """The exponent of the time over the length: a line through the logarithms."""
    times = {}
    for row in rows:
        if row["group"] == "windows" and row["backward"]:
            for variant, x in found[key_of(row)].items():
                name = (row["backend"], row["mode"], row["sizes"]["score"], variant)
                times.setdefault(name, []).append((row["sizes"]["steps"], x["time"]))
    slopes = {}
    for name, points in times.items():
        if len(points) > 1:
            x, y = ([math.log(value) for value in of_one] for of_one in zip(*points, strict=True))
            mean = sum(x) / len(x), sum(y) / len(y)
            product = sum((a - mean[0]) * (b - mean[1]) for a, b in zip(x, y, strict=True))
            slopes[name] = product / sum((a - mean[0]) ** 2 for a in x)
    return slopes


def missed(rows, found):
    """What is not as it should be: sentences."""
    said = []
    for row in rows:
        place = [row[name] for name in ("group", "backend", "mode", "backward", "size")]
        shares = ratios(row, found[key_of(row)])
        for where, variant, what, limit in TARGETS:
            fits = all(a is None or a == b for a, b in zip(where, place, strict=True))
            if not fits or variant not in row["variants"]:
                continue
            if what not in found[key_of(row)][variant]:  # memory, with `--picture`
                continue
            share = shares.get(variant, {}).get(what, math.inf)
            if share > limit:
                said.append(f"{what} of {label(row)}, {variant}: {share:.3g} instead of {limit}")
        ours = found[key_of(row)].get("ours", {})
        if row["group"] == "long" and ours.get("memory", 0) > MOST_MEMORY:
            said.append(f"memory of {label(row)}: {ours['memory']:.0f} MiB")
        if row["group"] == "lengths":
            if ours["compiled"] > MOST_COMPILED:
                said.append(f"{label(row)}: {ours['compiled']} compilations")
            if ours["slowest"] > SLOWEST:
                said.append(f"{label(row)}: a compilation of {ours['slowest']:.1f} s")
    for (backend, mode, score, variant), slope in slopes(rows, found).items():
        if variant == "local-p" and slope > STEEPEST:
            said.append(f"{backend} {mode}, local-p, {score}: time grows as T^{slope:.2f}")
    return said


def label(row):
    passes = "forward and backward" if row["backward"] else "forward"
    return f"{row['group']} {row['size']}, {row['backend']} {row['mode']}, {passes}"


def report(rows, found, record):
    lines = []
    for row in rows:
        of_row = found[key_of(row)]
        if row["case"] == "lengths":
            continue
        shares = ratios(row, of_row)
        for variant in row["variants"]:
            numbers = [of_row[variant].get(what, "") for what in ("time", "memory", "first")]
            share = [shares.get(variant, {}).get(what, "") for what in ("time", "memory")]
            passes = "both" if row["backward"] else "forward"
            place = row["group"], row["size"], f"{row['backend']} {row['mode']}", passes
            lines.append((*place, variant, *numbers, *share))
    header = ("group", "size", "where", "passes", "variant", "ms", "MiB", "first s")
    table = print_table((*header, "of the time", "of the memory"), lines)
    write_record(record, tables={"times": table})
    for name, slope in slopes(rows, found).items():
        print(f"time of {' '.join(name)} grows as T^{slope:.2f}")
    for row in rows:
        if row["case"] == "lengths":
            x = found[key_of(row)]["ours"]
            print(
                f"lengths 1 to {row['sizes']['longest']}: {x['compiled']} compilations, the "
                f"slowest {x['slowest']:.2f} s, all calls {x['total']:.1f} s"
            )


def is_drawn(row):
    """Whether the picture shows a row: as a bar, or in the lines of all lengths."""
    bar = any((row["group"], row["size"], x) in BARS for x in row["variants"])
    line = row["group"] == "windows" and (row["backend"], row["mode"]) == ("tensorflow", "graph")
    return row["backward"] and row["mode"] != "eager" and (bar or line)


def draw(rows, found, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    bars, lines = {}, {}
    for row in filter(is_drawn, rows):
        place = f"{'JAX' if row['backend'] == 'jax' else 'TensorFlow'}, {row['mode']}"
        of_row = found[key_of(row)]
        for variant, share in ratios(row, of_row).items():
            name = BARS.get((row["group"], row["size"], variant))
            if name:
                bars.setdefault(f"{name}\n{row['size']}", {})[place] = share["time"]
        if row["group"] == "windows" and place == "TensorFlow, graph":
            for variant, x in of_row.items():
                name = variant, row["sizes"]["score"]
                lines.setdefault(name, []).append((row["sizes"]["steps"], x["time"]))
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(11, 5.5), width_ratios=(3, 2), layout="constrained"
    )
    for n, place in enumerate(("TensorFlow, graph", "TensorFlow, XLA", "JAX, XLA")):
        where = [(m, x[place]) for m, x in enumerate(bars.values()) if place in x]
        y = [m + 0.27 * (n - 1) for m, _ in where]
        drawn = left.barh(y, [x for _, x in where], 0.25, label=place)
        left.bar_label(drawn, [f" {x:.2f}" for _, x in where], fontsize=9)
    left.set(xlabel="time, forward and backward, as a share of the alternative's")
    left.set_yticks(range(len(bars)), bars, fontsize=9)
    left.axvline(1, color="black", linewidth=0.8)
    left.margins(x=0.1, y=0.01)
    left.invert_yaxis()
    left.legend(loc="lower right", fontsize=9)
    colors = {"local-m": "tab:green", "local-p": "tab:blue", "global": "tab:red"}
    for (variant, score), points in lines.items():
        style = {"marker": "o", "color": colors[variant]}
        line = "-" if score == "general" else "--"
        right.plot(*zip(*points, strict=True), line, label=f"{variant}, {score}", **style)
    right.set(xscale="log", yscale="log", xlabel="steps T", ylabel="ms, forward and backward")
    right.set_xticks(LENGTHS, [f"{n:,}" for n in LENGTHS])
    right.minorticks_off()
    right.grid(alpha=0.3)
    right.set_title("local and global attention, U 64, TensorFlow, graph", fontsize=10)
    if lines:
        right.legend(fontsize=9)
    temporary = path.with_name(f".{path.name}")
    figure.savefig(temporary, dpi=130, format="png")
    temporary.replace(path)


def run_child(rows, backend):
    """Yields each row and its result, measured in one process of the backend."""
    environment = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    child = subprocess.Popen(
        [sys.executable, __file__, "--child", json.dumps(rows)],
        env={**environment, "JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS", "cpu")},
        stdout=subprocess.PIPE,
        text=True,
    )
    with child:
        for row in rows:
            line = child.stdout.readline()
            if not line:
                raise RuntimeError(f"The process that measures {label(row)} has ended.")
            yield row, json.loads(line)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", metavar="FOLDER", help="where speed.json and speed.png go")
    parser.add_argument("--only", nargs="*", metavar="GROUP", help="measure these groups")
    parser.add_argument("--picture", action="store_true", help="measure what the picture shows")
    parser.add_argument("--check", action="store_true", help="fail where a target is missed")
    add_record(parser)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        # What libraries print must not get between the lines that are read.
        lines, sys.stdout = sys.stdout, sys.stderr
        for row in json.loads(options.child):
            print(json.dumps(measure_times(row)), file=lines, flush=True)
        return 0
    if not options.output:
        parser.error("--output FOLDER is needed")
    rows = make_rows()
    groups = list(dict.fromkeys(row["group"] for row in rows))
    unknown = set(options.only or ()) - set(groups)
    if unknown:
        parser.error(f"--only knows {', '.join(groups)}; received {', '.join(sorted(unknown))}")
    rows = [row for row in rows if not options.only or row["group"] in options.only]
    rows = [row for row in rows if not options.picture or is_drawn(row)]

    folder = Path(options.output)
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / "speed.partial.json"
    found = json.loads(partial.read_text())["found"] if partial.exists() else {}
    for backend in BOTH:
        left = [x for x in rows if x["backend"] == backend and key_of(x) not in found]
        for row, result in run_child(left, backend) if left else ():
            if backend == "tensorflow" and not options.picture:
                measure_memory(row, result)
            found[key_of(row)] = result
            write_json(partial, {"found": found})
            print(f"{len(found):3d} of {len(rows)}: {label(row)}", file=sys.stderr, flush=True)
    report(rows, found, options.record)
    wrong = missed(rows, found)
    results = [{**row, "found": found[key_of(row)]} for row in rows]
    growth = [{"of": name, "exponent": x} for name, x in slopes(rows, found).items()]
    write_json(folder / "speed.json", {"rows": results, "growth": growth, "missed": wrong})
    draw(rows, found, folder / "speed.png")
    partial.unlink(missing_ok=True)
    print("Missed: " + "; ".join(wrong) if wrong else "Nothing is missed.")
    return 1 if wrong and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
