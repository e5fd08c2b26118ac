"""Folders that belong to one run at a time, files, words and sentences."""

import contextlib
import importlib
import subprocess
import sys

import keras
import pytest

from examples.common import files
from examples.common.text import Words, edit_distances, split_sentences
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


def sentences_of(text, longest=100):
    return [" ".join(token[0] for token in x) for x in split_sentences(text, longest)]


SHE = ['She [ so ( he said " no ! " ) ] : left']


@pytest.mark.parametrize(("text", "expected"), [
    ("No! Why? So… Yes... Ok?! End", ["No !", "Why ?", "So …", "Yes . . .", "Ok ? !", "End"]),
    ("U.S.A is it, at 3.5 or a.b", ["U . S . A is it , at 3 . 5 or a . b"]),
    ('("No.") She [so (he said "no!")]: left', ['( " No . " )', *SHE]),
    ('It is. "Now" it is', ["It is .", '" Now " it is']),
    ("one\ntwo\r\nthree\n\n \r\n four", ["one", "two", "three", "four"]),
    ("one\rtwo\u2028three \u2029 four\vfive\ffive", ["one", "two", "three", "four five five"]),
    ("北京很好。 我爱北京！\u3000为什么？ 好", ["北京很好 。", "我爱北京 ！", "为什么 ？", "好"]),
    ("naïve e\u0301tude 👍🏽", ["naïve e\u0301tude 👍 🏽"]),
    (" \n\t\u00a0\u3000\r\n", []),
])  # fmt: skip
def test_sentences(text, expected):
    assert sentences_of(text) == expected
    # The rest of a long sentence becomes the next sentence.
    assert sentences_of("a b c d e. f g", 2) == ["a b", "c d", "e .", "f g"]


def test_words_and_letters_that_differ():
    few, many = Words(["the", "é", "cat"]), Words(["the"], 50)
    assert [few(x) for x in ("THE", "É", "dog", "Cat", "a")] == [1, 2, 4, 3, 4]
    assert few.size == 5
    ids = [many(x) for x in "abcdefghA"]
    assert 2 <= min(ids) <= max(ids) < many.size == 52
    assert len(set(ids)) > 3
    assert ids[0] == ids[-1]
    found = ["abc", "", "abc", "", "xabd", "kitten", "ab", ""]
    wanted = ["abc", "abc", "", "", "abcd", "sitting", "ba", ""]
    assert edit_distances(found, wanted).tolist() == [0, 3, 3, 0, 2, 3, 2, 0]
    assert edit_distances([("tʃ", "a")], [("t", "ʃ", "a")]).tolist() == [2]
