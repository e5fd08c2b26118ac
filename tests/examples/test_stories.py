"""The stories: their files, the generated ones, their ids, and noise."""

import collections
import itertools
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples.stories import encoding, generator, reading
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
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


# --- files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", [str, lambda s: "\ufeff" + s.replace("\n", "\r\n\n")])
def test_a_file_is_read(tmp_path, change):
    assert reading.read(write(tmp_path, change(FILE))) == QUESTIONS


def test_a_question_may_come_before_any_sentence(tmp_path):
    path = write(tmp_path, "1 Who?\tnobody\n2 It rains.\n3 Does it?\tyes\t2\n")
    assert [q.story for q in reading.read(path)] == [(), ("It rains.",)]


@pytest.mark.parametrize(
    ("lines", "line", "fragment"),
    [
        ("Ann went out.", 1, "a number, a space and a sentence, found 'Ann went out.'"),
        ("1 Ann went out.\n\n2", 3, "found '2 '"),
        ("1 Ann went out.\n²  No", 2, "found '²"),
        ("2 Ann went out.", 1, "the number 1, found 2"),
        ("1 Ann went out.\n3 Where?\tout\t1", 2, "the number 2, or 1 for a new story, found 3"),
        ("1 Ann went out.\n2 Where?\t\t1", 2, "its answer"),
        ("1 Ann went out.\n2 \tout\t1", 2, "a question, a tab"),
        ("1 Ann went out.\n2 Where?\tout\t1\t1", 2, "found 'Where?\\tout\\t1\\t1'"),
        ("1 Ann went out.\n2 Where?\tout\t2", 2, "sentence '2' is none of the story before"),
        ("1 Ann went out.\n2 Where?\tout\t1 x", 2, "sentence 'x'"),
        ("1 A.\n2 W?\tout\t1\n1 B.\n2 C.\n3 W?\tout\t4", 5, "sentence '4'"),
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


def test_files_that_cannot_be_used(tmp_path):
    with pytest.raises(SystemExit, match="holds no question"):
        reading.read(write(tmp_path, "1 Ann went out.\n"))
    with pytest.raises(SystemExit, match=r"not UTF-8 at byte 5 \(0xe9\).*iconv"):
        reading.read(write(tmp_path, b"1 Ren\xe9\n"))
    with pytest.raises(SystemExit, match="No such file"):
        reading.read(tmp_path / "none")


def test_files_are_found(tmp_path, capsys):
    for name in ("qa2_b_train", "qa2_b_test", "qa10_c_test", "qa10_c_train", "qa3_d_test", "notes"):
        write(tmp_path, "", f"{name}.txt")
    found = reading.find_files(tmp_path, "1k")
    assert [(n, *(path.name for path in pair)) for n, pair in found.items()] == [
        (2, "qa2_b_train.txt", "qa2_b_test.txt"),
        (10, "qa10_c_train.txt", "qa10_c_test.txt"),
    ]
    assert "task 3 has no train file, and is left out" in capsys.readouterr().out


def test_files_of_the_archive_are_found_by_their_size(tmp_path):
    for folder in reading.FOLDERS.values():
        (tmp_path / folder).mkdir()
        for kind in ("train", "test"):
            write(tmp_path / folder, "", f"qa1_a_{kind}.txt")
    for size, folder in reading.FOLDERS.items():
        assert reading.find_files(tmp_path, size)[1][0].parent.name == folder


def test_two_files_of_one_task_are_refused(tmp_path):
    write(tmp_path, FILE)
    write(tmp_path, FILE, "qa1_other_train.txt")
    with pytest.raises(SystemExit, match=r"qa1_other_train.txt and qa1_a-name_train.txt: both are"):
        reading.find_files(tmp_path, "1k")


def test_folders_that_cannot_be_used(tmp_path):
    write(tmp_path, FILE)
    with pytest.raises(SystemExit, match="no task has a train and a test file"):
        reading.find_files(tmp_path, "1k")
    (tmp_path / "qa1_a-name_train.txt").unlink()
    with pytest.raises(SystemExit, match="not a folder"):
        reading.find_files(tmp_path / "none", "1k")
    with pytest.raises(SystemExit, match=r"holds no file such as .* nor .* folder en-10k"):
        reading.find_files(tmp_path, "10k")


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


@pytest.mark.parametrize("facts", [1, 2, 3])
def test_the_facts_of_a_generated_question_decide(facts):
    for question in generator.make(200, facts, seed=6):
        story = [question.story[n] for n in question.facts]
        people = {sentence.split()[0] for sentence in story}
        things = {thing for thing in generator.THINGS if any(thing in s for s in story)}
        # The facts are the walk to the answer, who took the thing, and the walk away from there.
        assert sum(f" {question.answer}." in sentence for sentence in story) == 1
        assert facts == 1 or {thing for thing in things if thing in question.text} == things
        assert bool(things) == (facts > 1)
        if facts == 1:
            assert people == {question.text.split()[-1][:-1]}
        if facts == 3:
            assert f" {question.text.split()[-1][:-1]}." in story[-1]


def test_generated_questions_are_those_of_their_seed():
    assert generator.make(20, 2, seed=1) == generator.make(20, 2, seed=1)
    assert generator.make(20, 2, seed=1) != generator.make(20, 2, seed=2)


# --- ids -----------------------------------------------------------------------------------------


def words_of(encoder, ids):
    listed = ["", *encoder.listed, "?"]
    return " ".join(listed[word] for word in ids if word)


def test_encoded_is_the_text():
    encoder = encoding.Encoder(QUESTIONS)
    encoded, counts = encoder.encode(QUESTIONS)
    assert not any(counts.values())
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


def test_what_training_did_not_have_is_counted():
    encoder = encoding.Encoder(QUESTIONS)
    asked = [
        Question(("Ann ran out.", "Ann ran out."), "Where is Zoe?", "Out", ()),
        Question((), "Who?", "zoe", ()),
    ]
    encoded, counts = encoder.encode(asked)
    assert counts == {
        "words that were not seen in training": 3,
        "answers outside the vocabulary": 1,
        "empty stories": 1,
    }
    assert encoded.answers.tolist() == [encoder.listed.index("out") + 1, -1]
    story, _ = encoded.inputs(memory=5)
    assert words_of(encoder, story[0, -1]) == "ann ? out"
    assert not story[1].any()


def test_a_line_of_two_sentences_is_two():
    asked = [Question(("It is. It was.",), "Is it? So?", "no", ())]
    encoder = encoding.Encoder(asked)
    encoded, _ = encoder.encode(asked)
    story, question = encoded.inputs(memory=9)
    assert [words_of(encoder, sentence) for sentence in story[0]] == ["it is", "it was"]
    assert words_of(encoder, question[0]) == "is it so"


def test_several_tasks_are_joined():
    encoder = encoding.Encoder(QUESTIONS)
    parts = [encoder.encode(QUESTIONS[:2])[0], encoder.encode(QUESTIONS[2:])[0]]
    joined, whole = encoding.join(parts), encoder.encode(QUESTIONS)[0]
    for x, y in zip(joined.inputs(50), whole.inputs(50), strict=True):
        assert np.array_equal(x, y)
    assert np.array_equal(joined.answers, whole.answers)


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
    noisy = encoding.noisy(table, noise, np.random.default_rng(seed))
    for row, length in zip(noisy, lengths, strict=True):
        assert row[row > 0].tolist() == list(range(1, length + 1))
        first = np.argmax(row > 0) if length else len(row)
        assert (row[first:] == 0).sum() <= np.ceil(noise * length)
        assert not length or row[-1] == length


def test_each_amount_and_place_of_noise_is_as_likely():
    table = np.tile(np.arange(1, 6, dtype="int32"), (20_000, 1))
    noisy = encoding.noisy(table, 0.4, np.random.default_rng(3))
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
