"""The equations of the pages of mechanisms, which the site shows as MathML."""

import importlib
import inspect
import re
import sys
import xml.etree.ElementTree

import pytest

from tests import ROOT

sys.path.append(str(ROOT / "docs" / "_ext"))
docstrings = importlib.import_module("docstrings")
latex2mathml = pytest.importorskip("docutils.utils.math.latex2mathml")
PAGES = {path.stem: path.read_text("utf-8") for path in (ROOT / "docs/mechanisms").glob("*.md")}
del PAGES["index"]


def blocks(page):
    return re.findall(r"^\$\$\n(.*?)^\$\$$", PAGES[page], re.DOTALL | re.MULTILINE)


def defined(text):
    """The symbols on the left of equations, without marks and indices."""
    return set(re.findall(r"^(?:\\\w+|[^\w\n])*([A-Za-z]+)\S* +&?= ", text, re.MULTILINE))


@pytest.mark.parametrize("page", PAGES)
def test_an_equation_becomes_mathml(page):
    assert blocks(page)
    for block in blocks(page):
        found = latex2mathml.tex2mathml(block, as_block=True).replace("&ApplyFunction;", "")
        assert xml.etree.ElementTree.fromstring(found)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_defines_what_the_docstrings_define(page):
    found = {symbol for block in blocks(page) for symbol in defined(block)}
    for path in re.findall(r"`([\w.]+)`", PAGES[page].rpartition("API: ")[2]):
        module, _, name = path.rpartition(".")
        text = inspect.getdoc(getattr(importlib.import_module(module), name))
        equations = re.findall(r"^ {4}.*", text.partition("\nArgs:")[0], re.MULTILINE)
        assert defined("\n".join(equations)) <= found
