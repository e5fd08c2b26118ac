"""Question answering: SQuAD files, generated passages, ids, the model, scores, and runs."""

import collections
import itertools
import json

import numpy as np
import pytest

from examples.question_answering import __main__ as command
from examples.question_answering import data as questions
from examples.question_answering import evaluation, passages, squad
from examples.question_answering import model as bidaf
from examples.question_answering.squad import Example
from tests import fast
from tests.examples import assert_ends

PASSAGE = "In 1843 Zoë Grünwald — “the owl” — built a mill."


def entry(name="q", question="Who built a mill?", answers=(("Zoë Grünwald", 8),)):
    answers = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": name, "question": question, "answers": answers}


def document(*entries, passage=PASSAGE):
    return {"data": [{"title": "t", "paragraphs": [{"context": passage, "qas": list(entries)}]}]}


def write(path, content):
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    return str(path)


def test_a_good_file_is_read_with_offsets_in_characters(tmp_path):
    content = document(
        entry("one", answers=[("Zoë Grünwald", 8), ("Grünwald", 12)]),
        entry("two", "What did she build?", [("a mill", PASSAGE.index("a mill"))]),
    )
    content["data"] += document(entry("three", answers=[("Zoë", 0)]), passage="Zoë")["data"]
    path = tmp_path / "good.json"
    # A byte-order mark changes nothing.
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(content).encode("ascii"))
    expected = [
        ("one", PASSAGE, "Who built a mill?", ("Zoë Grünwald", "Grünwald"), 8),
        ("two", PASSAGE, "What did she build?", ("a mill",), 41),
        ("three", "Zoë", "Who built a mill?", ("Zoë",), 0),
    ]
    for training in (True, False):
        assert squad.read(path, training) == (expected, collections.Counter())


@pytest.mark.parametrize(("content", "message"), [
    ({}, "KeyError: 'data'"),
    (document(entry("first"), entry("first")), "two questions have the id 'first'"),
    (document(entry(answers=[("Grünwald", -1)])), "Grünwald', -1)"),
    ({"data": []}, "no question of it can be used: it holds none"),
    ("[" * 100_000, "RecursionError"),
    (None, "No such file"),
])  # fmt: skip
def test_json_that_is_not_squad_is_refused(tmp_path, content, message):
    path = tmp_path / "bad.json"
    if content is not None:
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    assert_ends(lambda: squad.read(path, training=True), f"{path}: ", message)


def test_bad_data_is_refused_before_anything_is_written(tmp_path):
    output = tmp_path / "output"
    given = ["--data", str(tmp_path), "--output", str(output), "--max-passage", "2"]
    for name in questions.FILES:
        assert_ends(lambda: command.main(given), f"{name}: No such file")
        good = document(entry("a", "What is it?", [("red", 6)]), passage="It is red.")
        write(tmp_path / name, good)
    words = "0 questions to train on; left out: 1 with passage of more than 2 tokens"
    assert_ends(lambda: command.main(given), words)
    assert not output.exists()


@pytest.fixture(scope="module")
def examples():
    return passages.make_sets([40], seed=5)[0]


def make_questions(examples, limits=None):
    vocabulary = questions.Vocabulary([text for e in examples for text in e[1:3]], 1000)
    return questions.Questions(examples, vocabulary, limits)


def test_a_span_is_cut_out_of_the_original_text(examples):
    within = Example("a", "Zoë paid 1950s-style prices.", "When?", ("1950",), 9)
    data = make_questions([*examples, within], (400, 50))
    assert not data.left_out.total()
    found = [data.cut(n, *span) for n, span in enumerate(data.spans)]
    assert found == [*(e.answers[0] for e in examples), "1950s"]


@pytest.mark.slow
@pytest.mark.usefixtures("_masks_end_at_recurrent_layers")
def test_padding_changes_no_logits(examples):
    data = make_questions(examples[:3])
    model, _ = bidaf.build_model((2000, 200), 4, "both", 0.2)
    for n, weight in enumerate(model.trainable_weights):
        weight.assign(0.3 * np.random.default_rng(n).normal(size=weight.shape))
    inputs = data.inputs(np.arange(3))
    logits = model.predict_on_batch(inputs)
    sides = [[(0, 0), (0, 3), (0, 0)][: x.ndim] for x in inputs]
    longer = model.predict_on_batch([*map(np.pad, inputs, sides)])
    for name, x in logits.items():
        assert (x[inputs[0] == 0] == bidaf.NOWHERE).all()
        np.testing.assert_allclose(longer[name][:, : x.shape[1]], x, atol=1e-4)


@pytest.mark.parametrize("limit", [1, 3, 50])
def test_span_search_finds_the_most_probable_span(limit):
    rng = np.random.default_rng(limit)
    start, end = rng.normal(size=(2, 7, 11))
    start[:, 8:] = end[:, 8:] = bidaf.NOWHERE
    first, last = evaluation.find_spans(start, end, limit)
    for n in range(len(start)):
        p1, p2 = (np.exp(x[n]) / np.exp(x[n]).sum() for x in (start, end))
        spans = [(k, m) for k in range(11) for m in range(k, min(k + limit, 11))]
        best = max(spans, key=lambda span: p1[span[0]] * p2[span[1]])
        assert (first[n], last[n]) == best


@pytest.mark.parametrize(("prediction", "answers", "exact", "f1"), [
    ("the Mill.", ["mill"], True, 1),
    ("old stone mill", ["windmill", "mill", "stone mill"], False, 4 / 5),
    ("ring ring ring", ["ring a ring"], False, 4 / 5),
    ("mill", [""], False, 0),
    ("The", ["?!"], True, 0),
])  # fmt: skip
def test_scores_of_an_answer(prediction, answers, exact, f1):
    assert evaluation.exact_match(prediction, answers) is exact
    assert evaluation.f1(prediction, answers) == pytest.approx(f1, abs=1e-12)
    example = Example("q", "p", "q", answers, 0)
    missing = example._replace(id="other")
    found = evaluation.score({"q": prediction}, [example, missing])
    assert found == {"exact_match": 50 * exact, "f1": pytest.approx(50 * f1), "questions": 2}


@pytest.mark.slow
@pytest.mark.parametrize("flow", fast(["both", "none"], ["both"], slow=0))
def test_the_whole_command(flow, tmp_path, capsys):
    for seed, name in enumerate(questions.FILES):
        found = [*passages.make_sets([6], seed)[0], Example("x", "", "", ("y",), 0)]
        documents = [
            document(entry(e.id, e.question, [(e.answers[0], e.start)]), passage=e.passage)["data"]
            for e in found
        ]
        write(tmp_path / name, {"data": [*itertools.chain(*documents)]})
    output = tmp_path / "output"
    options = f"--flow {flow} --units 3 --steps 3 --batch-size 4"
    arguments = ["--data", str(tmp_path), "--output", str(output), *options.split()]
    command.main(arguments)
    folder = output / flow
    assert "left out: 1 with passage empty" in capsys.readouterr().out
    predictions = json.loads((folder / "predictions.json").read_text(encoding="utf-8"))
    assert len(predictions) == json.loads((folder / "summary.json").read_text())["questions"] == 7
    assert predictions["x"] == ""
    assert (folder / "attention.png").exists() is (flow != "none")
    with pytest.raises(SystemExit, match="other settings \\(learning_rate"):
        command.main([*arguments, "--learning-rate", "0.1"])
