"""Writes what a run measured, and how, as a record of `docs/results/records`."""

import argparse
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
    parser.add_argument("--record", metavar="FILE", type=record_file, help=text)


def record_file(text):
    path = pathlib.Path(text)
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"the folder {path.parent} does not exist")
    return path


def write_record(path, figures=None, tables=None, seeds=()):
    """Writes a record, or nothing if `path` is None. The headlines of an earlier record stay.

    In `figures`, {"test": {"f1": 69.15}} becomes the figure "test, f1". `tables` are lists of rows,
    the header first, by their names; numbers may be strings, to keep their digits.
    """
    if path is None:
        return
    old = tomllib.loads(path.read_text("utf-8")) if path.exists() else {}
    facts, versions = provenance()
    facts |= {"seeds": list(seeds)} if seeds else {}
    lines = [f"{name} = {toml(x)}" for name, x in facts.items()]
    figures, headlines = dict(flat(figures or {})), old.get("headlines", {})
    parts = {"versions": versions, "figures": figures, "headlines": headlines}
    for part, content in parts.items():
        rows = [f"{toml(name)} = {toml(x)}" for name, x in content.items()]
        lines += ["", f"[{part}]", *rows] if rows else []
    lines += ["", "[tables]"] if tables else []
    for name, rows in (tables or {}).items():
        cells = [", ".join(map(toml_cell, row)) for row in rows]
        lines += [f"{toml(name)} = [", *(f"    [{x}]," for x in cells), "]"]
    temporary = path.with_name(f"tmp-{path.name}")
    temporary.write_text("\n".join(lines) + "\n", "utf-8")
    temporary.replace(path)


def provenance():
    """The command, the commit, the date, the machine and the minutes so far; and the versions."""
    git = ["git", "-C", pathlib.Path(__file__).parent, "describe", "--always", "--dirty"]
    done = subprocess.run([*git, "--exclude=*"], capture_output=True, text=True, check=False)
    backend, info = os.environ.get("KERAS_BACKEND"), pathlib.Path("/proc/cpuinfo")
    cpu = re.search(r"model name\s*: (.*)", info.read_text() if info.exists() else "")
    machine = f"{cpu[1] if cpu else platform.processor()}, {os.cpu_count()} cores"
    if hasattr(os, "sysconf"):
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        machine += f", {memory / 2**30:.0f} GiB"
    command = shlex.join(["python", *sys.orig_argv[1:]])
    facts = {"command": f"KERAS_BACKEND={backend} {command}" if backend else command}
    facts |= {"commit": done.stdout.strip() or "unknown", "date": datetime.date.today()}
    facts |= {"machine": machine, "minutes": round((time.time() - START) / 60, 1)}
    installed = {x.metadata["Name"].lower(): x.version for x in importlib.metadata.distributions()}
    versions = {name: installed[name] for name in PACKAGES if name in installed}
    return facts, {"python": platform.python_version(), **versions}


def flat(figures):
    """The names and values of figures, without lists, None and what the record has anyway."""
    for name, x in figures.items():
        if isinstance(x, dict):
            yield from ((f"{name}, {inner}", y) for inner, y in flat(x))
        elif not isinstance(x, list | None) and name not in ("command", *PACKAGES):
            yield str(name), x


def toml_cell(x):
    """A cell of a table, where a string that is a plain number keeps its digits."""
    return x if isinstance(x, str) and NUMBER.fullmatch(x) else toml(x)


def toml(x):
    if isinstance(x, datetime.date):
        return str(x)
    if not isinstance(x, str | int | list):
        x = float(f"{x:.6g}")
    # Strings, numbers and lists of JSON are those of TOML, but for NaN.
    return json.dumps(x, ensure_ascii=False, allow_nan=False)
