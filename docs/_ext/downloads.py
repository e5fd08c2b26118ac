"""Makes the archives that pages offer for download, before the pages are read."""

import pathlib
import zipfile

ROOT = pathlib.Path(__file__).parents[2]
# The example server, and the other modules that it imports.
SERVER = (
    "examples/__init__.py",
    "examples/common/__init__.py",
    "examples/common/arguments.py",
    "examples/common/run_saved_model.py",
    "examples/serving/*.py",
)


def setup(app):
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True}


def write(app):
    """Writes an archive if its content has changed, so that Sphinx copies only what is new."""
    path = pathlib.Path(app.srcdir) / "downloads" / "serving.zip"
    files = {
        found.relative_to(ROOT).as_posix(): found.read_bytes()
        for pattern in SERVER
        for found in sorted(ROOT.glob(pattern))
    }
    if path.exists() and _content(path) == files:
        return
    path.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content)


def _content(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}
