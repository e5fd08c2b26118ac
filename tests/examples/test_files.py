"""Texts that no task reads, and folders that belong to one run at a time."""

import argparse
import contextlib
import importlib
import subprocess
import sys

import keras
import pytest

from examples.common import files
from tests import ROOT

HOLD = """
import pathlib, sys
from examples.common.files import own_folder
own_folder(pathlib.Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""
REFUSED = r"another run writes into this folder\. Wait until it ends, or choose another --output"


@contextlib.contextmanager
def held(folder):
    """Starts another process that owns a folder until it is killed."""
    command, pipe = [sys.executable, "-c", HOLD, str(folder)], subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, text=True, stdin=pipe, stdout=pipe) as process:
        try:
            assert process.stdout.readline() == "held\n"
            yield
        finally:
            process.kill()


def test_a_folder_belongs_to_one_run_until_it_is_killed(tmp_path):
    folder = tmp_path / "run"
    with held(folder):
        for _ in range(2):
            with pytest.raises(SystemExit, match=rf"^--output {folder}: {REFUSED}"):
                files.own_folder(folder)
        files.own_folder(tmp_path / "other")
    for _ in range(2):  # the process that owns a folder may run several tasks there
        assert files.own_folder(folder) == folder
    with pytest.raises(AssertionError), held(folder):
        pass


COMMANDS = {
    "bags": [],
    "documents": ["--documents", "50"],
    "pronunciation": [],
    "question_answering": [],
    "speech": ["listen"],
    "stories": ["--task", "1", "--questions", "20"],
    "translation": [],
    "tuning": [],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_second_run_is_refused_before_it_trains(name, tmp_path):
    pytest.importorskip("tensorflow_text", reason="most tasks need it")
    pytest.importorskip("keras_tuner" if name == "tuning" else "sklearn")
    if name == "speech" and keras.backend.backend() != "tensorflow":
        pytest.skip("speech runs on TensorFlow only")
    folder = tmp_path / "run" / ("listen" if name == "speech" else "")
    command = importlib.import_module(f"examples.{name}.__main__")
    with held(folder), pytest.raises(SystemExit, match=REFUSED):
        command.main([*COMMANDS[name], "--output", str(tmp_path / "run")])
    assert [path.name for path in folder.iterdir()] == [".lock"]


def test_a_second_distributed_run_is_refused(tmp_path):
    from examples.distribution import training

    options = argparse.Namespace(output=tmp_path, steps=1, batch=2, units=3)
    with held(tmp_path), pytest.raises(SystemExit, match=REFUSED):
        training.train(options)
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_utf_16_without_a_byte_order_mark_is_refused(tmp_path):
    (tmp_path / "a.tsv").write_bytes("a\tb\n".encode("utf-16-le"))
    with pytest.raises(SystemExit, match=r"a.tsv: holds a NUL.*convert it: iconv -f utf-16"):
        files.read_text(tmp_path / "a.tsv")
