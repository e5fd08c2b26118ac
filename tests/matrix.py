"""Runs the tests on every backend and version of Keras, each in a fresh virtual environment.

    python -m tests.matrix

prints a table with the number of tests that passed, failed and were skipped. On TensorFlow these
are the default tests, on JAX and PyTorch the tests in `FOLDERS`. `--short` runs one case of each
layer. With `--keras lowest` every dependency has the lowest version that pyproject.toml allows.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
import xml.etree.ElementTree
from pathlib import Path

ROOT = Path(__file__).parents[1]
# The versions of Keras that the tests run on.
KERAS = {"stable": "keras==3.15.1", "nightly": "keras-nightly==3.16.0.dev2026102704"}
# The tests that run on every backend.
FOLDERS = ["tests/conformance", "tests/layers", "tests/ops", "tests/search"]
# What the tests of each backend need.
EXTRAS = {"tensorflow": "dev", "jax": "test,jax", "torch": "test,torch"}


def lowest_versions():
    """The lowest version of every dependency, as constraints for pip."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    found = [*project["dependencies"], *(line for lines in extras for line in lines)]
    return [re.sub(r"\[.*\]", "", x).replace(">=", "==") for x in found if ">=" in x]


def install(folder, backend, keras):
    """Makes a virtual environment and returns its Python."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = Path(folder) / "bin" / "python"
    constraints = lowest_versions() if keras == "lowest" else []
    if keras == "stable":
        constraints = [KERAS["stable"]]
    path = Path(folder) / "constraints.txt"
    path.write_text("\n".join(constraints) + "\n", encoding="utf-8")
    pip = [python, "-m", "pip", "install", "-q", "-c", path]
    subprocess.run([*pip, "-e", f"{ROOT}[{EXTRAS[backend]}]"], check=True)
    if keras == "nightly":
        # TensorFlow brings the stable Keras, whose files those of the other package would mix with.
        subprocess.run([python, "-m", "pip", "uninstall", "-q", "-y", "keras"], check=True)
        subprocess.run([*pip, "--no-deps", KERAS["nightly"]], check=True)
    return python


def run(python, backend, options, report):
    """Runs the tests. Returns (passed, failed, skipped) and the number of tests of each reason."""
    folders = [] if backend == "tensorflow" and not options.short else FOLDERS
    chosen = ["-k", SHORT] if options.short else []
    subprocess.run(
        [python, "-m", "pytest", "-q", *folders, *chosen, f"--junitxml={report}"],
        cwd=ROOT,
        env={**os.environ, "KERAS_BACKEND": backend},
        check=False,
    )
    suite = xml.etree.ElementTree.parse(report).getroot().find("testsuite")
    total, *others = (int(suite.get(n)) for n in ("tests", "failures", "errors", "skipped"))
    reasons = {}
    for skipped in suite.iter("skipped"):
        reasons[skipped.get("message")] = reasons.get(skipped.get("message"), 0) + 1
    failed, errors, left_out = others
    return (total - sum(others), failed + errors, left_out), reasons


SHORT = "test_calls or oracle or paper or search"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backends", nargs="+", choices=EXTRAS, default=list(EXTRAS))
    parser.add_argument("--keras", nargs="+", choices=[*KERAS, "lowest"], default=list(KERAS))
    parser.add_argument("--short", action="store_true", help="fewer tests")
    options = parser.parse_args()
    rows, failures = [], 0
    for backend in options.backends:
        for keras in options.keras:
            start = time.perf_counter()
            with tempfile.TemporaryDirectory() as folder:
                python = install(f"{folder}/venv", backend, keras)
                counts, reasons = run(python, backend, options, f"{folder}/report.xml")
            failures += counts[1]
            seconds = time.perf_counter() - start
            rows.append((backend, keras, *counts, round(seconds)))
            for reason, count in sorted(reasons.items()):
                print(f"{backend}, {keras}: {count} skipped: {reason}")
    print("backend     keras    passed  failed  skipped  seconds")
    for backend, keras, *counts in rows:
        print(f"{backend:<12}{keras:<9}" + "  ".join(f"{n:>6}" for n in counts))
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
