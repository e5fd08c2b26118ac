"""Builds a release as the workflow `publish` does, and tries it: python -m tests.release.

The wheel is installed in a fresh virtual environment, where the first code of the README runs from
another folder.
"""

import os
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

from tests import ROOT

EXAMPLE = re.compile(r"^## In a model\n+```python\n(.*?)```\n+```text\n(.*?)```", re.M | re.S)


def build(folder):
    subprocess.run([sys.executable, "-m", "build", "--outdir", folder, ROOT], check=True)
    files = sorted(folder.iterdir())
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *files], check=True)
    (wheel,) = folder.glob("*.whl")
    (source,) = folder.glob("*.tar.gz")
    return wheel, source


def check_contents(wheel, source):
    """The wheel holds the package, all of it, and nothing else. The source also says how to build.

    Of the tests, setuptools would add those at the top of their folder, which cannot run alone.
    """
    found = {x for x in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in x}
    package = (ROOT / "keras_attention").rglob("*.*")
    wanted = {str(x.relative_to(ROOT)) for x in package if x.suffix in (".py", ".css", ".js")}
    wanted |= {"keras_attention/py.typed"}
    assert found == wanted, found ^ wanted
    with tarfile.open(source) as archive:
        found = {x.name.partition("/")[2] for x in archive if x.isfile()}
    assert found >= wanted | {"CHANGELOG.md", "LICENSE", "README.md", "pyproject.toml"}, found
    assert not [x for x in found if x.startswith(("tests/", "examples/", "docs/"))], found


def install(wheel, folder):
    """Installs the wheel in a fresh environment, and returns the command that runs its Python.

    The package comes from the wheel. Its dependencies, such as TensorFlow, come from the
    environment that runs this script, because it takes minutes to install them. The second call of
    pip installs nothing: it finds out whether they are what the metadata of the wheel requires.
    """
    venv.create(folder, with_pip=True)
    # `-I` hides the checkout: the folder, and variables such as PYTHONPATH.
    python = [folder / "bin" / "python", "-I"]
    pip = [*python, "-m", "pip", "install", "-q", "--no-index"]
    subprocess.run([*pip, "--no-deps", wheel], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    shared = [path for path in sys.path if path.endswith("site-packages")]
    (site / "dependencies.pth").write_text("\n".join(shared) + "\n", "utf-8")
    subprocess.run([*pip, "keras-attention-layers[tensorflow]"], check=True)
    return python


def try_example(python, folder):
    code, text = EXAMPLE.search((ROOT / "README.md").read_text("utf-8")).groups()
    script = folder / "example.py"
    origin = "import sys\nassert sys.modules['keras_attention'].__file__.startswith(sys.prefix)\n"
    script.write_text(code + origin, "utf-8")
    environment = {**os.environ, "KERAS_BACKEND": "tensorflow"}
    printed = subprocess.check_output([*python, script], cwd=folder, env=environment, text=True)
    assert printed == text, printed


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel, source = build(folder / "dist")
        check_contents(wheel, source)
        try_example(install(wheel, folder / "fresh"), folder)
    print(f"{wheel.name} works")


if __name__ == "__main__":
    main()
