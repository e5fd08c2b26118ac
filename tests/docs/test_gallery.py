"""The gallery of short scripts: its order and its notebooks."""

import pytest

from tests import ROOT
from tests.examples.test_short_scripts import SCRIPTS

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
        colab.add_link(None, page, source)
    (linked,), *others = content.values()
    assert others == [[text]] * 2
    assert linked.count("Open in Colab") == 1
    assert "=\n\n`Open in Colab <https://colab." in linked
    assert "/blob/notebooks/calculator.ipynb>`__\n\nText.\n\nMore\n====\n" in linked
