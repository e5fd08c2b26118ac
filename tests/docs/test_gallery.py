"""The gallery of short scripts: its order, its pictures and its notebooks."""

import re

import pytest

from tests import ROOT
from tests.examples.test_short_scripts import SCRIPTS

pytest.importorskip("sphinx_gallery")


@pytest.fixture
def gallery(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs" / "_ext")
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setenv("MPLBACKEND", "Agg")
    import gallery

    return gallery


def test_every_script_has_its_place(gallery):
    places = {name: gallery.order(f"{name}.py") for name in SCRIPTS}
    assert sorted(places.values()) == list(range(len(SCRIPTS)))
    assert places["calculator"] == 0


def test_a_figure_is_saved_once_with_and_without_pyplot(gallery, tmp_path):
    from matplotlib import pyplot

    from keras_attention.plotting import plot_attention

    figure = plot_attention([[0.9, 0.1], [0.2, 0.8]], ["das", "Haus"], ["the", "house"])
    paths = [tmp_path / f"{n}.png" for n in range(3)]
    names = {"figure": figure, "number": 3}
    given = {"example_globals": names, "image_path_iterator": iter(map(str, paths))}
    rst = gallery.scrape(None, given, {"src_dir": str(tmp_path)})
    assert "0.png" in rst
    names["other"], _ = pyplot.subplots()
    rst = gallery.scrape(None, given, {"src_dir": str(tmp_path)})
    assert "1.png" in rst
    assert "0.png" not in rst
    assert gallery.scrape(None, given, {"src_dir": str(tmp_path)}) == ""
    assert [path.exists() for path in paths] == [True, True, False]
    gallery.reset({}, "script.py")
    assert not pyplot.get_fignums()


def test_a_page_links_to_its_notebook(gallery):
    import colab

    text = ".. note::\n\nWrite a title\n=============\n\nText.\n\nMore\n====\n"
    for page, links in {"examples/calculator": 1, "examples/index": 0, "howto/decode": 0}.items():
        content = [text]
        colab.add_links(None, page, content)
        assert content[0].count("Open in Colab") == links
    content = [text]
    colab.add_links(None, "examples/calculator", content)
    assert "=\n\n`Open in Colab <https://colab." in content[0]
    assert "/blob/notebooks/calculator.ipynb>`__\n\nText.\n\nMore\n====\n" in content[0]


def test_rows_of_the_mechanisms_link_to_notebooks(gallery):
    """GitHub shows the README as it is, so its rows hold the links."""
    import colab

    before = (ROOT / "docs" / "mechanisms" / "index.md").read_text("utf-8")
    content = [before]
    colab.add_links(None, "mechanisms/index", content)
    added = re.findall(r", \[notebook\]\(\S+/blob/notebooks/(\w+)\.ipynb\) \|", content[0])
    assert re.sub(r", \[notebook\]\(\S+\)", "", content[0]) == before
    without = {"forecast", "own_attention"}  # no row of this table is theirs
    assert sorted(added) == sorted(set(SCRIPTS) - without)

    table = (ROOT / "README.md").read_text("utf-8").partition("## Which mechanism")[2]
    rows = re.findall(r"^(\|[^|\n]+)\|([^|\n]+)\|", table, re.MULTILINE)
    links = [re.sub(r"^.*?(?=, \[notebook\]|$)", "", use.strip()) for _, use in rows]
    assert links == [colab.notebooks(layer, ".") for layer, _ in rows]
    assert any(links)


def test_a_notebook_has_no_roles(gallery):
    from sphinx_gallery import notebook

    text = "Read :py:obj:`keras_attention.LuongAttention` first."
    found = notebook.rst2md(text, {}, ".", {})
    assert found.strip() == "Read `keras_attention.LuongAttention` first."
