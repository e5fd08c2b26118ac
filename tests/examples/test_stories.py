"""Stories: their files, the generated ones, their ids, noise, training, and runs."""

import json
import re
import subprocess
import sys

import keras
import numpy as np
import pytest

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


@pytest.mark.slow
def test_what_a_run_prints_and_writes(tmp_path):
    for kind, seed in (("train", 1), ("test", 2)):
        lines = []
        for question in generator.make(60, 2, seed):
            lines += [f"{n} {sentence}" for n, sentence in enumerate(question.story, 1)]
            facts = " ".join(str(n + 1) for n in question.facts)
            asked = f"{question.text}\t{question.answer}\t{facts}"
            lines.append(f"{len(question.story) + 1} {asked}")
        write(tmp_path, "\n".join(lines) + "\n", f"qa2_made-up-2_{kind}.txt")
    output = tmp_path / "output"
    options = f"--output {output} --task 2 --repeats 2 --hops 2 1 --jobs 2 --epochs 4 --units 7"
    command = [sys.executable, "-m", "examples.stories", "--data", tmp_path, *options.split()]
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    assert "models to train: 4 of 4" in printed
    assert printed.count("training error") == 4 + 2
    entries = json.loads((output / "results.json").read_text())
    assert len(entries) == len([*(output / "weights").iterdir()]) == 4
    tables = re.findall(r"^ +(\d) made up \d +([\d.]+) +[\d.]+ ± [\d.]+$", printed, re.M)
    for (task, error), hops in zip(tables, "21", strict=True):
        found = [x for x in entries if x["model"].startswith(f"{task}-hops-{hops}-")]
        best = min(found, key=lambda x: (x["train_error"], x["train_loss"]))
        assert float(error) == pytest.approx(best["test_errors"][task], abs=0.051)
    assert {x.name for x in (output / "task-2").iterdir()} == {"model.keras", "hops.png"}
    model = keras.saving.load_model(output / "task-2" / "model.keras")
    found = model([np.ones((1, 4, 3), "int32"), np.ones((1, 2), "int32")])
    assert found["hop_weights"].shape == (1, 2, 4)
