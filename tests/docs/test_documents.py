"""The code and the links of the README and of all pages of the site."""

import contextlib
import hashlib
import io
import os
import re
import shlex
import subprocess
import sys
import tomllib

import keras
import pytest

import keras_attention
from tests import ROOT, fast

PAGES = ["README.md", *(str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("docs/**/*.md")))]
CODE = re.compile(r"^```python\n(.*?)^```\n(?:\s*^```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)


def text_of(page):
    return (ROOT / page).read_text("utf-8")


# The last pages take longest, and other tests run what they show.
LONG = [f"docs/howto/{name}.md" for name in ("decode", "quantise", "tune")]
WITH_CODE = sorted((page for page in PAGES if CODE.search(text_of(page))), key=LONG.__contains__)


def from_the_clone(origin, file_hash):
    """In place of a download, the file that `main` has there."""
    source = tomllib.loads(text_of("pyproject.toml"))["project"]["urls"]["Source"]
    path = ROOT / origin.removeprefix(f"{source}/raw/main/")
    assert hashlib.sha256(path.read_bytes()).hexdigest() == file_hash
    return path


@pytest.mark.parametrize("page", fast(WITH_CODE, [], slow=len(WITH_CODE) - len(LONG)))
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
        command = [sys.executable, *shlex.split(command)[1:]]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert found.stdout.splitlines()[-1] == "['defgh']"


@pytest.mark.slow
def test_the_page_on_devices_trains_on_simulated_ones(tmp_path):
    pytest.importorskip("jax", reason="JAX is not installed")
    page = text_of("docs/howto/devices.md")
    script, mirrored, simulate, split = re.findall(
        r"^```{code-block} python\n(.*?)^```", page, re.DOTALL | re.MULTILINE
    )

    def run(code, backend, **settings):
        code = code.replace("epochs=3", "epochs=1").replace("4096", "128")
        environment = os.environ | {"PYTHONPATH": str(ROOT), "KERAS_BACKEND": backend} | settings
        environment["XLA_FLAGS"] = "--xla_backend_optimization_level=0"  # most of the time compiles
        command = [sys.executable, "-c", code]
        options = {"env": environment, "capture_output": True, "text": True, "check": True}
        return subprocess.run(command, cwd=tmp_path, **options).stdout.splitlines()[-1]

    mirrored = mirrored.replace("Strategy()", 'Strategy(["CPU:0", "CPU:1"])')
    check = "\nprint(strategy.num_replicas_in_sync)"
    definitions, _, _ = script.partition("keras.distribution")
    assert run(simulate + definitions + mirrored + check, "tensorflow") == "2"
    check = "\nprint(keras.distribution.distribution().device_mesh.shape)"
    jax = {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "4"}
    assert run(script + check, "jax", **jax) == "(4,)"
    assert run(split + check, "jax", **jax) == "(2, 2)"


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
