"""The code and the links of the documents."""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys

import numpy as np
import pytest

from tests import ROOT

DOCUMENTS = ["README.md", "docs/guide.md"]
OTHERS = [
    "CHANGELOG.md",
    *(
        str(path.relative_to(ROOT))
        for folder in ("howto", "results")
        for path in sorted((ROOT / "docs" / folder).glob("*.md"))
    ),
]


def run(document):
    """Runs all code, in one namespace; what it prints must be the block of text that follows."""
    names = {}
    pattern = r"```python\n(.*?)```(?:\s*```text\n(.*?)```)?"
    for code, text in re.findall(pattern, (ROOT / document).read_text("utf-8"), re.DOTALL):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(code, document, "exec"), names)
        assert printed.getvalue() == text
    return names


@pytest.mark.parametrize("document", DOCUMENTS)
def test_code_compiles_and_headings_are_outside_of_it(document):
    _, *parts = re.split(r"^```", (ROOT / document).read_text("utf-8"), flags=re.MULTILINE)
    assert len(parts) % 2 == 0  # every fence is closed
    inside = parts[::2]
    assert not [x for x in inside if re.search(r"^## ", x, re.MULTILINE)]
    code = [x.split("\n", 1) for x in inside]
    code = [x for language, x in code if language in ("python", "py")]
    assert code
    for x in code:
        compile(x, document, "exec")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """The code of the documents writes its files into a temporary folder."""
    monkeypatch.chdir(tmp_path)


def test_the_code_of_the_readme_runs():
    """A new process loads the model that it saved, with the command of the README."""
    run("README.md")
    (command,) = re.findall(r"^python -c .*$", (ROOT / "README.md").read_text("utf-8"), re.M)
    command = [sys.executable, *shlex.split(command)[1:]]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.splitlines()[-1] == "[[5 6 7 8 9 2]]"


@pytest.mark.slow
def test_the_translator_of_the_guide_learns():
    names = run("docs/guide.md")
    found = names["found"]
    tokens, ids = np.array(found.tokens), names["ids"]
    np.testing.assert_array_equal(tokens[0, 0, :6], [*ids[0, ::-1], names["END"]])
    assert not np.array(found.weights)[1, 0, :, 4].any()  # padding
    assert {tuple(x) for x in np.array(names["begun"].tokens)[0, :, :2]} == {(7, 6)}
    assert tuple(names["drawn"].tokens.shape) == (2, 10, 8)
    np.testing.assert_array_equal(np.array(names["both"].tokens)[:, 0], tokens[:, 0])
    assert names["looking"].output_shape == (None, None, None)


@pytest.mark.parametrize("document", [*DOCUMENTS, *OTHERS])
def test_local_links_lead_somewhere(document):
    path = ROOT / document
    links = re.findall(r"\]\(([^)#]+)", path.read_text("utf-8"))
    missing = [link for link in links if "://" not in link and not (path.parent / link).exists()]
    assert not missing


def test_links_to_headings_lead_somewhere():
    path = ROOT / "README.md"
    links = re.findall(r"\]\(([^)#:]*)#([^)]+)\)", path.read_text("utf-8"))
    assert links
    for file, anchor in links:
        text = (path.parent / file if file else path).read_text("utf-8")
        headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        slugs = [re.sub(r"[^\w\- ]", "", x.lower()).replace(" ", "-") for x in headings]
        assert anchor in slugs, (file, anchor)
