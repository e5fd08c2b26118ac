"""Stories: their files, the generated ones, their ids, noise, training, and runs."""

import collections
import json
import re
import subprocess
import sys

import keras
import numpy as np
import pytest

from examples.stories import __main__ as command
from examples.stories import data, generator, reading
from examples.stories.reading import Question
from tests.examples import assert_ends

FILE = """1 Ann went out.
2 Bob stayed, of course.
3 Where is Ann?\tout\t1
4 Ann came back.
5 Who is in?\tann,bob\t2 4
1 It rains.
2 Is it dry? \t no
"""
ANN, BOB = "Ann went out.", "Bob stayed, of course."
QUESTIONS = [
    Question((ANN, BOB), "Where is Ann?", "out", (0,)),
    Question((ANN, BOB, "Ann came back."), "Who is in?", "ann,bob", (1, 2)),
    Question(("It rains.",), "Is it dry?", "no", ()),
]


def write(folder, text, name="qa1_a-name_train.txt"):
    path = folder / name
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize("change", [str, lambda s: "\ufeff" + s.replace("\n", "\r\n\n")])
def test_a_file_is_read(tmp_path, change):
    assert reading.read(write(tmp_path, change(FILE))) == QUESTIONS


@pytest.mark.parametrize(("lines", "line", "fragment"), [
    ("Ann went out.", 1, "a number, a space and a sentence, or a number, a space, a question"),
    ("1 Ann went out.\n\n2", 3, "found '2'"),
    ("1 Ann went out.\n²  No", 2, "found '²  No'"),
    ("2 Ann went out.", 1, "the number 1, found 2"),
    ("1 Ann went out.\n3 Where?\tout\t1", 2, "the number 2, or 1 for a new story, found 3"),
    ("1 Ann went out.\n2 Where?\t\t1", 2, "its answer"),
    ("1 Ann went out.\n2 Where?\tout\t1\t1", 2, "found '2 Where?\\tout\\t1\\t1'"),
    ("1 A.\n2 W?\tout\t1\n1 B.\n2 C.\n3 W?\tout\t4", 5, "sentence 4 is none of the story before"),
])  # fmt: skip
def test_a_bad_line_is_named(tmp_path, lines, line, fragment):
    path = write(tmp_path, lines)
    assert_ends(lambda: reading.read(path), f"{path}, line {line}: ", fragment)


def test_folders_that_cannot_be_used(tmp_path):
    """The folder of the other size, and two files of one task."""
    write(tmp_path, FILE)
    read = lambda size: lambda: reading.find_files(tmp_path, size)  # noqa: E731
    assert_ends(read("10k"), "holds no task with", "or with a folder en-10k of")
    write(tmp_path, FILE, "qa1_other_train.txt")
    assert_ends(read("1k"), "qa1_other_train.txt and", "qa1_a-name_train.txt: both are")


def test_files_are_found(tmp_path, capsys):
    (tmp_path / "en").mkdir()  # of the archive
    for name in ("qa2_b_train", "qa2_b_test", "qa10_c_test", "qa10_c_train", "qa3_d_test", "notes"):
        write(tmp_path / "en", "", f"{name}.txt")
    found = reading.find_files(tmp_path, "1k")
    assert {n: (x["train"].name, x["test"].name) for n, x in found.items()} == {
        2: ("qa2_b_train.txt", "qa2_b_test.txt"),
        10: ("qa10_c_train.txt", "qa10_c_test.txt"),
    }
    assert list(found) == [2, 10]
    assert "task 3 has no train file, and is left out" in capsys.readouterr().out


def answer(question):
    place, holder, lies, trail = {}, {}, {}, collections.defaultdict(list)
    for sentence in question.story:
        who, thing = sentence.split()[0], next((t for t in generator.THINGS if t in sentence), None)
        where = next((p for p in generator.PLACES if f" {p}." in sentence), None)
        if where:
            place[who] = where
        elif re.search("picked up|took", sentence):
            assert lies.pop(thing, place[who]) == place[who]
            assert thing not in holder
            holder[thing] = who
        else:
            assert holder.pop(thing) == who
            lies[thing] = place[who]
        for held in (t for t, person in holder.items() if person == who):
            trail[held] += [place[who]] if trail[held][-1:] != [place[who]] else []
    text = question.text
    who = next((p for p in generator.PEOPLE if p in text), None)
    thing = next((t for t in generator.THINGS if t in text), None)
    if who:
        return place[who]
    if "before" not in text:
        return trail[thing][-1]
    asked = next(p for p in generator.PLACES if f" {p}?" in text)
    last = max(n for n, where in enumerate(trail[thing]) if where == asked)
    return trail[thing][last - 1]


@pytest.mark.parametrize("facts", [1, 2, 3])
def test_generated_questions_have_their_answers(facts):
    questions = generator.make(300, facts, seed=5)
    assert len(questions) == 300
    for question in questions:
        assert question.answer == answer(question)
        assert len(question.facts) in ((facts, facts + 1) if facts == 3 else (facts,))
    assert set(q.answer for q in questions) == set(generator.PLACES)
    assert max(len(q.story) for q in questions) <= 50


def test_encoded_is_the_text():
    encoder = data.Encoder(QUESTIONS)
    encoded, listed = encoder.encode(QUESTIONS), ["", *encoder.listed, "?"]

    def words_of(ids):
        return " ".join(listed[word] for word in ids if word)

    assert not encoded.sentences[0].any()
    story, asked = encoded.inputs(memory=50)
    assert story.shape == (3, 3, 4)
    assert [[words_of(sentence) for sentence in one] for one in story] == [
        ["", "ann went out", "bob stayed of course"],
        ["ann went out", "bob stayed of course", "ann came back"],
        ["", "", "it rains"],
    ]
    assert [words_of(ids) for ids in asked] == ["where is ann", "who is in", "is it dry"]
    assert [words_of([word]) for word in encoded.answers] == ["out", "ann,bob", "no"]
    # A memory shorter than the story holds the last sentences.
    assert np.array_equal(encoded.inputs(memory=2)[0], story[:, -2:])


@pytest.fixture(scope="module")
def data_path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    for number in (1, 2):
        for kind, seed in (("train", 1), ("test", 2)):
            lines = []
            for question in generator.make(60, number, seed):
                lines += [f"{n} {sentence}" for n, sentence in enumerate(question.story, 1)]
                facts = " ".join(str(n + 1) for n in question.facts)
                asked = f"{question.text}\t{question.answer}\t{facts}"
                lines.append(f"{len(question.story) + 1} {asked}")
            path = folder / f"qa{number}_made-up-{number}_{kind}.txt"
            path.write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def whole_run(data_path, tmp_path_factory):
    output = tmp_path_factory.mktemp("run") / "output"
    options = f"--output {output} --repeats 2 --hops 2 1 --jobs 2 --epochs 4 --units 7".split()
    command = [sys.executable, "-m", "examples.stories", "--data", str(data_path), *options]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return output, run.stdout


@pytest.mark.slow
def test_what_a_run_prints_and_writes(whole_run):
    output, printed = whole_run
    assert "models to train: 8 of 8" in printed
    assert printed.count("training error") == 8 + 2
    entries = json.loads((output / "results.json").read_text())
    assert len(entries) == len([*(output / "weights").iterdir()]) == 8
    tables = re.findall(r"^ +(\d) made up \d +([\d.]+) +[\d.]+ ± [\d.]+$", printed, re.M)
    assert len(tables) == 4
    for (task, error), hops in zip(tables, "2211", strict=True):
        found = [x for x in entries if x["model"].startswith(f"{task}-hops-{hops}-")]
        best = min(found, key=lambda x: (x["train_error"], x["train_loss"]))
        assert float(error) == pytest.approx(best["test_errors"][task], abs=0.051)
    for task in ("task-1", "task-2"):
        assert {x.name for x in (output / task).iterdir()} == {"model.keras", "hops.png"}
    model = keras.saving.load_model(output / "task-2" / "model.keras")
    found = model([np.ones((1, 4, 3), "int32"), np.ones((1, 2), "int32")])
    assert found["hop_weights"].shape == (1, 2, 4)


def test_tasks_that_cannot_be_used(data_path, tmp_path):
    output = tmp_path / "x"
    for kind in ("train", "test"):
        write(tmp_path, "1 Ann is home.\n2 Where is Ann?\thome\t1\n", f"qa1_a_{kind}.txt")
    for line, *words in (
        (f"--data {data_path} --task 1 7", "--task 1 7: ", " has the tasks 1, 2."),
        (f"--data {tmp_path}", "task 1: 1 questions to train on, fewer than 20"),
    ):
        argv = [*line.split(), "--output", str(output)]
        assert_ends(lambda argv=argv: command.main(argv), *words)
    assert not output.exists()
