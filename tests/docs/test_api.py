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


@pytest.mark.parametrize("name", layers.__all__)
def test_every_layer_has_a_page_of_its_mechanism(name):
    pages = (ROOT / "docs" / "mechanisms").glob("*.md")
    links = [page.read_text("utf-8").rpartition("API: ")[2] for page in pages]
    assert [x for x in links if f"{{py:obj}}`keras_attention.{name}`" in x]


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


pytest.importorskip("sphinx_gallery")


@pytest.fixture
def gallery(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs" / "_ext")
    monkeypatch.setenv("PYTHONPATH", "")
    import gallery

    return gallery


def test_every_script_has_its_place(gallery):
    places = {name: gallery.order(f"{name}.py") for name in SCRIPTS}
    assert sorted(places.values()) == list(range(len(SCRIPTS)))
    assert places["calculator"] == 0


def test_a_page_links_to_its_notebook(gallery):
    import colab

    text = ".. note::\n\nWrite a title\n=============\n\nText.\n\nMore\n====\n"
    content = {page: [text] for page in ("examples/calculator", "examples/index", "howto/decode")}
    for page, source in content.items():
        colab.add_links(None, page, source)
    (linked,), *others = content.values()
    assert others == [[text]] * 2
    assert linked.count("Open in Colab") == 1
    assert "=\n\n`Open in Colab <https://colab." in linked
    assert "/blob/notebooks/calculator.ipynb>`__\n\nText.\n\nMore\n====\n" in linked


def test_rows_of_the_mechanisms_link_to_notebooks(gallery):
    """GitHub shows the README as it is, so its rows hold the links."""
    import colab

    before = (ROOT / "docs" / "mechanisms" / "index.md").read_text("utf-8")
    content = [before]
    colab.add_links(None, "mechanisms/index", content)
    added = re.findall(r", \[notebook\]\(\S+/blob/notebooks/(\w+)\.ipynb\) \|", content[0])
    assert re.sub(r", \[notebook\]\(\S+\)", "", content[0]) == before
    without = {"forecast"}  # no row of this table is theirs
    assert sorted(added) == sorted(set(SCRIPTS) - without)

    table = (ROOT / "README.md").read_text("utf-8").partition("## Which mechanism")[2]
    rows = re.findall(r"^(\|[^|\n]+)\|([^|\n]+)\|", table, re.MULTILINE)
    links = [re.sub(r"^.*?(?=, \[notebook\]|$)", "", use.strip()) for _, use in rows]
    assert links == [colab.notebooks(layer, ".") for layer, _ in rows]
    assert any(links)
