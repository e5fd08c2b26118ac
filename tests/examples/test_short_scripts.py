"""The short example scripts: they can be copied as they are, and they do what they promise."""

import ast
import importlib
import os
import pathlib
import re
import runpy
import subprocess
import sys

import keras
import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parents[2]
SCRIPTS = sorted({x.stem for x in (ROOT / "examples").glob("*.py")} - {"__init__"})
ALLOWED = {"keras", "keras_attention", "matplotlib", "numpy", *sys.stdlib_module_names}
PARTS = ["Data", "Model", "Training", "Result", "Picture"]
# A cell of text, as sphinx-gallery reads it: a title, its underline, and a paragraph.
CELL = re.compile(r"^# %%\n# (.+)\n# (-+)\n((?:# .+\n)+)", re.MULTILINE)
every_script = pytest.mark.parametrize("name", SCRIPTS)


def source_of(name):
    return (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8")


def called_name(call):
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", None)


def calls_in(tree):
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def text_cells(name):
    """From the titles of the cells of text to their texts."""
    cells = CELL.findall(source_of(name))
    assert all(len(title) == len(underline) for title, underline, _ in cells)
    texts = {title: " ".join(x.removeprefix("# ") for x in y.splitlines()) for title, _, y in cells}
    assert len(texts) == len(cells) == source_of(name).count("# %%")
    return texts


def links_in(text):
    return re.findall(r":py:obj:`([^`]+)`", text)


@every_script
def test_a_script_is_short(name):
    assert len(source_of(name).splitlines()) <= 150


@every_script
def test_a_script_imports_only_what_a_notebook_has(name):
    imported = set()
    for node in ast.walk(ast.parse(source_of(name))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0
            imported.add(node.module)
        elif isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
    assert {module.split(".")[0] for module in imported} <= ALLOWED
    assert not [module for module in imported if module.startswith("keras.src")]


@every_script
def test_a_script_says_what_it_shows(name):
    docstring = ast.get_docstring(ast.parse(source_of(name)))
    title, underline, blank, *rest = docstring.splitlines()
    assert underline == "=" * len(title)
    assert title[0].isupper()
    assert not title.endswith(".")
    assert blank == ""
    shown, paper = " ".join(rest).split("  ")
    assert "Look at the picture" in shown
    assert paper.startswith("Paper: ")
    assert "https://" in paper


@every_script
def test_all_scripts_have_the_same_parts(name):
    """Who has read one script finds everything in the others."""
    assert [title for title in text_cells(name) if title in PARTS] == PARTS


@every_script
def test_a_text_explains_every_part(name):
    for title, text in text_cells(name).items():
        assert 1 <= len(re.findall(r"[.?](?= [A-Z:]|$)", text)) <= 4, title
        assert text.endswith(".")


@every_script
def test_a_script_links_all_that_it_uses(name):
    """Every name of ours has a link to its page, and every link is a public name."""
    source = source_of(name)
    used = {
        f"{node.module}.{alias.name}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and node.module.startswith("keras_attention")
        for alias in node.names
    }
    text = " ".join([ast.get_docstring(ast.parse(source)), *text_cells(name).values()])
    links = links_in(text)
    assert used <= set(links)
    for link in links:
        module, _, public = link.rpartition(".")
        assert public in importlib.import_module(module).__all__


@every_script
def test_a_script_checks_its_result_before_it_draws(name):
    """The assertions stand outside of functions and branches, so that every run takes them."""
    tree = ast.parse(source_of(name))
    checks = [node for node in tree.body if isinstance(node, ast.Assert)]
    assert checks
    assert len(checks) == sum(isinstance(node, ast.Assert) for node in ast.walk(tree))
    saved = [call.lineno for call in calls_in(tree) if called_name(call) == "savefig"]
    assert len(saved) == 1
    assert max(check.lineno for check in checks) < saved[0]


@every_script
def test_a_script_names_its_picture(name):
    assert f'PICTURE = pathlib.Path("output/{name}.png")' in source_of(name)


@every_script
def test_a_script_has_a_row_in_the_table(name):
    table = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    assert table.count(f"| `python examples/{name}.py` |") == 1


def run_here(monkeypatch, name, *argv):
    """Runs a script in this process, as the command `python examples/NAME.py` does."""
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *argv])
    return runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")


def trained(*args, **kwargs):
    raise AssertionError("the script trains a model")


@every_script
def test_help_explains_a_script_and_trains_nothing(name, monkeypatch, capsys):
    monkeypatch.setattr(keras.Model, "fit", trained)
    with pytest.raises(SystemExit) as ended:
        run_here(monkeypatch, name, "--help")
    assert ended.value.code == 0
    title = ast.get_docstring(ast.parse(source_of(name))).splitlines()[0]
    assert title in capsys.readouterr().out


@pytest.mark.exhaustive  # the site runs all scripts, with their assertions
@every_script
def test_a_script_learns_and_draws(name, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"}
    environment.pop("PYTHONOPTIMIZE", None)  # it would leave the assertions out
    run = subprocess.run(
        [sys.executable, ROOT / "examples" / f"{name}.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    picture = tmp_path / "output" / f"{name}.png"
    assert run.stdout.splitlines()[-1] == f"The picture is in {picture.relative_to(tmp_path)}."
    assert picture.read_bytes().startswith(b"\x89PNG")
