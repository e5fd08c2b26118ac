"""The address of the repository is the same everywhere, and the README leads there."""

import re
import runpy
import tomllib

import keras_attention
from tests import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
SOURCE = PROJECT["urls"]["Source"]
GLOBS = "*.md", "*.cff", "docs/**/*.md", "docs/*.py", ".github/**/*.yml"
COLAB = "https://colab.research.google.com/github/"
PAGES = [
    path.read_text("utf-8").replace(COLAB, "https://github.com/")
    for pattern in GLOBS
    for path in ROOT.glob(pattern)
]


def test_addresses_of_the_repository_are_those_of_the_project_and_lead_to_files():
    name = SOURCE.rpartition("/")[2]
    address = re.compile(rf"https://[\w.-]+/[\w.-]+/{name}\b")
    found = {match for page in PAGES for match in address.findall(page)}
    assert found == {SOURCE}
    assert all(SOURCE in url or "github.io" in url for url in PROJECT["urls"].values())
    pattern = re.compile(rf"{SOURCE}/(?:blob|tree)/main/([\w./-]+)")
    linked = {x for page in PAGES for x in pattern.findall(page)}
    assert linked
    assert not [x for x in linked if not (ROOT / x).exists()]


def test_the_package_index_gets_whole_addresses(monkeypatch):
    """It shows the README elsewhere, where links from file to file lead nowhere."""
    given = {}
    monkeypatch.setattr("setuptools.setup", lambda **options: given.update(options))
    readme = runpy.run_path(str(ROOT / "setup.py"))["readme"]
    text = readme()
    assert given["long_description"] == text
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert links
    assert all(link.startswith(("https://", "#")) for link in links)
    assert f"({SOURCE}/blob/v{keras_attention.__version__}/CONTRIBUTING.md)" in text
    assert f"({SOURCE}/raw/v{keras_attention.__version__}/docs/images/dates-demo.png)" in text
