"""The built site in a browser: on a phone and on a desk, light and dark, with scripts and without.

The site must have been built: python -m sphinx -W --keep-going -n docs build/docs.
"""

import pytest

from tests import ROOT

SITE = ROOT / "build" / "docs"
# One page of each kind.
PAGES = [
    "index",
    "getting_started",
    "concepts/masks",
    "mechanisms/luong",
    "howto/troubleshoot",
    "tutorials/seq2seq",
    "results/speed_layers",
    "api/keras_attention.AttentionRNN",
    "examples/calculator",
    "genindex",
]
pytestmark = pytest.mark.slow

# Texts with less contrast than WCAG 2.2 AA asks for: 4.5, or 3 for large ones.
FAINT = """
const numbers = text => (text.match(/[\\d.]+/g) || []).map(Number);
function layers(element) {  // the colours behind a text, from the front
    const found = [];
    for (let e = element; e; e = e.parentElement) {
        const [r, g, b, a = 1] = numbers(getComputedStyle(e).backgroundColor);
        if (a > 0) found.push([r, g, b, a]);
        if (a === 1) break;
    }
    return found;
}
function over(front, back) {
    const a = front[3] ?? 1;
    return back.map((x, n) => a * front[n] + (1 - a) * x);
}
function luminance(colour) {
    const [r, g, b] = colour.map(x => x / 255).map(
        x => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
const found = new Map();
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    const style = getComputedStyle(element);
    if (!texts.currentNode.textContent.trim()) continue;
    if (element.closest("script, style, noscript")) continue;
    if (!element.checkVisibility({opacityProperty: true, visibilityProperty: true})) continue;
    let back = [255, 255, 255];
    for (const layer of layers(element).reverse()) back = over(layer, back);
    const front = over(numbers(style.color), back);
    const [low, high] = [luminance(front), luminance(back)].sort((a, b) => a - b);
    const ratio = (high + 0.05) / (low + 0.05);
    const size = parseFloat(style.fontSize), bold = style.fontWeight >= 700;
    const least = size >= 24 || (bold && size >= 18.66) ? 3 : 4.5;
    if (ratio < least) {
        const name = `${element.tagName.toLowerCase()}.${element.className} ${style.color}`;
        const text = texts.currentNode.textContent.trim().slice(0, 30);
        found.set(name, `${name} on ${back.map(Math.round)}: ${ratio.toFixed(2)}, ${text}`);
    }
}
return [...found.values()];
"""
WIDE = """
const width = document.documentElement.clientWidth;
return document.documentElement.scrollWidth > width || document.body.scrollWidth > width;
"""
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


def show(browser, path, width, scheme, scripts=True):
    size = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 500}
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not scripts})
    browser.get(path)


def test_faint_texts_and_wide_pages_are_found(browser, tmp_path):
    page = tmp_path / "page.html"
    faint = '<p style="color: #777">faint</p><h1 style="color: #777">large</h1>'
    page.write_text(f'<body style="background: #eee">{faint}<p style="width: 999px">wide</p>')
    show(browser, page.as_uri(), 390, "light")
    assert [x.rpartition(" ")[2] for x in browser.execute_script(FAINT)] == ["faint"]
    assert browser.execute_script(WIDE)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_texts_stand_out_and_the_page_fits(browser, path, width, scheme):
    show(browser, path, width, scheme)
    assert browser.execute_script(FAINT) == []
    assert not browser.execute_script(WIDE)
    assert browser.execute_script(UNREACHABLE) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_needs_no_scripts(browser, path, scheme):
    show(browser, path, 390, scheme)
    with_scripts = browser.execute_script("return document.querySelector('article').innerText")
    show(browser, path, 390, scheme, scripts=False)
    assert browser.execute_script("return document.body.dataset.theme ?? ''") == ""
    text = browser.execute_script("return document.querySelector('article').innerText")
    assert text == with_scripts
    assert browser.execute_script(FAINT) == []
    assert not browser.execute_script(WIDE)
