"""The layout of the tasks: who imports whom, and what stays small."""

import ast

import pytest

from tests import ROOT, imports_of

FOLDERS = sorted(path.parent for path in (ROOT / "examples").glob("*/__init__.py"))
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts): path
    for folder in FOLDERS
    for path in sorted(folder.rglob("*.py"))
}


@pytest.mark.parametrize("name", MODULES)
def test_a_module_imports_its_task_and_common_alone_and_says_what_it_holds(name):
    imported = [f"{module}.{taken}".split(".") for module, taken in imports_of(MODULES[name])]
    assert {x[1] for x in imported if x[0] == "examples"} <= {name.split(".")[1], "common"}
    text = MODULES[name].read_text(encoding="utf-8")
    assert "sys.path" not in text
    assert ast.get_docstring(ast.parse(text))
