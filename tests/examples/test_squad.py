"""SQuAD files, their scores, and the generated passages."""

import collections
import functools
import itertools
import json
import os
import re
import subprocess
import sys

import pytest

from examples.question_answering import passages, scoring, squad
from examples.question_answering.facts import FIRST_NAMES, KINDS, SURNAMES, TOWNS

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
        ("The", ""),
        ("", ""),
        (PUNCTUATION, ""),
        (f"x{PUNCTUATION}y", "xy"),
        # Punctuation is removed before articles, so the words around it become one word.
        ("a.the.n", "athen"),
        ("t-h-e end", "end"),
        # Punctuation that is not ASCII stays and separates words.
        ("“Café” – the Élan’s", "“café” – élan’s"),
        ("l’a–b", "l’ –b"),
        ("ÉCOLE\u00a0Straße", "école straße"),
    ],
)
def test_texts_are_normalized_as_published(text, normal):
    assert scoring.normalize(text) == normal


@pytest.mark.parametrize(
    ("prediction", "answers", "exact", "f1"),
    [
        ("the Mill.", ["mill"], True, 1),
        ("stone mill", ["mill"], False, 2 / 3),
        ("stone mill", ["windmill", "a stone mill", "mill"], True, 1),
        ("old stone mill", ["windmill", "mill", "stone mill"], False, 4 / 5),
        ("owl", ["the mill"], False, 0),
        ("ring ring ring", ["ring a ring"], False, 4 / 5),
        ("ring", ["ring ring ring"], False, 1 / 2),
        ("mill stone", ["stone mill"], False, 1),
        ("", ["mill"], False, 0),
        ("mill", [""], False, 0),
        ("", [""], True, 0),
        ("The", ["?!"], True, 0),
        ("café", ["cafe"], False, 0),
        ("“owl”", ["owl"], False, 0),
        ('"owl"', ["owl"], True, 1),
        ("1843–1850", ["1843-1850"], False, 0),
        ("U.S.", ["us"], True, 1),
        ("anything", [], False, 0),
    ],
)
def test_scores_of_an_answer(prediction, answers, exact, f1):
    assert scoring.exact_match(prediction, answers) is exact
    assert scoring.f1(prediction, answers) == pytest.approx(f1, abs=1e-12)


def test_a_test_set_is_scored_in_percent_with_missing_answers_as_wrong():
    answers = [("mill",), ("stone mill", "the old mill"), ("1843",), ("",)]
    examples = [squad.Example(f"q{i}", "p", "q", gold, 0) for i, gold in enumerate(answers)]
    predictions = {"q0": "A mill", "q1": "mill", "q3": "the", "other": "1843"}
    scores = scoring.evaluate(predictions, examples)
    assert scores == {
        "exact_match": 50,
        "f1": pytest.approx(100 * (1 + 2 / 3 + 0 + 0) / 4),
        "questions": 4,
        "unanswered": 1,
    }
    assert scoring.evaluate({}, examples) == {
        "exact_match": 0,
        "f1": 0,
        "questions": 4,
        "unanswered": 4,
    }
    with pytest.raises(ValueError, match="no question to score"):
        scoring.evaluate(predictions, [])


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
    ("content", "place", "found", "expected"),
    [
        ([], "the top level", "a list", "a list under 'data'"),
        ("data", "the top level", 'the string "data"', "a list under 'data'"),
        (None, "the top level", "null", "a list under 'data'"),
        ({}, "the top level", "nothing", "a list under 'data'"),
        (changed({}, "data"), "the top level", "an object", "a list under 'data'"),
        (changed(None, "data"), "the top level", "null", "a list under 'data'"),
        (changed(7, "data", 0), "data[0]", "the number 7", "a list under 'paragraphs'"),
        (changed(..., *PARAGRAPH[:3]), "data[0]", "nothing", "a list under 'paragraphs'"),
        (changed([], *PARAGRAPH), "data[0].paragraphs[0]", "a list", "a string under 'context'"),
        (
            changed(1.5, *PARAGRAPH, "context"),
            "data[0].paragraphs[0]",
            "the number 1.5 under 'context'",
            "a string under 'context'",
        ),
        (changed("x", *PARAGRAPH, "qas"), "data[0].paragraphs[0]", '"x"', "a list under 'qas'"),
        (changed("x", *QUESTION), "qas[1]", 'the string "x"', "a string under 'question'"),
        (changed(..., *QUESTION, "question"), "qas[1]", "nothing", "a string under 'question'"),
        (changed(None, *QUESTION, "question"), "qas[1]", "null", "a string under 'question'"),
        (changed("\ud800", *QUESTION, "question"), "qas[1]", "surrogate", "a string under"),
        (changed(12, *QUESTION, "id"), "qas[1]", "the number 12", "a string under 'id'"),
        (changed(..., *QUESTION, "id"), "qas[1]", "nothing", "a string under 'id'"),
        (changed({}, *QUESTION, "answers"), "qas[1]", "an object", "a list under 'answers'"),
        (changed(..., *QUESTION, "answers"), "qas[1]", "nothing", "a list under 'answers'"),
        (changed("mill", *ANSWER), "qas[1].answers[0]", '"mill"', "a string under 'text'"),
        (changed(3, *ANSWER, "text"), "qas[1].answers[0]", "3", "a string under 'text'"),
        (changed(..., *ANSWER, "text"), "answers[0]", "nothing", "a string under 'text'"),
        *(
            (
                changed(start, *ANSWER, "answer_start"),
                "data[0].paragraphs[0].qas[1].answers[0]",
                found,
                "a whole number of at least 0 under 'answer_start'",
            )
            for start, found in [
                ("8", 'the string "8"'),
                (True, "true"),
                (-1, "the number -1"),
                (8.0, "the number 8.0"),
                (float("nan"), "the number NaN"),
                (None, "null"),
                ([8], "a list"),
                (..., "nothing"),
            ]
        ),
        (changed("first", *QUESTION, "id"), "qas[1]", "the id 'first'", "ids that differ"),
        ({"data": []}, "", "no question", "at least one"),
        (document(), "", "no question", "at least one"),
    ],
)
@pytest.mark.parametrize("training", [True, False])
def test_json_that_is_not_squad_is_refused_with_the_place(
    tmp_path, content, place, found, expected, training
):
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(content), encoding="ascii")
    message = refusal(path, training)
    head, expectation = message.removeprefix(f"{path}: ").split("expected ", 1)
    where, _, what = head.partition("found ")
    assert where.endswith(f"{place}: ") or not place
    assert found in what or found in head
    assert expectation.startswith(expected)


def test_ids_of_questions_left_out_count_as_well(tmp_path):
    path = write(tmp_path / "twice.json", document(entry("x", answers=[]), entry("x")))
    assert "'x'" in refusal(path)


def test_files_that_are_no_json_are_refused(tmp_path):
    path = tmp_path / "file.json"
    assert "No such file" in refusal(path)
    assert "Is a directory" in refusal(tmp_path)
    path.write_bytes('{"data": "schön"}'.encode("latin-1"))
    assert "not UTF-8 (byte 14)" in refusal(path)
    for text in ("", '{"data": [', "data", "[" * 100_000, '{"data": ' + "1" * 5000 + "}"):
        path.write_text(text)
        assert "not JSON" in refusal(path)


# --- the command ---------------------------------------------------------------------------------


def test_the_command_prints_the_scores_alone(tmp_path):
    wrong = entry("b", answers=[("mill", 2), ("a stone mill", 0)])
    content = document(entry("a"), wrong, entry("c"), entry("d", answers=[]))
    dataset = write(tmp_path / "dataset.json", content)
    predictions = write(tmp_path / "predictions.json", {"a": "zoë grünwald", "b": "stone"})
    module = "examples.question_answering.scoring"
    command = [sys.executable, "-m", module, dataset, predictions]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    scores = json.loads(run.stdout)
    assert scores["exact_match"] == pytest.approx(100 / 3)
    assert scores["f1"] == pytest.approx((100 + 100 * 2 / 3) / 3)
    assert (scores["questions"], scores["unanswered"]) == (3, 1)
    assert run.stderr == f"{dataset}: 1 questions left out: no answer\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([{"q": "mill"}], "found a list, expected an object from question ids to texts"),
        (None, "found null"),
        ({"q": None}, "found null for the question 'q', expected a string"),
        ({"p": "mill", "q": ["mill"]}, "found a list for the question 'q'"),
        ({"q": 1843}, "found the number 1843 for the question 'q'"),
    ],
)
def test_bad_predictions_are_refused(tmp_path, capsys, content, message):
    dataset = write(tmp_path / "dataset.json", document(entry()))
    predictions = write(tmp_path / "predictions.json", content)
    with pytest.raises(SystemExit) as error:
        scoring.main([dataset, predictions])
    assert str(error.value).startswith(f"{predictions}: {message}")
    assert capsys.readouterr().out == ""


def test_absent_predictions_and_a_test_set_without_answers_are_refused(tmp_path):
    dataset = write(tmp_path / "dataset.json", document(entry(answers=[])))
    absent = str(tmp_path / "absent.json")
    with pytest.raises(SystemExit, match=r"absent\.json: No such file"):
        scoring.main([dataset, absent])
    predictions = write(tmp_path / "predictions.json", {})
    with pytest.raises(SystemExit, match="no question has a gold answer"):
        scoring.main([dataset, predictions])


# --- generated passages --------------------------------------------------------------------------

POOLS = {
    "place": TOWNS,
    "year": [str(year) for year in range(1700, 2000)],
    "thing": [thing for kind in KINDS.values() for thing in kind.things],
    "surname": SURNAMES,
}
PATTERNS = {role: "|".join(map(re.escape, pool)) for role, pool in POOLS.items()}
PATTERNS["who"] = rf"(?:\w+ )?(?:{PATTERNS['surname']})"


@pytest.fixture(scope="module")
def generated():
    return passages.make_examples(2000, seed=3)


def candidates(role, passage):
    """The parts of a passage that could answer a question, in their order."""
    return list(dict.fromkeys(re.findall(rf"\b(?:{PATTERNS[role]})\b", passage)))


def role_of(answer):
    return next(role for role in ("place", "year", "thing", "who") if matches(role, answer))


def matches(role, text):
    return re.fullmatch(PATTERNS[role], text)


def test_the_pools_are_large_and_hold_no_name_twice():
    assert min(map(len, (FIRST_NAMES, SURNAMES, TOWNS))) >= 60
    names = [*FIRST_NAMES, *SURNAMES, *TOWNS, *POOLS["thing"]]
    assert not [(a, b) for a in names for b in names if a is not b and a in b]


VERBS = {
    "birth": "born",
    "wedding": "marr(ied|y)|wedding",
    "move": "moved?|settled?|home",
    "death": "died?",
    "shop": "sold|sell|seller|shop",
    "school": "taught|teach|teacher|lessons",
    "building": "buil[td]|builder|put up",
    "book": "book|write",
}


def test_every_text_about_a_kind_of_fact_is_about_that_kind_alone():
    assert KINDS.keys() == VERBS.keys()
    for kind, entry in KINDS.items():
        texts = [*entry.predicates, *entry.sentences, *entry.descriptions]
        for role, templates in entry.questions.items():
            assert not [text for text in templates if f"{{{role}}}" in text]
            start = {
                "who": "Who ",
                "place": "Where |.*[Ww]hich town ",
                "year": "When |In which year ",
            }
            assert all(re.match(start.get(role, "What |.*[Ww]hich "), text) for text in templates)
            texts += templates
        for text in texts:
            assert [k for k, verb in VERBS.items() if re.search(rf"\b({verb})\b", text)] == [kind]


def test_examples_are_reproducible_and_as_many_as_asked_for(generated):
    assert passages.make_examples(2000, seed=3) == generated
    assert passages.make_examples(50, seed=3) == generated[:50]
    assert not {e.passage for e in passages.make_examples(2000, seed=4)} & {
        e.passage for e in generated
    }
    assert [len(passages.make_examples(size)) for size in (0, 1, 6)] == [0, 1, 6]
    assert len({example.id for example in generated}) == 2000
    assert 490 <= len({example.passage for example in generated}) <= 510
    assert len({(example.passage, example.question) for example in generated}) == 2000


def test_answers_stand_once_where_they_are_said_to(generated):
    for example in generated:
        (answer,) = example.answers
        assert example.passage.count(answer) == 1
        assert example.passage[example.start :].startswith(answer)
        words = set(scoring.normalize(example.question).split())
        assert not words & set(scoring.normalize(answer).split())
        assert 50 <= len(example.passage.split()) <= 80
    shifted = [e for e in generated if not e.passage[: e.start].isascii()]
    assert len(shifted) > 200
    two_words = sum(" " in e.answers[0] for e in generated if role_of(e.answers[0]) != "who")
    assert 50 < two_words < 400


def test_passages_name_several_people_places_years_and_things(generated):
    for passage in {example.passage for example in generated}:
        people = [name for name in candidates("who", passage) if " " in name]
        people = [name for name in people if name.split()[0] in FIRST_NAMES]
        assert 3 <= len(people) <= 4
        assert len({word for name in people for word in name.split()}) == 2 * len(people)
        for role in ("place", "year", "thing"):
            assert len(candidates(role, passage)) >= 2
        # Every place, year and thing occurs once, so it stands for one fact.
        for role in ("place", "year", "thing"):
            for name in candidates(role, passage):
                assert len(re.findall(rf"\b{name}\b", passage)) == 1


@functools.cache
def as_pattern(template, start="", end=""):
    text = re.escape(template).replace(re.escape("{person}"), "(?P<who>.+)")
    text = re.sub(r"\\\{(\w+)\\\}", lambda m: rf"(?P<{m[1]}>{PATTERNS[m[1]]})", text)
    return re.compile(start + text + end)


def facts_of(passage):
    """The facts of a passage, read from its text alone."""
    told = []
    for clause in re.split(r", while |\. ", passage.removesuffix(".")):
        surnames = candidates("surname", clause)
        assert len(surnames) == 1, clause
        found = 0
        for kind, entry in KINDS.items():
            patterns = [as_pattern(text, r"\b", r"\b") for text in entry.predicates]
            patterns += [as_pattern(text, "^", "$") for text in entry.sentences]
            for pattern in patterns:
                for match in pattern.finditer(clause):
                    told.append((kind, {**match.groupdict(), "who": surnames[0]}))
                    found += 1
        assert 1 <= found <= 2, clause
    return told


def solve(question, told):
    """All answers that the facts give. A person is named by the surname."""
    answers = set()
    for kind, entry in KINDS.items():
        for role, templates in entry.questions.items():
            for template in templates:
                match = as_pattern(template.replace("{who}", "{person}")).fullmatch(question)
                if match:
                    given = match.groupdict()
                    people = resolve(given.pop("who", None), kind, told)
                    answers |= {
                        values[role]
                        for name, values in told
                        if name == kind
                        and (people is None or values["who"] in people)
                        and all(values.get(key) == value for key, value in given.items())
                    }
    return answers


def resolve(person, asked, told):
    """The surnames that a name or a description may mean; None means any.

    What is asked about somebody is no way to say who is meant.
    """
    if person is None:
        return None
    if matches("who", person):
        return {person.split()[-1]}
    people = set()
    for kind, entry in KINDS.items():
        for description in entry.descriptions:
            match = as_pattern(description).fullmatch(person)
            if match:
                people |= {
                    values["who"]
                    for name, values in told
                    if name == kind != asked and match.groupdict().items() <= values.items()
                }
    return people


def test_every_question_has_one_answer_in_what_the_passage_says(generated):
    described = 0
    for example in generated:
        told = facts_of(example.passage)
        assert 6 <= len(told) <= 12
        (answer,) = example.answers
        if role_of(answer) == "who":
            answer = answer.split()[1]
        assert solve(example.question, told) == {answer}, example
        # The same kind of fact is told about others, so the verb of the question decides nothing.
        kinds = collections.Counter(kind for kind, _ in told)
        assert min(kinds.values()) >= 2
        people = collections.Counter((kind, values["who"]) for kind, values in told)
        assert max(people.values()) == 1
        described += bool(
            re.search(r"the (person|seller|teacher|builder|author)", example.question)
        )
    # Questions that need two facts of a sentence.
    assert 100 < described < 1000


def test_nothing_is_won_by_the_question_alone_or_by_position(generated):
    forms = collections.defaultdict(collections.Counter)
    roles = collections.Counter()
    for example in generated:
        form = example.question
        for role in ("who", "place", "year", "thing"):
            form = re.sub(rf"\b(?:{PATTERNS[role]})\b", role, form)
        forms[form][example.answers[0]] += 1
        roles[role_of(example.answers[0])] += 1
    assert min(roles[role] for role in ("who", "place", "year", "thing")) > 300
    assert len(forms) > 40
    common = [counts for counts in forms.values() if counts.total() >= 20]
    assert common
    for counts in common:
        assert len(counts) >= 5
        assert max(counts.values()) <= counts.total() / 2
    for place in (0, 1, -1):
        right = 0
        for example in generated:
            role = role_of(example.answers[0])
            named = candidates(role, example.passage)
            right += named[place] == example.answers[0]
        assert right < 0.5 * len(generated)
    sentences = collections.Counter(
        example.passage[: example.start].count(". ") for example in generated
    )
    assert max(sentences.values()) < 0.35 * len(generated)


def test_what_belongs_to_a_person_is_scattered(generated):
    scattered = 0
    for example in generated:
        mentions = re.findall(PATTERNS["surname"], example.passage)
        changes = sum(a != b for a, b in itertools.pairwise(mentions))
        scattered += changes >= len(set(mentions))
    assert scattered > 0.5 * len(generated)


def test_sets_share_no_passage():
    sizes = [301, 102, 53]
    sets = passages.split(sizes, seed=1)
    assert [len(examples) for examples in sets] == sizes
    texts = [{example.passage for example in examples} for examples in sets]
    assert len(set.union(*texts)) == sum(map(len, texts))
    assert len({example.id for examples in sets for example in examples}) == sum(sizes)
    assert passages.split(sizes, seed=1) == sets
    assert passages.split(sizes, seed=2) != sets


def test_a_passage_drawn_again_is_left_out(monkeypatch):
    drawn = iter("aabacb")

    def make_passage(rng):
        letter = next(drawn)
        return letter, [(f"{letter}?", letter)] * 2

    monkeypatch.setattr(passages, "_make_passage", make_passage)
    first, second, third = passages.split([1, 2, 2])
    assert [e.passage for e in (*first, *second, *third)] == ["a", "b", "b", "c", "c"]
    assert [e.id for e in third] == ["2-0", "2-1"]


def test_the_generator_prints_passages_that_do_not_depend_on_the_process():
    command = [sys.executable, "-m", "examples.question_answering.passages"]
    printed = set()
    for hashes in "01":
        environment = {**os.environ, "PYTHONHASHSEED": hashes, "PYTHONIOENCODING": "utf-8"}
        run = subprocess.run(command, capture_output=True, env=environment, check=True)
        printed.add(run.stdout.decode())
    (text,) = printed
    for example in passages.make_examples(12):
        assert f"\n{example.passage}\n" in text
        assert f"{example.question}  {example.answers[0]}\n" in text
