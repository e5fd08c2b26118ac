"""Texts that no task reads, and folders that belong to one run at a time."""

import contextlib
import importlib
import subprocess
import sys

import keras
import pytest

from examples.common import files
from tests import ROOT, Killed

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


COMMANDS = {name: [] for name in ("bags", "documents", "question_answering", "translation")}
COMMANDS |= {"speech": ["listen"], "stories": ["--task", "1"]}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_second_run_is_refused_before_it_trains(name, tmp_path):
    pytest.importorskip("tensorflow_text", reason="the translation needs it")
    pytest.importorskip("sklearn")
    if name == "speech" and keras.backend.backend() != "tensorflow":
        pytest.skip("speech runs on TensorFlow only")
    folder = tmp_path / "run" / ("listen" if name == "speech" else "")
    command = importlib.import_module(f"examples.{name}.__main__")
    with held(folder), pytest.raises(SystemExit, match=REFUSED):
        command.main([*COMMANDS[name], "--output", str(tmp_path / "run")])
    assert [path.name for path in folder.iterdir()] == [".lock"]


FULL = r"file.txt cannot be written: disk full\. Earlier results are unchanged"


@pytest.mark.parametrize("error", [Killed(), OSError("disk full")], ids=["killed", "full"])
def test_a_file_is_replaced_only_when_the_new_one_is_complete(error, tmp_path):
    path = tmp_path / "file.txt"
    files.write_text(path, "old")

    raised, message = (SystemExit, FULL) if isinstance(error, OSError) else (Killed, None)
    with pytest.raises(raised, match=message), files.whole_file(path) as temporary:  # noqa: PT012
        temporary.write_text("half")
        raise error
    assert path.read_text() == "old"
    assert [*tmp_path.iterdir()] == [path]


def test_results_are_found_again_and_belong_to_their_settings(tmp_path):
    def results(*sizes):
        return files.Results(tmp_path / "results.json", {"seed": 1, "sizes": sizes})

    results(2, 3).add({"task": 1, "error": 0.5})
    again = results(2, 3)
    assert again.find(task=1) == {"task": 1, "error": 0.5}
    assert again.find(task=2) is None
    with pytest.raises(SystemExit, match=r"sizes: \[2, 3\] then, \[2, 4\] now"):
        results(2, 4)
    for content in ("[", "{}"):
        (tmp_path / "results.json").write_text(content)
        with pytest.raises(SystemExit, match=r"results.json: cannot be used .* Delete"):
            results(2, 3)
