"""The trained models of the repository, and the demo that loads one."""

import functools
import hashlib
import re
import sys
import tomllib

import keras
import pytest

from keras_attention import __main__, _demo
from tests import ROOT

MODELS = {path.stem: path for path in sorted((ROOT / "models").glob("*.keras"))}
SHA256 = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in MODELS.items()}


def demo(*arguments):
    __main__.main(["demo", *arguments])


def test_the_records_and_the_demo_have_the_digests_of_the_models():
    """tests/docs/test_documents.py compares the address and the digest of the README."""
    for name, digest in SHA256.items():
        record = (ROOT / f"docs/results/records/demo-{name}.toml").read_text("utf-8")
        assert tomllib.loads(record)["figures"]["sha256"] == digest
    assert sum(path.stat().st_size for path in MODELS.values()) < 3 * 2**20
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert f"{project['urls']['Source']}/raw/main/models/dates.keras" == _demo.ADDRESS
    assert SHA256["dates"] == _demo.SHA256


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_the_demo_prints_texts_and_shades(encoding, capsys):
    sys.stdout.reconfigure(encoding=encoding)
    demo("--model", str(MODELS["dates"]))
    lines = capsys.readouterr().out.splitlines()
    end, dark = ("?", "[*#]") if encoding == "ascii" else ("⏎", "[▓█]")
    assert lines[:2] == ["the third of May, 1998 -> 1998-05-03", f"  the third of May, 1998{end}"]
    assert "".join(line[0] for line in lines[2:13]) == f"1998-05-03{end}"
    assert re.search(dark, "".join(lines[2:13]))
    assert "12/25/07 -> 2007-12-25" in lines


def test_strange_dates(capsys):
    """A character that the vocabulary lacks, nothing, many characters: they change no other."""
    texts = ["", "\N{SNOWMAN}", "May " * 100, "May 3, 1998"]
    demo("--model", str(MODELS["dates"]), *texts)
    printed = capsys.readouterr().out
    assert printed.startswith(" -> ")
    assert "\nMay 3, 1998 -> 1998-05-03\n" in printed
    with pytest.raises(SystemExit, match="must be valid Unicode"):
        demo("--model", str(MODELS["dates"]), "\udcff")


def test_what_can_go_wrong(tmp_path, monkeypatch):
    wrong, other = tmp_path / "wrong.keras", tmp_path / "other.keras"
    wrong.write_bytes(b"PK no zip")
    keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)]).save(other)
    remedy = r"\nGive a .keras file of a Seq2Seq with tokenizers, or no --model."
    for path, why in (
        (tmp_path / "none.keras", "could not be loaded: .*"),
        (wrong, "could not be loaded: .*"),
        (other, "is no model from texts to texts, but <Sequential .*"),
    ):
        with pytest.raises(SystemExit, match=re.escape(str(path)) + f" {why}{remedy}"):
            demo("--model", str(path))
    get_file = functools.partial(keras.utils.get_file, cache_dir=tmp_path)
    monkeypatch.setattr(keras.utils, "get_file", get_file)
    for path, why in (
        (wrong, "file hash does not match"),
        (tmp_path / "none.keras", "No such file"),
    ):
        monkeypatch.setattr(_demo, "ADDRESS", path.as_uri())
        message = rf"could not be downloaded: (.|\n)*{why}(.|\n)*Check the connection"
        with pytest.raises(SystemExit, match=message):
            demo()
