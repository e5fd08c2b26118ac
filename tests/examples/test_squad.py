"""SQuAD files, their scores, and the generated passages."""

import collections
import json

import pytest

from examples.question_answering import evaluation, passages, squad
from examples.question_answering.passages import FIRST_NAMES, KINDS, SURNAMES, TOWNS

PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
PASSAGE = "In 1843 Zoë Grünwald — “the owl” — built a mill."


def entry(name="q", question="Who built a mill?", answers=(("Zoë Grünwald", 8),)):
    answers = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": name, "question": question, "answers": answers}


def document(*entries, passage=PASSAGE):
    return {
        "version": "1.1",
        "data": [{"title": "t", "paragraphs": [{"context": passage, "qas": list(entries)}]}],
    }


def write(path, content):
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    return str(path)


def refusal(path, training=True):
    with pytest.raises(SystemExit) as error:
        squad.read(path, training)
    message = str(error.value)
    assert message.startswith(str(path))
    assert message.endswith("Nothing was written.")
    return message


# --- scoring -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The  quick,\n brown\tfox!", "quick brown fox"),
        ("a theory of an Athenian anthem", "theory of athenian anthem"),
        (PUNCTUATION, ""),
        # Punctuation is removed before articles, so the words around it become one word.
        ("a.the.n", "athen"),
        # Punctuation that is not ASCII stays and separates words.
        ("“Café” – the Élan’s", "“café” – élan’s"),
        ("ÉCOLE\u00a0Straße", "école straße"),
    ],
)
def test_texts_are_normalized_as_published(text, normal):
    assert evaluation.normalize(text) == normal


@pytest.mark.parametrize(
    ("prediction", "answers", "exact", "f1"),
    [
        ("the Mill.", ["mill"], True, 1),
        ("stone mill", ["windmill", "a stone mill", "mill"], True, 1),
        ("old stone mill", ["windmill", "mill", "stone mill"], False, 4 / 5),
        ("owl", ["the mill"], False, 0),
        ("ring ring ring", ["ring a ring"], False, 4 / 5),
        ("mill", [""], False, 0),
        ("", [""], True, 0),
        ("The", ["?!"], True, 0),
        ("“owl”", ["owl"], False, 0),
        ("U.S.", ["us"], True, 1),
    ],
)
def test_scores_of_an_answer(prediction, answers, exact, f1):
    assert evaluation.exact_match(prediction, answers) is exact
    assert evaluation.f1(prediction, answers) == pytest.approx(f1, abs=1e-12)


def test_a_test_set_is_scored_in_percent_with_missing_answers_as_wrong():
    answers = [("mill",), ("stone mill", "the old mill"), ("1843",), ("",)]
    examples = [squad.Example(f"q{i}", "p", "q", gold, 0) for i, gold in enumerate(answers)]
    predictions = {"q0": "A mill", "q1": "mill", "q3": "the", "other": "1843"}
    assert evaluation.score(predictions, examples) == {
        "exact_match": 50,
        "f1": pytest.approx(100 * (1 + 2 / 3 + 0 + 0) / 4),
        "questions": 4,
    }
    assert evaluation.score({}, examples)["f1"] == 0


# --- reading -------------------------------------------------------------------------------------


@pytest.mark.parametrize("training", [True, False])
def test_a_good_file_is_read_with_offsets_in_characters(tmp_path, training):
    content = document(
        entry("one", answers=[("Zoë Grünwald", 8), ("Grünwald", 12)]),
        entry("two", "What did she build?", [("a mill", PASSAGE.index("a mill"))]),
    )
    content["data"] += document(entry("three", answers=[("Zoë", 0)]), passage="Zoë")["data"]
    path = tmp_path / "good.json"
    write(path, content)
    expected = [
        ("one", PASSAGE, "Who built a mill?", ("Zoë Grünwald", "Grünwald"), 8),
        ("two", PASSAGE, "What did she build?", ("a mill",), 41),
        ("three", "Zoë", "Who built a mill?", ("Zoë",), 0),
    ]
    assert PASSAGE[41:47] == "a mill"
    assert squad.read(path, training) == (expected, collections.Counter())
    # Escapes and a byte-order mark change nothing.
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(content).encode("ascii"))
    assert squad.read(str(path), training)[0] == expected


def test_questions_nothing_can_be_learned_from_are_left_out_of_training_alone(tmp_path):
    content = document(
        entry("good"),
        entry("no question", " \n"),
        entry("no answer", answers=[]),
        entry("another", answers=[]),
        entry("empty", answers=[(" ", 2), ("mill", 43)]),
        entry("bytes", answers=[("built", len("In 1843 Zoë Grünwald — “the owl” — ".encode()))]),
        entry("far", answers=[("mill", 10**30)]),
        entry("cut", answers=[("mill. And", 43)]),
        entry("second wrong", answers=[("mill", 43), ("mill", 1)]),
    )
    blank = document(entry("no passage", answers=[("", 0)]), passage="\t ")
    content["data"] += blank["data"]
    path = write(tmp_path / "mixed.json", content)
    examples, skipped = squad.read(path, training=True)
    assert [example.id for example in examples] == ["good", "second wrong"]
    assert skipped == {
        "question empty": 1,
        "no answer": 2,
        "answer empty": 1,
        "answer not at its offset": 3,
        "passage empty": 1,
    }
    examples, skipped = squad.read(path, training=False)
    assert skipped == {"no answer": 2}
    assert {example.id: example.start for example in examples} == {
        "good": 8,
        "no question": 8,
        "empty": 2,
        "bytes": 45,
        "far": 10**30,
        "cut": 43,
        "second wrong": 43,
        "no passage": 0,
    }


def changed(value, *place):
    """A good file with one part replaced, or removed if the value is `...`."""
    content = document(entry("first"), entry("second"))
    *parents, last = place
    part = content
    for key in parents:
        part = part[key]
    if value is ...:
        del part[last]
    else:
        part[last] = value
    return content


PARAGRAPH = ("data", 0, "paragraphs", 0)
QUESTION = (*PARAGRAPH, "qas", 1)
ANSWER = (*QUESTION, "answers", 0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "list indices must be integers"),
        ({}, "KeyError: 'data'"),
        (changed(7, "data", 0), "'int' object is not subscriptable"),
        (changed({}, "data"), "expected a list in data; found '{}'"),
        (changed("x", *PARAGRAPH, "qas"), "expected a list in qas; found 'x'"),
        (changed(1.5, *PARAGRAPH, "context"), "found ('first', 1.5, "),
        (changed(None, *QUESTION, "question"), ", None, [{"),
        (changed("\ud800", *QUESTION, "question"), "surrogates not allowed"),
        (changed(12, *QUESTION, "id"), "found (12, "),
        (changed("mill", *ANSWER), "string indices must be integers"),
        *((changed(n, *ANSWER, "answer_start"), f": {n!r}}}])") for n in ("8", True, -1, 8.0)),
        (changed("first", *QUESTION, "id"), "two questions have the id 'first'"),
    ],
)
def test_json_that_is_not_squad_is_refused(tmp_path, content, message):
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(content), encoding="ascii")
    refused = refusal(path)
    assert refused.startswith(f"{path}: not a file of SQuAD v1.1: ")
    assert message in refused


def test_ids_of_questions_left_out_count_as_well(tmp_path):
    path = write(tmp_path / "twice.json", document(entry("x", answers=[]), entry("x")))
    assert "'x'" in refusal(path)


def test_files_that_are_no_json_are_refused(tmp_path):
    path = tmp_path / "file.json"
    assert "No such file" in refusal(path)
    assert "Is a directory" in refusal(tmp_path)
    path.write_bytes('{"data": "schön"}'.encode("latin-1"))
    assert "not UTF-8 at byte 13 (0xf6)" in refusal(path)
    for text in ("", '{"data": [', "[" * 100_000, '{"data": ' + "1" * 5000 + "}"):
        path.write_text(text)
        assert "Give a JSON file with" in refusal(path)
    for content in ({"data": []}, document()):
        assert "no question of it can be used: it holds none" in refusal(write(path, content))


# --- generated passages --------------------------------------------------------------------------


def test_no_name_is_in_another():
    assert min(map(len, (FIRST_NAMES, SURNAMES, TOWNS))) >= 60
    names = [*FIRST_NAMES, *SURNAMES, *TOWNS, *(x for kind in KINDS.values() for x in kind.things)]
    assert not [(a, b) for a in names for b in names if a is not b and a in b]


def test_answers_stand_once_where_they_are_said_to():
    generated = passages.make_sets([2000], seed=3)[0]
    for example in generated:
        (answer,) = example.answers
        assert example.passage.count(answer) == 1
        assert example.passage[example.start :].startswith(answer)
        words = set(evaluation.normalize(example.question).split())
        assert not words & set(evaluation.normalize(answer).split())
        assert 50 <= len(example.passage.split()) <= 80
    assert 490 <= len({example.passage for example in generated}) <= 510
    assert len({(example.passage, example.question) for example in generated}) == 2000
    assert len([e for e in generated if not e.passage[: e.start].isascii()]) > 200
    answers = [example.answers[0] for example in generated]
    assert min(sum(x in answers for x in pool) for pool in (TOWNS, KINDS["shop"].things)) > 5


def test_sets_share_no_passage():
    sizes = [301, 102, 53]
    sets = passages.make_sets(sizes, seed=1)
    assert [len(examples) for examples in sets] == sizes
    texts = [{example.passage for example in examples} for examples in sets]
    assert len(set.union(*texts)) == sum(map(len, texts))
    assert len({example.id for examples in sets for example in examples}) == sum(sizes)
    assert passages.make_sets(sizes, seed=1) == sets
    assert passages.make_sets(sizes, seed=2) != sets
