"""The code on the pages of the site runs, and prints what the pages say."""

import contextlib
import io
import re

import pytest

from tests import ROOT

# These read and write files of trained models, or need minutes.
LONG = "tutorials", "howto"
PAGES = {
    str(path.relative_to(ROOT / "docs")): path
    for path in sorted((ROOT / "docs").rglob("*.md"))
    if "```python" in path.read_text("utf-8")
}
CODE = re.compile(r"^```python\n(.*?)^```\n(?:\s*^```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)


def marked(name):
    marks = pytest.mark.slow if name.startswith(LONG) else ()
    return pytest.param(name, marks=marks, id=name.removesuffix(".md"))


@pytest.mark.parametrize("name", [marked(name) for name in PAGES])
def test_the_code_of_a_page_runs(name, tmp_path, monkeypatch):
    """All blocks of a page share their names. A block of text after one is what it prints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    names = {"__name__": "page"}
    for code, text in CODE.findall(PAGES[name].read_text("utf-8")):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(code, name, "exec"), names)
        assert printed.getvalue() == text, code
