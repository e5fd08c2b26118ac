"""The built site in a browser: on a phone and on a desk, light and dark, with scripts and without.

The site must have been built: python -m sphinx -W --keep-going -n docs build/docs.
"""

import pytest

from tests import ROOT
from tests.browser import FAINT, WIDE, show

SITE = ROOT / "build" / "docs"
# One page of each kind.
PAGES = [
    "index", "getting_started", "concepts/masks", "mechanisms/luong", "howto/troubleshoot",
    "tutorials/seq2seq", "results/speed_layers", "api/keras_attention.AttentionRNN",
    "examples/calculator", "genindex",
]  # fmt: skip

# What scrolls sideways and cannot have the focus.
UNREACHABLE = """
return [...document.querySelectorAll("article *")].filter(e => {
    const scrolls = ["auto", "scroll"].includes(getComputedStyle(e).overflowX);
    return scrolls && e.scrollWidth > e.clientWidth && e.tabIndex < 0;
}).map(e => e.outerHTML.slice(0, 80));
"""


@pytest.fixture(scope="module", params=PAGES)
def path(request):
    if not SITE.exists():
        pytest.skip(f"the site has not been built: python -m sphinx docs {SITE}")
    return (SITE / f"{request.param}.html").as_uri()


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1280, "dark")])
def test_texts_stand_out_and_the_page_fits_without_scripts_too(browser, path, width, scheme):
    texts = []
    for scripts in (True, False):
        show(browser, path, width, scheme, scripts=scripts)
        texts.append(browser.execute_script("return document.querySelector('article').innerText"))
        assert browser.execute_script(FAINT) == []
        assert not browser.execute_script(WIDE)
        assert not scripts or browser.execute_script(UNREACHABLE) == []
    assert browser.execute_script("return document.body.dataset.theme ?? ''") == ""
    assert texts[0] == texts[1]
