"""A browser for the tests of pages, as a fixture."""

import shutil

import pytest


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
