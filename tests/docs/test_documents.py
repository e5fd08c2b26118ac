"""The code and the links of the README and of all pages of the site."""

import contextlib
import hashlib
import io
import re
import runpy
import shlex
import tomllib

import keras
import pytest

import keras_attention
from tests import ROOT, fast, python

PAGES = ["README.md", *(str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("docs/**/*.md")))]
CODE = re.compile(r"^```python\n(.*?)^```\n(?:\s*^```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)


def text_of(page):
    return (ROOT / page).read_text("utf-8")


def weekly(page):
    """Pages that take long, or that resemble the examples of the docstrings."""
    return re.match(r"docs/(mechanisms|howto/(decode|quantise|tune)\.md)", page) is not None


WITH_CODE = sorted((page for page in PAGES if CODE.search(text_of(page))), key=weekly)


URLS = tomllib.loads(text_of("pyproject.toml"))["project"]["urls"]
SOURCE = URLS["Source"]


def from_the_clone(origin, file_hash):
    """In place of a download, the file that `main` has there."""
    path = ROOT / origin.removeprefix(f"{SOURCE}/raw/main/")
    assert hashlib.sha256(path.read_bytes()).hexdigest() == file_hash
    return path


OFTEN = len([page for page in WITH_CODE if not weekly(page)])


@pytest.mark.parametrize("page", fast(WITH_CODE, [], slow=OFTEN))
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch):
    """All blocks of a page share their names. A block of text after one is what it prints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setattr(keras.utils, "get_file", from_the_clone)
    names = {"__name__": "page"}
    for code, text in CODE.findall(text_of(page)):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(code, page, "exec"), names)
        assert printed.getvalue() == text, code
    if page == "README.md":  # its command loads the model that its code has saved here
        (command,) = re.findall(r"^python -c .*$", text_of("README.md"), re.MULTILINE)
        found = python(*shlex.split(command)[1:], folder=tmp_path)
        assert found.splitlines()[-1] == "['defgh']"


@pytest.mark.slow
def test_the_page_on_devices_trains_on_simulated_ones(tmp_path):
    pytest.importorskip("jax", reason="JAX is not installed")
    page = text_of("docs/howto/devices.md")
    script, mirrored, simulate, split = re.findall(
        r"^```{code-block} python\n(.*?)^```", page, re.DOTALL | re.MULTILINE
    )

    def run(code, backend, **settings):
        code = code.replace("epochs=3", "epochs=1").replace("4096", "128")
        settings["XLA_FLAGS"] = "--xla_backend_optimization_level=0"  # most of the time compiles
        options = {"folder": tmp_path, "KERAS_BACKEND": backend, **settings}
        return python("-c", code, **options).splitlines()[-1]

    mirrored = mirrored.replace("Strategy()", 'Strategy(["CPU:0", "CPU:1"])')
    definitions, _, _ = script.partition("keras.distribution")
    code = simulate + definitions + mirrored + "\nprint(strategy.num_replicas_in_sync)"
    assert run(code, "tensorflow") == "2"
    jax = {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "4"}
    for code, mesh in ((script, "(4,)"), (split, "(2, 2)")):
        code += "\nprint(keras.distribution.distribution().device_mesh.shape)"
        assert run(code, "jax", **jax) == mesh


@pytest.mark.parametrize("page", [*PAGES, "CHANGELOG.md", "CONTRIBUTING.md", "examples/README.md"])
def test_fences_are_closed_and_local_links_lead_somewhere(page):
    """Sphinx makes pages, and checks the headings that links of its pages lead to."""
    made = re.compile(r"(.*/)?(api|examples)/[\w.]+(\.rst)?(?<!\.md)")
    text, *fenced = re.split(r"^```", text_of(page), flags=re.MULTILINE)
    assert len(fenced) % 2 == 0
    assert not [x for x in fenced[::2] if re.search(r"^## ", x, re.MULTILINE)]
    text = "".join([text, *fenced[1::2]])
    links = re.findall(r"\]\(([^)#]+)", text)
    local = [link for link in links if "://" not in link and not made.fullmatch(link)]
    assert not [link for link in local if not (ROOT / page).parent.joinpath(link).exists()]


def test_the_changelog_begins_with_the_version():
    """`publish` asks for a date, and for a tag that is the version."""
    heading = re.search(r"^## (.*)", text_of("CHANGELOG.md"), re.MULTILINE).group(1)
    version, _, date = heading.partition(" - ")
    assert version == keras_attention.__version__
    assert re.fullmatch(r"unreleased|\d{4}-\d{2}-\d{2}", date)


def test_every_drawing_is_made_and_shown(monkeypatch):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    monkeypatch.syspath_prepend(str(ROOT / "docs/drawings"))
    made = set(runpy.run_path(str(ROOT / "docs/drawings/__main__.py"))["DRAWINGS"])
    assert {path.stem for path in (ROOT / "docs/images/drawings").glob("*.svg")} == made
    shown = re.findall(r"images/drawings/([\w-]+)\.svg", "".join(map(text_of, PAGES)))
    assert {*shown} == made


GLOBS = "*.md", "*.cff", "docs/**/*.md", "docs/*.py", ".github/**/*.yml"
COLAB = "https://colab.research.google.com/github/"
TEXTS = [
    path.read_text("utf-8").replace(COLAB, "https://github.com/")
    for pattern in GLOBS
    for path in ROOT.glob(pattern)
]


def test_addresses_of_the_repository_are_those_of_the_project_and_lead_to_files():
    name = SOURCE.rpartition("/")[2]
    address = re.compile(rf"https://[\w.-]+/[\w.-]+/{name}\b")
    found = {match for page in TEXTS for match in address.findall(page)}
    assert found == {SOURCE}
    assert all(SOURCE in url or "github.io" in url for url in URLS.values())
    pattern = re.compile(rf"{SOURCE}/(?:blob|tree)/main/([\w./-]+)")
    linked = {x for page in TEXTS for x in pattern.findall(page)}
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
