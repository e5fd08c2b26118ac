"""The archives that pages offer for download."""

import os
import subprocess
import sys
import zipfile

from tests import ROOT


def test_the_server_of_the_archive_needs_no_clone(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs" / "_ext")
    import downloads

    class App:
        srcdir = tmp_path

    downloads.write(App)
    path = tmp_path / "downloads" / "serving.zip"
    made = path.stat().st_mtime_ns
    downloads.write(App)
    assert path.stat().st_mtime_ns == made
    zipfile.ZipFile(path).extractall(tmp_path)
    found = subprocess.run(
        [sys.executable, "-m", "examples.serving", "--help"],
        cwd=tmp_path,
        env={name: x for name, x in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "--max-batch" in found.stdout
