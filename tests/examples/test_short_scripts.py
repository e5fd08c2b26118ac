"""The short example scripts: they can be copied as they are, and they do what they promise."""

import ast
import concurrent.futures
import importlib
import json
import os
import re
import runpy
import signal
import subprocess
import sys
import tomllib
import urllib.request

import keras
import pytest
import tensorflow as tf

from tests import ROOT, imports_of
from tests.helpers import wait_for

# These are not in the gallery.
OTHERS = {"search_onnx", "serve_model", "train_demo", "train_on_devices", "tune_attention"}
OTHERS |= {"__init__", "bag_tests", "describe_pictures", "read_numbers"}
SCRIPTS = sorted({x.stem for x in (ROOT / "examples").glob("*.py")} - OTHERS)
ALLOWED = {"keras", "keras_attention", "matplotlib", "numpy", *sys.stdlib_module_names}
PARTS = ["Data", "Model", "Training", "Result", "Picture"]
# A cell of text, as sphinx-gallery reads it: a title, its underline, and a paragraph.
CELL = re.compile(r"^# %%\n# (.+)\n# (-+)\n((?:# .+\n)+)", re.MULTILINE)
every_script = pytest.mark.parametrize("name", SCRIPTS)


def path_of(name):
    return ROOT / "examples" / f"{name}.py"


@every_script
def test_a_script_is_short_and_imports_only_what_a_notebook_has(name):
    source = path_of(name).read_text("utf-8")
    assert len(source.splitlines()) <= 150
    assert "keras.src" not in source
    assert {module.split(".")[0] for module, _ in imports_of(path_of(name))} <= ALLOWED


@every_script
def test_a_script_has_the_parts_of_the_others_and_links_all_that_it_uses(name):
    """Every name of ours has a link to its page, and every link is a public name."""
    source = path_of(name).read_text("utf-8")
    docstring, cells = ast.get_docstring(ast.parse(source)), CELL.findall(source)
    title, underline, blank, *rest = docstring.splitlines()
    assert (underline, blank) == ("=" * len(title), "")
    assert re.search(r"Look at the picture.*  Paper: .*https://", " ".join(rest))
    assert all(len(title) == len(underline) for title, underline, _ in cells)
    assert len(cells) == source.count("# %%")
    assert [title for title, *_ in cells if title in PARTS] == PARTS
    links = set(re.findall(r":py:obj:`([^`]+)`", " ".join([docstring, *(x[2] for x in cells)])))
    ours = {x for x in imports_of(path_of(name)) if x[0].startswith("keras_attention")}
    assert {".".join(x) for x in ours} <= links
    for link in links:
        module, _, public = link.rpartition(".")
        assert public in importlib.import_module(module).__all__
    table = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    assert table.count(f"| `python examples/{name}.py` |") == 1


def run_here(monkeypatch, name, *argv):
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *argv])
    return runpy.run_path(str(path_of(name)), run_name="__main__")


def trained(*args, **kwargs):
    raise AssertionError("the script trains a model")


@every_script
def test_help_explains_a_script_and_trains_nothing(name, monkeypatch, capsys):
    monkeypatch.setattr(keras.Model, "fit", trained)
    with pytest.raises(SystemExit) as ended:
        run_here(monkeypatch, name, "--help")
    assert ended.value.code == 0
    title = ast.get_docstring(ast.parse(path_of(name).read_text("utf-8"))).splitlines()[0]
    assert title in capsys.readouterr().out


@pytest.mark.exhaustive
def test_a_search_compares_the_best_with_the_default(tmp_path, monkeypatch, capsys):
    pytest.importorskip("keras_tuner", reason="keras-tuner is not installed")
    script = importlib.import_module("examples.tune_attention")
    small = {"SIZES": (64, 8, 8), "TRIALS": 2, "EPOCHS": 1, "FOLDER": tmp_path / "search"}
    for name, value in small.items():
        monkeypatch.setattr(script, name, value)
    for _ in range(2):  # the second time, all trials are there
        script.main()
        printed = capsys.readouterr().out
        assert len(re.findall(r"^0\.\d+ of the characters: ", printed, re.M)) == 2
        assert re.search(r"^best: \d+\.\d% of \d+ new dates right", printed, re.M)
    assert "Epoch 1/1" not in printed


@pytest.mark.slow
def test_images_are_read_and_described(tmp_path):
    """Two small trainings, whose figures, records and pictures are written."""
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    small = ["--epochs", "1", "--tests", "6"]
    for name, options in {
        "read_numbers": ["--strips", "64", "--attention", "location"],
        "describe_pictures": ["--pictures", "64"],
    }.items():
        record = tmp_path / f"{name}.toml"
        ends = ["--output", str(tmp_path / name), "--record", str(record)]
        script = importlib.import_module(f"examples.{name}")
        figures = script.main([*options, *small, *ends])
        assert all(0 <= figures[x] <= 100 for x in figures if x.endswith("%"))
        assert tomllib.loads(record.read_text("utf-8"))["figures"].keys() == figures.keys()
        assert list((tmp_path / name).glob("*wrong*.png"))
    assert figures["sentences of the SavedModel alike, %"] == 100


class Reverser(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec((None,), tf.string, "source")])
    def __call__(self, source):
        letters = tf.reverse(tf.strings.unicode_split(source, "UTF-8").to_tensor(), [1])
        return {"texts": tf.strings.reduce_join(letters, 1), "count": tf.strings.length(source)}


@pytest.mark.slow
def test_a_model_is_served(tmp_path):
    pytest.importorskip("litserve", reason="LitServe is not installed")
    module, port = Reverser(), 8100 + os.getpid() % 800
    tf.saved_model.save(module, str(tmp_path), {"serving_default": module.__call__})
    command = [sys.executable, ROOT / "examples" / "serve_model.py", tmp_path, "--port", str(port)]

    def post(body):
        headers, address = {"Content-Type": "application/json"}, f"http://127.0.0.1:{port}/predict"
        request = urllib.request.Request(address, json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request) as reply:
                return reply.status, json.load(reply)
        except urllib.error.HTTPError as error:
            return error.code, None

    def ready():
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{port}/health").status == 200
        except OSError:
            return False

    # A group of its own, because the server leaves its workers behind.
    with subprocess.Popen([*command, "--max-batch", "64"], start_new_session=True) as server:
        try:
            wait_for(ready)
            assert post({"source": "Größe"}) == (200, {"texts": "eßörG", "count": 7})
            with concurrent.futures.ThreadPoolExecutor(9) as pool:
                found = list(pool.map(post, [{"source": f"a{n}"} for n in range(20)]))
            assert [reply["texts"] for _, reply in found] == [f"a{n}"[::-1] for n in range(20)]
            for wrong in ({}, {"source": 3}, {"source": "x" * 20_001}, ["a"]):
                assert post(wrong)[0] == 422
            assert post({"source": "x" * 2**20})[0] == 413
        finally:
            os.killpg(server.pid, signal.SIGTERM)
