"""The drawings of the site: each has its function, and a page that shows it."""

import re
import runpy

import pytest

from tests import ROOT


def test_every_drawing_is_made_and_shown(monkeypatch):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    monkeypatch.syspath_prepend(str(ROOT / "docs/drawings"))
    made = set(runpy.run_path(str(ROOT / "docs/drawings/__main__.py"))["DRAWINGS"])
    assert {path.stem for path in (ROOT / "docs/images/drawings").glob("*.svg")} == made
    pages = [path.read_text("utf-8") for path in (ROOT / "docs").rglob("*.md")]
    assert {x for page in pages for x in re.findall(r"images/drawings/([\w-]+)\.svg", page)} == made
