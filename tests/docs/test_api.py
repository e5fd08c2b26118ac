"""The pages of the API, the equations of the mechanisms, and the gallery of short scripts."""

import doctest
import importlib
import inspect
import re
import sys
import xml.etree.ElementTree
from types import SimpleNamespace

import pytest

from keras_attention import layers
from tests import ROOT
from tests.examples.test_short_scripts import SCRIPTS

sys.path.append(str(ROOT / "docs" / "_ext"))
docstrings = importlib.import_module("docstrings")
api_pages = pytest.importorskip("api_pages")
NAMES = docstrings.public_names("keras_attention")


def test_every_public_name_has_a_page(tmp_path):
    parts = ["keras_attention", *(f"keras_attention.{part}" for part in docstrings.PUBLIC)]
    public = {name for part in parts for name in importlib.import_module(part).__all__}
    assert set(NAMES) == public

    api_pages.write(SimpleNamespace(srcdir=tmp_path))
    index = (tmp_path / "api" / "index.rst").read_text("utf-8")
    for name, path in NAMES.items():
        assert f"`{name} <{path}>`" in index
        page = (tmp_path / "api" / f"{path}.rst").read_text("utf-8")
        assert f":: {name}\n" in page


def test_every_layer_has_a_page_of_its_mechanism():
    links = "".join(text.rpartition("API: ")[2] for text in PAGES.values())
    assert not [x for x in layers.__all__ if f"{{py:obj}}`keras_attention.{x}`" not in links]


def methods_of(cls):
    for name in dir(cls):
        owners = {base.__module__.split(".")[0] for base in cls.__mro__ if name in vars(base)}
        found = getattr(cls, name)
        is_method = inspect.isroutine(found) or isinstance(found, property)
        if is_method and owners == {"keras_attention"} and not name.startswith("_"):
            yield found


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_has_an_example_and_every_method_says_what_it_does(name):
    """`interrogate` leaves out the hooks. A base describes each, and `help` shows its docstring."""
    module, _, public = NAMES[name].rpartition(".")
    thing = getattr(importlib.import_module(module), public)
    text = inspect.getdoc(thing) or ""
    # One that shows a result, so that the doctests check it.
    assert any(example.want for example in doctest.DocTestParser().get_examples(text))
    methods = methods_of(thing) if inspect.isclass(thing) else ()
    assert not [x for x in methods if len((inspect.getdoc(x) or "").split()) < 4]


def test_a_docstring_becomes_a_page():
    lines = """Reads `Memory` once (Smith, 2020).

    c[b] = |a| * k_

The keys are in `memory.key`.

Args:
    units, width: U, the width;
        required.
    *rest: more.

Example:
    >>> 1 + 1
    2

Reference: https://arxiv.org/abs/1409.0473, section 3.""".splitlines()
    found = "\n".join(docstrings.convert(lines, NAMES))
    assert ":py:obj:`Memory <keras_attention.attention.Memory>` once" in found
    assert ".. code-block:: text\n\n    c[b] = |a| * k_\n" in found
    assert "``memory.key``." in found
    assert "* **units**, **width**: U, the width; required.\n" in found
    assert r"* **\*rest**: more." in found
    assert "\n>>> 1 + 1\n2\n" in found
    assert "https://arxiv.org/abs/1409.0473, section 3." in found


latex2mathml = pytest.importorskip("docutils.utils.math.latex2mathml")
PAGES = {path.stem: path.read_text("utf-8") for path in (ROOT / "docs/mechanisms").glob("*.md")}
del PAGES["index"]


def blocks(page):
    return re.findall(r"^\$\$\n(.*?)^\$\$$", PAGES[page], re.DOTALL | re.MULTILINE)


def defined(text):
    """The symbols on the left of equations, without marks and indices."""
    return set(re.findall(r"^(?:\\\w+|[^\w\n])*([A-Za-z]+)\S* +&?= ", text, re.MULTILINE))


@pytest.mark.parametrize("page", PAGES)
def test_equations_become_mathml_and_define_what_the_docstrings_define(page):
    assert blocks(page)
    for block in blocks(page):
        found = latex2mathml.tex2mathml(block, as_block=True).replace("&ApplyFunction;", "")
        assert xml.etree.ElementTree.fromstring(found)
    found = {symbol for block in blocks(page) for symbol in defined(block)}
    for path in re.findall(r"`([\w.]+)`", PAGES[page].rpartition("API: ")[2]):
        module, _, name = path.rpartition(".")
        text = inspect.getdoc(getattr(importlib.import_module(module), name))
        equations = re.findall(r"^ {4}.*", text.partition("\nArgs:")[0], re.MULTILINE)
        assert defined("\n".join(equations)) <= found


pytest.importorskip("sphinx_gallery")


def test_scripts_have_their_places_and_links_to_their_notebooks(monkeypatch):
    """GitHub shows the README as it is, so its rows hold the links."""
    monkeypatch.syspath_prepend(ROOT / "docs" / "_ext")
    monkeypatch.setenv("PYTHONPATH", "")
    import colab
    import gallery

    places = {name: gallery.order(f"{name}.py") for name in SCRIPTS}
    assert sorted(places.values()) == list(range(len(SCRIPTS)))
    assert places["calculator"] == 0

    def linked(page, text):
        content = [text]
        colab.add_links(None, page, content)
        return content[0]

    text = ".. note::\n\nWrite a title\n=============\n\nText.\n\nMore\n====\n"
    assert linked("examples/index", text) == linked("howto/decode", text) == text
    found = linked("examples/calculator", text)
    assert found.count("Open in Colab") == 1
    assert "=\n\n`Open in Colab <https://colab." in found
    assert "/blob/notebooks/calculator.ipynb>`__\n\nText.\n\nMore\n====\n" in found
    before = (ROOT / "docs" / "mechanisms" / "index.md").read_text("utf-8")
    found = linked("mechanisms/index", before)
    added = re.findall(r", \[notebook\]\(\S+/blob/notebooks/(\w+)\.ipynb\) \|", found)
    assert re.sub(r", \[notebook\]\(\S+\)", "", found) == before
    without = {"forecast"}  # no row of this table is theirs
    assert sorted(added) == sorted(set(SCRIPTS) - without)

    table = (ROOT / "README.md").read_text("utf-8").partition("## Which mechanism")[2]
    rows = re.findall(r"^(\|[^|\n]+)\|([^|\n]+)\|", table, re.MULTILINE)
    links = [re.sub(r"^.*?(?=, \[notebook\]|$)", "", use.strip()) for _, use in rows]
    assert links == [colab.notebooks(layer, ".") for layer, _ in rows]
    assert any(links)
