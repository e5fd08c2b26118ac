"""Changes the package in one place at a time, and counts the changes that no test notices.

    pip install -e ".[mutants]" torch
    python -m tests.mutants FOLDER

A sample of the changes of cosmic-ray ("mutants") is tried in a copy of this repository in FOLDER.
Each meets the tests that run its line, on PyTorch and then on TensorFlow, until one fails. The same
command resumes an interrupted run. At the end the changes that no test noticed are printed.
"""

import argparse
import collections
import itertools
import os
import random
import re
import resource
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

from tests import ROOT
from tests.matrix import FOLDERS

BESIDE = "tests/test_backend.py", "tests/test_checks.py", "tests/backend/test_context.py"
TESTS = {"torch": FOLDERS, "tensorflow": [*FOLDERS, *BESIDE]}
MEMORY = 12 * 2**30  # bytes
# One change of each kind. The others of a kind, such as `a ^ b` for `a * b`, fail at once.
KINDS = re.compile(
    r"core/(NumberReplacer|AddNot|ZeroIterationForLoop|RemoveDecorator|ExceptionReplacer"
    r"|Replace(True|False|And|Or|Break|Continue)With\w+|ReplaceUnaryOperator_Delete_\w+"
    r"|ReplaceBinaryOperator_(Mul_Div|Div_Mul|Add_Sub|Sub_Add|FloorDiv_Mul|Mod_Mul|Pow_Mul)"
    r"|ReplaceComparisonOperator_(Is_IsNot|IsNot_Is|Eq_NotEq|NotEq_Eq|Lt_LtE|LtE_Lt|Gt_GtE|GtE_Gt))"
)
CONFIG = """\
[cosmic-ray]
module-path = [
    "keras_attention/ops",
    "keras_attention/attention",
    "keras_attention/layers",
    "keras_attention/decoder",
    "keras_attention/search",
]
timeout = 900.0
excluded-modules = []
test-command = "{python} -m tests.mutants {folder} --most {most} --changed"
[cosmic-ray.distributor]
name = "local"
"""
# A changed file may have the size and the second of the old one, so no bytecode is kept.
ENVIRONMENT = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
ENVIRONMENT |= {"OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1"}


def measure(clone, folder):
    """Notes for every line which tests run it."""
    for backend, tests in TESTS.items():
        path = folder / f"{backend}.coverage"
        if path.exists():
            continue
        print(f"which tests run which line, on {backend}", flush=True)
        partial = path.with_suffix(".partial")
        options = ["--cov=keras_attention", "--cov-context=test", "--cov-report=", "-q"]
        command = [sys.executable, "-m", "pytest", *options, *tests]
        environment = {**ENVIRONMENT, "KERAS_BACKEND": backend, "COVERAGE_FILE": str(partial)}
        subprocess.run(command, cwd=clone, env=environment, check=True)
        partial.replace(path)


def choose(clone, session, config, count, seed):
    """Writes a random sample of the mutants into a session of cosmic-ray."""
    partial = session.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    subprocess.run(["cosmic-ray", "init", config, partial], cwd=clone, check=True)
    with sqlite3.connect(partial) as database:
        rows = database.execute(
            "select job_id, operator_name from mutation_specs order by "
            "module_path, operator_name, occurrence, operator_args"
        )
        known = [job for job, kind in rows if KINDS.fullmatch(kind)]
        chosen = set(random.Random(seed).sample(known, min(count, len(known))))
        jobs = database.execute("select job_id from work_items")
        unwanted = [job for job in jobs if job[0] not in chosen]
        for table in ("work_items", "mutation_specs"):
            database.executemany(f"delete from {table} where job_id = ?", unwanted)
    partial.replace(session)


def tests_of(line, name, path):
    """The tests that run a line. If it runs at import, those that run any line of its file."""
    from coverage import CoverageData  # only of the extra "mutants"

    data = CoverageData(path)
    data.read()
    names = [x for x in data.measured_files() if x.endswith("/" + name)]
    lines = data.contexts_by_lineno(names[0]) if names else {}
    for contexts in (lines.get(line, []), itertools.chain(*lines.values())):
        if tests := {context.split("|")[0] for context in contexts if context}:
            return sorted(tests)
    return []


def try_change(folder, most):
    """Runs the tests of the line that is changed in this folder. Exits with 1 if one fails."""
    # A changed size may ask for all memory.
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    command = ["git", "diff", "-U0", "keras_attention"]
    diff = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    name = re.search(r"^\+\+\+ b/(.*)$", diff, re.MULTILINE)[1]
    line = int(re.search(r"^@@ -(\d+)", diff, re.MULTILINE)[1])
    run = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider"]
    for backend in TESTS:
        environment = {**ENVIRONMENT, "KERAS_BACKEND": backend}
        tests = tests_of(line, name, folder / f"{backend}.coverage")
        tests = random.Random(0).sample(tests, min(most, len(tests)))
        given = Path(f"tests-{backend}.txt")
        given.write_text("\n".join(tests), encoding="utf-8")
        if not tests:
            continue
        status = subprocess.run([*run, f"@{given}"], env=environment, check=False).returncode
        if status == 4:  # no such test, or the package cannot be imported
            command = [sys.executable, "-c", "import keras_attention"]
            broken = subprocess.run(command, env=environment, check=False).returncode
            status = 1 if broken else 4
        if status not in (0, 4, 5):  # a test failed, or the process crashed
            sys.exit(1)
        print(f"{len(tests)} tests {'passed' if status == 0 else 'not found'} on {backend}")


def results(session):
    """How many mutants had each outcome, and the survivors as (place, change, tests)."""
    counts, survivors = collections.Counter(), []
    with sqlite3.connect(session) as database:
        rows = database.execute(
            "select s.module_path, s.start_pos_row, s.operator_name, r.test_outcome, r.diff, "
            "r.output from mutation_specs s left join work_results r on s.job_id = r.job_id"
        )
        for module, row, kind, outcome, diff, output in rows:
            counts[(outcome or "not tried").lower()] += 1
            if outcome and outcome.lower() == "survived":
                changed = [x for x in diff.splitlines() if re.match(r"[+-](?![+-])", x)]
                tests = re.findall(r"\d+ tests .* on \w+", output)
                survivors.append((f"{module}:{row} {kind}", changed, ", ".join(tests)))
    return counts, sorted(survivors)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="a folder outside of the repository")
    parser.add_argument("--count", type=int, default=300, help="mutants")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    parser.add_argument("--most", type=int, default=100, help="tests of a mutant and backend")
    parser.add_argument("--changed", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    folder = options.folder.resolve()
    if options.changed:
        try_change(folder, options.most)
        return
    folder.mkdir(parents=True, exist_ok=True)
    config, clone, session = folder / "config.toml", folder / "clone", folder / "session.sqlite"
    text = CONFIG.format(python=sys.executable, folder=folder, most=options.most)
    config.write_text(text, encoding="utf-8")
    if not session.exists():
        shutil.rmtree(clone, ignore_errors=True)
        subprocess.run(["git", "clone", "-q", ROOT, clone], check=True)
        choose(clone, session, config, options.count, options.seed)
    # A killed run leaves a change behind.
    subprocess.run(["git", "checkout", "-q", "."], cwd=clone, check=True)
    measure(clone, folder)
    run = ["cosmic-ray", "exec", config, session]
    subprocess.run(run, cwd=clone, env=ENVIRONMENT, check=True)
    counts, survivors = results(session)
    for place, changed, tests in survivors:
        print(f"\n{place} ({tests or 'no test runs it'})", *changed, sep="\n")
    print(f"\n{dict(counts)} of {sum(counts.values())} mutants")


if __name__ == "__main__":
    main()
