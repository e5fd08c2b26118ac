"""A browser for the tests of pages, as a fixture, and questions to a page."""

import shutil

import pytest

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


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    names = ("chromium", "chromium-browser", "google-chrome")
    program = next(filter(None, map(shutil.which, names)), None)
    driver = shutil.which("chromedriver")
    if not (program and driver):
        pytest.skip("the page needs chromium and chromedriver to be seen: apt-get install chromium")
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for option in (
        *("headless=new", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run"),
        *("disable-dev-shm-usage", "disable-background-networking"),
        f"user-data-dir={tmp_path_factory.mktemp('profile')}",
    ):
        options.add_argument(f"--{option}")
    # The path keeps selenium from looking for a driver on the network.
    with webdriver.Chrome(options, webdriver.ChromeService(driver)) as browser:
        yield browser


def show(browser, path, width, scheme, scripts=True):
    """Opens a page on a screen of this width, in a light or a dark scheme."""
    size = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 400}
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not scripts})
    browser.get(path)
