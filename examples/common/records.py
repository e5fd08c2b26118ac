"""Writes what a run measured, and how, as a record of `docs/results/records`."""

import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import re
import shlex
import subprocess
import sys
import time
import tomllib

START = time.time()
PACKAGES = ("keras", "tensorflow", "jax", "torch")
NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?")


def add_record(parser):
    """Adds the option `--record`."""
    text = "also write the figures, and how they were measured, to this TOML file"
    parser.add_argument("--record", metavar="FILE", type=pathlib.Path, help=text)


def write_record(path, figures=None, tables=None, seeds=()):
    """Writes a record, or nothing if `path` is None. The headlines of an earlier record stay.

    Args:
        path: the file.
        figures: a dict from names to numbers, strings, and dicts of such, which become figures
            like "test, f1".
        tables: a dict from names to lists of rows, the header first. Numbers may be strings, to
            keep their digits.
        seeds: a list of the seeds.
    """
    if path is None:
        return
    old = tomllib.loads(path.read_text("utf-8")) if path.exists() else {}
    figures = flat(figures or {})
    record = {**provenance(), "seeds": list(seeds), "figures": figures, "tables": tables}
    temporary = path.with_name(f"tmp-{path.name}")
    temporary.write_text(to_toml({**record, "headlines": old.get("headlines")}), "utf-8")
    temporary.replace(path)


def provenance():
    """The command, the commit, the date, the machine, the versions and the minutes so far."""
    git = ["git", "-C", pathlib.Path(__file__).parent, "describe", "--always", "--dirty"]
    done = subprocess.run([*git, "--exclude=*"], capture_output=True, text=True, check=False)
    info, sizes = pathlib.Path("/proc/cpuinfo"), ("SC_PAGE_SIZE", "SC_PHYS_PAGES")
    model = re.search(r"model name\s*: (.*)", info.read_text() if info.exists() else "")
    cpu = model[1] if model else platform.processor()
    memory = [os.sysconf(name) for name in sizes] if info.exists() else [0, 0]
    backend = os.environ.get("KERAS_BACKEND")
    installed = {x.metadata["Name"].lower(): x.version for x in importlib.metadata.distributions()}
    return {
        "command": f"KERAS_BACKEND={backend} " * bool(backend)
        + shlex.join(["python", *sys.orig_argv[1:]]),
        "commit": done.stdout.strip(),
        "date": datetime.date.today(),
        "machine": f"{cpu}, {os.cpu_count()} cores, {memory[0] * memory[1] / 2**30:.0f} GiB",
        "minutes": round((time.time() - START) / 60, 1),
        "versions": {
            "python": platform.python_version(),
            **{name: installed[name] for name in PACKAGES if name in installed},
        },
    }


def flat(figures):
    """Figures without dicts, lists, and what the record has anyway."""
    found = {}
    for name, x in figures.items():
        if isinstance(x, dict):
            found |= {f"{name}, {inner}": y for inner, y in flat(x).items()}
        elif not isinstance(x, list | None) and name not in ("command", *PACKAGES):
            found[str(name)] = x
    return found


def to_toml(record):
    """The text of a record. Tables and figures keep the digits of numbers that are strings."""
    lines = [f"{name} = {value(x)}" for name, x in record.items() if x and not isinstance(x, dict)]
    for name, write in (("versions", value), ("figures", cell), ("headlines", value)):
        if record.get(name):
            lines += ["", f"[{name}]", *(f"{key(x)} = {write(y)}" for x, y in record[name].items())]
    lines += ["", "[tables]"] if record.get("tables") else []
    for name, rows in (record.get("tables") or {}).items():
        cells = ["    [" + ", ".join(map(cell, row)) + "],\n" for row in rows]
        lines.append(f"{key(name)} = [\n{''.join(cells)}]")
    return "\n".join(lines) + "\n"


def key(name):
    return name if re.fullmatch(r"[\w-]+", name, re.ASCII) else value(name)


def cell(x):
    return x if isinstance(x, str) and NUMBER.fullmatch(x) else value(x)


def value(x):
    if isinstance(x, datetime.date):
        return str(x)
    if isinstance(x, str) and "\n" in x:
        return f"'''\n{x}'''"
    if isinstance(x, list):
        return "[" + ", ".join(map(value, x)) + "]"
    if not isinstance(x, str | int):
        x = float(f"{x:.6g}")
    # Strings and numbers of JSON are those of TOML, but for NaN.
    return json.dumps(x, ensure_ascii=False, allow_nan=False)
