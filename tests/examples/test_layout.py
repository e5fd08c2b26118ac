"""The layout of the tasks: who imports whom, and what stays small."""

import ast
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
FOLDERS = sorted(path.parent for path in (ROOT / "examples").glob("*/__init__.py"))
# The scripts of `distribution` are commands of their own.
TASKS = [folder.name for folder in FOLDERS if folder.name not in ("common", "distribution")]
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts): path
    for folder in FOLDERS
    for path in sorted(folder.rglob("*.py"))
}


def imports_of(path):
    """The modules that a module imports, in functions too, and the names that it takes from them.

    `from a import b` gives "a.b", because b may be a module.
    """
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_the_tasks_are_found():
    assert {"translation", "question_answering", "documents", "stories"} <= set(TASKS)
    assert all((ROOT / "examples" / task / "__main__.py").exists() for task in TASKS)


@pytest.mark.parametrize("name", MODULES)
def test_a_module_imports_its_task_and_common_alone_and_says_what_it_holds(name):
    imported = [x.split(".") for x in imports_of(MODULES[name])]
    assert {x[1] for x in imported if x[0] == "examples"} <= {name.split(".")[1], "common"}
    text = MODULES[name].read_text(encoding="utf-8")
    assert "sys.path" not in text
    assert ast.get_docstring(ast.parse(text))
    # A command shows its recipe: build, compile, fit, evaluate, write.
    assert len(text.splitlines()) <= 155 or not name.endswith("__main__")


def test_what_the_tasks_share_stays_small():
    shared = [name for name in MODULES if name.startswith("examples.common.")]
    assert len(shared) <= 9, shared  # with __init__


@pytest.mark.slow
def test_tensorflow_is_imported_silently():
    code = "import examples, tensorflow; tensorflow.config.list_physical_devices()"
    variables = {name: x for name, x in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    run = subprocess.run(
        [sys.executable, "-c", code], env=variables, stderr=subprocess.PIPE, check=True
    )
    assert run.stderr == b""
