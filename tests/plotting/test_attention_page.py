"""The page of weights, in a browser."""

import base64
import io
import re

import numpy as np
import pytest

from keras_attention.plotting import attention_page
from tests.browser import WIDE, show
from tests.helpers import refusals

RNG = np.random.default_rng(3)
SOURCE = ["das", "</script><b>Haus", "ist", "a lt"]
TARGET = ["the", "house<i>", "is"]
MAPS = {"first <hop>": RNG.dirichlet(np.ones(4), 3), "second": RNG.dirichlet(np.ones(4), 3)}


@pytest.fixture
def page(browser, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(attention_page(MAPS, SOURCE, TARGET, "A <map>"), encoding="utf-8")
    show(browser, path.as_uri(), 360, "light")
    return browser


def strengths(page):
    """The colour of every source token of every map, relative to the largest."""
    return page.execute_script(
        """return [...document.querySelectorAll(".source")].map(panel => [...panel.children].map(
            token => Number(token.style.getPropertyValue("--s"))))"""
    )


def wanted(row):
    rows = [x.mean(axis=0) if row is None else x[row] for x in MAPS.values()]
    return [pytest.approx(x / x.max(), abs=2e-3) for x in rows]


def pressed(page):
    script = "return [...document.querySelectorAll('button')].map(b => b.ariaPressed)"
    return [x == "true" for x in page.execute_script(script)]


def test_pointing_and_pinning(page):
    from selenium.webdriver import ActionChains

    assert strengths(page) == wanted(None)
    buttons = page.find_elements("tag name", "button")
    ActionChains(page).move_to_element(buttons[1]).perform()
    assert strengths(page) == wanted(1)
    buttons[1].click()
    ActionChains(page).move_to_element(buttons[2]).perform()
    assert strengths(page) == wanted(2)
    ActionChains(page).move_to_element(page.find_element("tag name", "h1")).perform()
    assert strengths(page) == wanted(1)
    assert pressed(page) == [False, True, False]
    assert page.find_element("id", "said").text == "house<i> reads:"
    buttons[1].click()
    assert pressed(page) == [False] * 3


def test_keys(page):
    from selenium.webdriver import ActionChains, Keys

    def press(key):
        ActionChains(page).send_keys(key).perform()

    press(Keys.TAB)
    assert strengths(page) == wanted(0)
    press(Keys.ARROW_LEFT)
    assert strengths(page) == wanted(2)
    press(Keys.ENTER)
    assert pressed(page) == [False, False, True]
    press(Keys.ESCAPE)
    assert pressed(page) == [False] * 3


def test_weights_and_texts_are_those_given_and_inject_nothing(page):
    script = """return [...document.querySelectorAll(".source")].map(panel =>
        [...panel.children].map(token => [token.className, Number(token.title)]))"""
    for tokens, weights in zip(page.execute_script(script), MAPS.values(), strict=True):
        mean = weights.mean(axis=0)
        assert [name == "most" for name, _ in tokens] == list(mean == mean.max())
        assert [number for _, number in tokens] == pytest.approx(mean, rel=6e-3)
    script = "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)"
    assert page.execute_script(script, "button") == TARGET
    assert page.execute_script(script, ".source span") == [*SOURCE, *SOURCE]
    assert page.execute_script(script, "h1, h2") == ["A <map>", *MAPS]
    assert page.execute_script("return document.querySelectorAll('b, i').length") == 0
    assert not page.get_log("browser")  # the policy refused nothing
    assert not page.execute_script(WIDE)


def test_an_image_in_place_of_the_source(browser, tmp_path):
    """The cells are those of the weights, over an image that the policy of the page allows."""
    path, weights = tmp_path / "page.html", MAPS["second"].reshape(3, 2, 2)
    image = RNG.integers(0, 256, (6, 8, 3)).astype("uint8")
    path.write_text(attention_page(weights, image, TARGET), encoding="utf-8")
    show(browser, path.as_uri(), 360, "light")
    mean = weights.mean(axis=0).ravel()
    assert strengths(browser) == [pytest.approx(mean / mean.max(), abs=2e-3)]
    script = """const panel = document.querySelector(".image").getBoundingClientRect();
        return [...document.querySelectorAll(".image span")].map(x => {
            const box = x.getBoundingClientRect();
            return [(box.x - panel.x) / panel.width, (box.y - panel.y) / panel.height]})"""
    corners = [[0, 0], [0.5, 0], [0, 0.5], [0.5, 0.5]]
    assert browser.execute_script(script) == [pytest.approx(x, abs=0.01) for x in corners]
    assert not browser.get_log("browser")


def test_the_image_of_a_page_has_the_pixels_given():
    import matplotlib.image

    image = RNG.integers(0, 256, (6, 8, 3)).astype("uint8")
    page = attention_page(MAPS["second"].reshape(3, 2, 2), image, TARGET)
    (data,) = re.findall(r"data:image/png;base64,([^)]+)\)", page)
    found = matplotlib.image.imread(io.BytesIO(base64.b64decode(data)))
    assert np.array_equal(np.round(found[..., :3] * 255), image)
    assert page.count("<span ") == 4


def test_notebooks_show_it_in_a_frame():
    shown = attention_page(MAPS["second"], SOURCE, TARGET)._repr_html_()
    assert shown.startswith("<iframe srcdoc=")
    assert "</script>" not in shown


WEIGHTS = np.ones((3, 4)) / 4
test_refusals = refusals(
    (lambda: attention_page({}, SOURCE, TARGET), "at least one map"),
    (lambda: attention_page(np.ones((0, 4)), SOURCE, []), "at least one map and one target token"),
    (lambda: attention_page(WEIGHTS.T, SOURCE, TARGET), "(target tokens, source tokens)"),
    (lambda: attention_page(WEIGHTS * np.nan, SOURCE, TARGET), "finite"),
)
