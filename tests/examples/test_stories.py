"""The stories: their files, the generated ones, their ids, and noise."""

import collections
import itertools
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples.stories import data, generator, reading
from examples.stories.reading import Question

pytest.importorskip("tensorflow_text", reason="tokens come from it")

FILE = """1 Ann went out.
2 Bob stayed, of course.
3 Where is Ann?\tout\t1
4 Ann came back.
5 Who is in?\tann,bob\t2 4
1 It rains.
2 Is it dry? \t no
"""
QUESTIONS = [
    Question(("Ann went out.", "Bob stayed, of course."), "Where is Ann?", "out", (0,)),
    Question(
        ("Ann went out.", "Bob stayed, of course.", "Ann came back."),
        *("Who is in?", "ann,bob", (1, 2)),
    ),
    Question(("It rains.",), "Is it dry?", "no", ()),
]


def write(folder, text, name="qa1_a-name_train.txt"):
    path = folder / name
    path.write_bytes(text.encode())
    return path


# --- files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", [str, lambda s: "\ufeff" + s.replace("\n", "\r\n\n")])
def test_a_file_is_read(tmp_path, change):
    assert reading.read(write(tmp_path, change(FILE))) == QUESTIONS


@pytest.mark.parametrize(
    ("lines", "line", "fragment"),
    [
        ("Ann went out.", 1, "a number, a space and a sentence, or a number, a space, a question"),
        ("1 Ann went out.\n\n2", 3, "found '2'"),
        ("1 Ann went out.\n²  No", 2, "found '²  No'"),
        ("2 Ann went out.", 1, "the number 1, found 2"),
        ("1 Ann went out.\n3 Where?\tout\t1", 2, "the number 2, or 1 for a new story, found 3"),
        ("1 Ann went out.\n2 Where?\t\t1", 2, "its answer"),
        ("1 Ann went out.\n2 Where?\tout\t1\t1", 2, "found '2 Where?\\tout\\t1\\t1'"),
        ("1 Ann went out.\n2 Where?\tout\t2", 2, "sentence 2 is none of the story before"),
        ("1 A.\n2 W?\tout\t1\n1 B.\n2 C.\n3 W?\tout\t4", 5, "sentence 4"),
    ],
)
def test_a_bad_line_is_named(tmp_path, lines, line, fragment):
    path = write(tmp_path, lines)
    with pytest.raises(SystemExit) as caught:
        reading.read(path)
    message = str(caught.value)
    assert message.startswith(f"{path}, line {line}: ")
    assert fragment in message
    assert message.endswith("Nothing was written.")


def test_folders_that_cannot_be_used(tmp_path):
    """The folder of the other size, none, and two files of one task."""
    write(tmp_path, FILE)
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(SystemExit, match=r"holds no task with .* or with a folder en-10k of"):
            reading.find_files(folder, "10k")
    write(tmp_path, FILE, "qa1_other_train.txt")
    with pytest.raises(SystemExit, match=r"qa1_other_train.txt and qa1_a-name_train.txt: both are"):
        reading.find_files(tmp_path, "1k")


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


# --- generated -----------------------------------------------------------------------------------


def answer(question):
    """The answer of a reader who only knows the sentences."""
    place, holder, lies, trail = {}, {}, {}, collections.defaultdict(list)

    def seen(thing, where):
        if trail[thing][-1:] != [where]:
            trail[thing].append(where)

    for sentence in question.story:
        who, thing = sentence.split()[0], next((t for t in generator.THINGS if t in sentence), None)
        where = next((p for p in generator.PLACES if f" {p}." in sentence), None)
        if where:
            place[who] = where
            for held in (t for t, person in holder.items() if person == who):
                seen(held, where)
        elif re.search("picked up|took", sentence):
            assert lies.pop(thing, place[who]) == place[who]
            assert thing not in holder
            holder[thing] = who
            seen(thing, place[who])
        else:
            assert holder.pop(thing) == who
            lies[thing] = place[who]
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


# --- ids -----------------------------------------------------------------------------------------


def words_of(encoder, ids):
    listed = ["", *encoder.listed, "?"]
    return " ".join(listed[word] for word in ids if word)


def test_encoded_is_the_text():
    encoder = data.Encoder(QUESTIONS)
    encoded = encoder.encode(QUESTIONS)
    assert not encoded.sentences[0].any()
    story, asked = encoded.inputs(memory=50)
    assert story.shape == (3, 3, 4)
    assert [[words_of(encoder, sentence) for sentence in one] for one in story] == [
        ["", "ann went out", "bob stayed of course"],
        ["ann went out", "bob stayed of course", "ann came back"],
        ["", "", "it rains"],
    ]
    assert [words_of(encoder, ids) for ids in asked] == ["where is ann", "who is in", "is it dry"]
    assert [words_of(encoder, [word]) for word in encoded.answers] == ["out", "ann,bob", "no"]
    # A memory shorter than the story holds the last sentences.
    assert np.array_equal(encoded.inputs(memory=2)[0], story[:, -2:])


def test_a_model_of_several_tasks_has_the_last_tenth_of_each_for_validation():
    found = {n: (f"task {n}", generator.make(20 * n, n), generator.make(5, n)) for n in (1, 2)}
    task = data.Task("joint", found, memory=50, noise=0.1)
    assert (len(task.train.answers), len(task.valid.answers)) == (18 + 36, 2 + 4)
    texts = [q.text for n in (1, 2) for q in found[n][1][18 * n :]]
    assert [words_of(task.encoder, ids) for ids in task.valid.questions] == [
        text[:-1].lower() for text in texts
    ]
    assert {n: len(test.answers) for n, test in task.test.items()} == {"1": 5, "2": 5}
    longest = max(len(q.story) for _, train, _ in found.values() for q in train)
    assert task.sizes[2] == longest + np.ceil(longest / 10)
    assert data.Task("joint", found, memory=3, noise=0.1).sizes[2] == 3


def test_every_epoch_has_every_question_in_an_order_of_its_own():
    task = data.Task("1", {1: ("a", generator.make(40, 1), generator.make(5, 1))}, 50, 0.1)
    dataset = task.batches(9, 0.1, [1, 2])
    assert dataset.options().autotune.enabled is False  # see `UNTUNED`
    batches = dataset.as_numpy_iterator()
    epochs = [[next(batches) for _ in range(4)] for _ in range(2)]
    first, second = (np.concatenate([y for _, y in epoch]).tolist() for epoch in epochs)
    assert sorted(first) == sorted(second) == sorted(task.train.answers)
    assert first != second
    (story, question), _ = epochs[0][0]
    assert (story.shape[:2], question.shape[0]) == ((9, task.sizes[2]), 9)


# --- noise ---------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=20), st.floats(0.01, 0.9), st.integers(0, 99)
)
def test_noise_inserts_empty_sentences(lengths, noise, seed):
    width = max(max(lengths), 1)
    table = np.zeros((len(lengths), width), "int32")
    for row, length in zip(table, lengths, strict=True):
        row[width - length :] = np.arange(length) + 1
    noisy = data.noisy(table, noise, np.random.default_rng(seed))
    for row, length in zip(noisy, lengths, strict=True):
        assert row[row > 0].tolist() == list(range(1, length + 1))
        first = np.argmax(row > 0) if length else len(row)
        assert (row[first:] == 0).sum() <= np.ceil(noise * length)
        assert not length or row[-1] == length


def test_each_amount_and_place_of_noise_is_as_likely():
    table = np.tile(np.arange(1, 6, dtype="int32"), (20_000, 1))
    noisy = data.noisy(table, 0.4, np.random.default_rng(3))
    assert noisy.shape[1] == 7
    places = collections.Counter(tuple(np.flatnonzero(row == 0)) for row in noisy)
    # Two of seven places are empty. Without noise these are the first two; with one empty sentence
    # the first and one of the next five; with two any of the first six.
    expected = collections.Counter({(0, 1): 1 / 3})
    for place in range(1, 6):
        expected[0, place] += 1 / 5 / 3
    for pair in itertools.combinations(range(6), 2):
        expected[pair] += 1 / 15 / 3
    assert set(places) == set(expected)
    for pair, share in expected.items():
        assert places[pair] / len(noisy) == pytest.approx(share, abs=0.012)
