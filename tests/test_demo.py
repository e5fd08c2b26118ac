"""The trained models of the repository, and the demo that loads one."""

import functools
import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib

import keras
import pytest

from examples import train_demo
from keras_attention import __main__, _demo
from tests import ROOT, fast

MODELS = {path.stem: path for path in sorted((ROOT / "models").glob("*.keras"))}
SHA256 = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in MODELS.items()}
BACKENDS = "tensorflow", "jax", "torch"
GENERATE = """
import json, os, sys
others = {"tensorflow", "jax"} - {os.environ["KERAS_BACKEND"]}
sys.modules.update(dict.fromkeys(others))  # as if not installed; SciPy fails for torch
import keras, keras_attention
for path, texts in json.loads(sys.argv[1]).items():
    model = keras.saving.load_model(path)
    print(json.dumps(model.generate(texts).texts))
    if keras.config.backend() == "tensorflow":
        import tensorflow as tf
        model.export_generate(sys.argv[2])
        serve = tf.saved_model.load(sys.argv[2]).signatures["serving_default"]
        served = serve(source=tf.constant(texts))["texts"].numpy()
        print(json.dumps([x.decode() for x in served]))
"""


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


@pytest.mark.parametrize("encoding", fast(["utf-8", "ascii"], ["utf-8"]))
def test_the_demo_prints_texts_and_shades(encoding, capsys):
    """A character that the vocabulary lacks, nothing, many characters: they change no other."""
    sys.stdout.reconfigure(encoding=encoding)
    strange = ["", "\N{SNOWMAN}", "May " * 100, "the third of May, 1998"]
    end, dark, texts = ("?", "[*#]", []) if encoding == "ascii" else ("⏎", "[▓█]", strange)
    demo("--model", str(MODELS["dates"]), *texts)
    lines = capsys.readouterr().out.splitlines()
    first = lines.index("the third of May, 1998 -> 1998-05-03")
    shown, *rows = lines[first + 1 : first + 13]
    assert shown == f"  the third of May, 1998{end}"
    assert "".join(line[0] for line in rows) == f"1998-05-03{end}"
    assert re.search(dark, "".join(rows))
    assert texts or "12/25/07 -> 2007-12-25" in lines
    with pytest.raises(SystemExit, match="must be valid Unicode"):
        demo("--model", str(MODELS["dates"]), "\udcff")


def test_what_can_go_wrong(tmp_path, monkeypatch):
    none, wrong, other = (tmp_path / f"{name}.keras" for name in ("none", "wrong", "other"))
    wrong.write_bytes(b"PK no zip")
    keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)]).save(other)
    remedy = r"\nGive a .keras file of a Seq2Seq with tokenizers, or no --model."
    unloaded, another = "could not be loaded: .*", "is no model from texts to texts, but <Sequ.*"
    for path, why in ((none, unloaded), (wrong, unloaded), (other, another)):
        with pytest.raises(SystemExit, match=re.escape(str(path)) + f" {why}{remedy}"):
            demo("--model", str(path))
    get_file = functools.partial(keras.utils.get_file, cache_dir=tmp_path)
    monkeypatch.setattr(keras.utils, "get_file", get_file)
    for path, why in ((wrong, "file hash does not match"), (none, "No such file")):
        monkeypatch.setattr(_demo, "ADDRESS", path.as_uri())
        message = rf"could not be downloaded: (.|\n)*{why}(.|\n)*Check the connection"
        with pytest.raises(SystemExit, match=message):
            demo()


@pytest.mark.slow
def test_the_models_write_the_same_on_all_backends_and_in_a_saved_model(tmp_path):
    """1,000 dates that were not trained on, and 1,000 words of our pages."""
    pages = [path.read_text("utf-8") for path in sorted((ROOT / "docs").rglob("*.md"))]
    words = dict.fromkeys(re.findall(r"\b[a-z]{3,}\b", " ".join(pages)))
    unseen = train_demo.load_pairs(train_demo.parse(["dates"]))[2][0]
    texts = {str(MODELS["dates"]): unseen, str(MODELS["phones"]): [*words][:1000]}
    found = []
    for backend in filter(importlib.util.find_spec, BACKENDS):
        environment = os.environ | {"PYTHONPATH": str(ROOT), "KERAS_BACKEND": backend}
        options = {"env": environment, "capture_output": True, "text": True, "check": True}
        command = [sys.executable, "-c", GENERATE, json.dumps(texts), str(tmp_path / "served")]
        found += subprocess.run(command, **options).stdout.splitlines()
    assert [len(json.loads(x)) for x in {*found}] == [1000, 1000]
