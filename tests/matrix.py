"""Runs the tests on every backend and version of Keras, each in a fresh virtual environment.

    python -m tests.matrix

On TensorFlow these are the default tests, on JAX and PyTorch those in `TESTS`. At the end a
table shows how many tests passed, failed and were skipped; pytest says why. With
`--keras lowest` every dependency is installed at its lower bound. Only the tests of the package run
then, because the examples need newer versions. With `--keras newest` Keras is the nightly build of
today. With `--python 3.13` this version runs the tests, with the newest JAX and NumPy that it has.
With `--short` only `SHORT` runs, on the stable Keras; JAX on the newest Python that is installed.
"""

import argparse
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import xml.etree.ElementTree
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
# The versions that the tests run on.
KERAS = {"stable": "keras==3.15.1", "nightly": "keras-nightly==3.16.0.dev2026102704"}
TORCH = "torch==2.13.0"
# The tests that run on every backend.
FOLDERS = ["conformance", "backend", "attention", "layers", "decoder", "seq2seq", "ops"]
FOLDERS = [f"tests/{name}" for name in (*FOLDERS, "recurrence", "search", "text")]
# The tests of each backend, and a short version of some rows for CI.
TESTS = {"tensorflow": [], "jax": ["tests/jax", *FOLDERS], "torch": FOLDERS}
SHORT = {
    ("jax", "stable"): ["tests/jax", "tests/search/test_search.py"],
    ("torch", "stable"): ["tests/conformance", "tests/recurrence"],
}
# What the tests of each backend need.
EXTRAS = {"tensorflow": "dev", "jax": "test,jax", "torch": "test,torch"}


NEWEST_PYTHON = "3.13"
VERSIONS = """
import platform, sys
from importlib.metadata import version
print("Python", platform.python_version(), *(f", {x} {version(x)}" for x in sys.argv[1:]))
"""


def interpreter(version):
    """Returns the path of a version of Python, or None."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    # A shim of pyenv may lead to no interpreter.
    for path in (f"python{version}", *sorted(pyenv.glob(f"{version}.*/bin/python"))):
        if shutil.which(path) and not subprocess.run([path, "-V"], capture_output=True).returncode:
            return path


def lowest_versions():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    found = [*project["dependencies"], *(line for lines in extras for line in lines)]
    return [re.sub(r"\[.*\]", "", x).replace(">=", "==") for x in found if ">=" in x]


def install(folder, extras, keras, python):
    subprocess.run([python, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    lines = lowest_versions() if keras == "lowest" else [KERAS["stable"], TORCH]
    path = folder / "constraints.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    pip = [python, "-m", "pip"]
    subprocess.run([*pip, "install", "-q", "-c", path, "-e", f"{ROOT}[{extras}]"], check=True)
    if keras in ("nightly", "newest"):
        # Both packages hold the same folder, so the stable one goes first.
        subprocess.run([*pip, "uninstall", "-q", "-y", "keras"], check=True)
        build = KERAS.get(keras, "keras-nightly")
        subprocess.run([*pip, "install", "-q", "--pre", "--no-deps", build], check=True)
    return python


def run(python, backend, folders, report):
    command = [python, "-m", "pytest", "-q", "-rs", *folders, f"--junitxml={report}"]
    environment = {**os.environ, "KERAS_BACKEND": backend}
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False)
    if done.returncode not in (0, 1):  # 1: some tests failed
        raise SystemExit(f"{backend}: pytest ended with status {done.returncode}")
    suite = xml.etree.ElementTree.parse(report).getroot().find("testsuite")
    names = "tests", "failures", "errors", "skipped"
    tests, failures, errors, skipped = (int(suite.get(x)) for x in names)
    failed = failures + errors
    return tests - failed - skipped, failed, skipped


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backends", nargs="+", choices=EXTRAS, default=list(EXTRAS))
    versions = [*KERAS, "lowest", "newest"]
    parser.add_argument("--keras", nargs="+", choices=versions, default=list(KERAS))
    parser.add_argument("--python", help="such as 3.13; by default the one that runs this")
    parser.add_argument("--short", action="store_true", help="a part of the tests, for CI")
    options = parser.parse_args()
    if options.short and (options.backends, options.keras) != (list(EXTRAS), list(KERAS)):
        parser.error("--short has rows of its own: leave out --backends and --keras")
    python = interpreter(options.python) if options.python else sys.executable
    if not python:
        parser.error(f"Python {options.python} is neither on the PATH nor in pyenv")
    newest = interpreter(NEWEST_PYTHON) if options.short and not options.python else None
    pairs = itertools.product(options.backends, options.keras)
    cells = {(b, k): FOLDERS if k == "lowest" else TESTS[b] for b, k in pairs}
    cells = SHORT if options.short else cells
    rows = []
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(1) as pool:
        # pip mostly waits, so the next environments are made while tests run.
        environments = {}
        for backend, keras in cells:
            few = options.short or keras == "lowest"
            extras = f"test,{backend}" if few else EXTRAS[backend]
            path = Path(folder) / f"{backend}_{keras}"
            base = newest or python if backend == "jax" else python
            environments[backend, keras] = pool.submit(install, path, extras, keras, base)
        for (backend, keras), folders in cells.items():
            own = environments[backend, keras].result()
            build = "keras-nightly" if keras in ("nightly", "newest") else "keras"
            names = build, "numpy", backend
            subprocess.run([own, "-c", VERSIONS, *names], check=True)
            start = time.perf_counter()
            counts = run(own, backend, folders, Path(folder) / "report.xml")
            shutil.rmtree(own.parents[1])
            rows.append((backend, keras, *counts, round(time.perf_counter() - start)))
    print("backend     keras     passed  failed  skipped  seconds")
    for backend, keras, *numbers in rows:
        print(f"{backend:<12}{keras:<9}", *(f"{n:>7}" for n in numbers))
    sys.exit(any(failed for _, _, _, failed, *_ in rows))


if __name__ == "__main__":
    main()
