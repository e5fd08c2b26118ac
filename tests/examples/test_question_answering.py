"""Question answering: text, model, training, errors and resuming."""

import gc
import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from examples.common import text
from examples.question_answering import __main__ as command
from examples.question_answering import data as questions
from examples.question_answering import evaluation, passages
from examples.question_answering import model as bidaf
from examples.question_answering.squad import Example
from tests import Killed
from tests.examples.test_squad import document, entry, write

pytest.importorskip("tensorflow_text", reason="tokens with byte offsets come from it")


def make_vocabulary(examples):
    return questions.learn_vocabulary([text for e in examples for text in e[1:3]], 1000)


def make_questions(examples, limits=None):
    return questions.Questions(examples, make_vocabulary(examples), limits)


@pytest.fixture(scope="module")
def examples():
    return passages.make_sets([40], seed=5)[0]


@pytest.fixture
def quick(monkeypatch):
    """Makes models that Keras traces in no time, and batches of one shape."""

    def per_word(units, name):
        dense = keras.layers.Dense(2 * units, activation="tanh", name=name)
        return lambda x, mask: dense(x)

    monkeypatch.setattr(bidaf, "bilstm", per_word)
    monkeypatch.setattr(questions, "MULTIPLE", 128)


# --- text ----------------------------------------------------------------------------------------


def test_a_span_is_cut_out_of_the_original_text(examples):
    within = Example("a", "Zoë paid 1950s-style prices.", "When?", ("1950",), 9)
    data = make_questions([*examples, within], (400, 50))
    assert not data.left_out.total()
    found = [data.cut(n, *span) for n, span in enumerate(data.spans)]
    assert found == [*(e.answers[0] for e in examples), "1950s"]
    assert [e for e in examples if not e.passage[: e.start].isascii()]


def test_what_cannot_be_learned_from_is_counted():
    def example(name, passage="It is red.", question="What is it?", gold="red"):
        return Example(name, passage, question, (gold,), passage.index(gold))

    bad = [
        example("long", passage="very " * 9 + "red"),
        example("asks", question="what " * 9),
        example("mute", question="\u00a0"),
        example("void", passage="It is \u00a0.", gold="\u00a0"),
    ]
    data = make_questions([bad[0], example("good"), *bad[1:]], (8, 8))
    assert data.kept.tolist() == [1]
    assert data.cut(1, *data.spans[1]) == "red"
    assert data.left_out == {
        "passage of more than 8 tokens": 1,
        "question of more than 8 tokens": 1,
        "question without a word": 1,
        "answer without a word": 1,
    }
    assert make_questions(bad, (8, 8)).ordered(4) is None  # a validation without questions


def test_nothing_is_left_out_of_a_test_set():
    empty = [Example("a", "", "What?", ("x",), 0), Example("b", "Some text.", "", ("x",), 0)]
    data = make_questions([*empty, Example("c", "word " * 900, "What?", ("x",), 0)])
    assert data.kept.tolist() == [0, 1, 2]
    words, characters, asked, _ = data.inputs(np.arange(3))
    assert words.shape[1] >= 900
    assert characters.shape == (*words.shape, questions.WORD_LENGTH)
    assert not words[0].any()
    assert not asked[1].any()
    assert data.cut(0, 0, 0) == ""


def test_batches_of_one_size_leave_out_the_rest_by_chance(examples):
    data = make_questions(examples[:23], (400, 50))
    batches = data.batches(5, seed=1, steps=4)
    passes = [np.array(batches.split(np.random.default_rng(n))) for n in range(20)]
    assert {rows.shape for rows in passes} == {(4, 5)}
    assert {len(set(rows.ravel())) for rows in passes} == {20}
    assert set(np.ravel(passes)) == set(range(23))
    *inputs, answers = keras.tree.flatten(batches.dataset().element_spec)
    assert {x.shape[0] for x in (*inputs, answers)} == {5}


# --- model ---------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("flow", ["both", "none"])
def test_the_model_is_that_of_the_paper(flow, examples):
    """Calling the layers one by one gives the same logits. They have the sizes of the paper."""
    data = make_questions(examples[:3])
    model, _ = bidaf.build_model((2000, 200), 4, flow, 0.2, 20)
    for n, weight in enumerate(model.trainable_weights):
        weight.assign(0.3 * np.random.default_rng(n).normal(size=weight.shape))
    inputs = data.inputs(np.arange(3))
    get = model.get_layer
    encoded, masks = [], []
    for words, letters in (inputs[:2], inputs[2:]):
        spelling = np.max(get("filters")(get("letters")(letters)), axis=2)
        x = np.concatenate([get("words")(words), spelling], axis=-1)
        for n in (1, 2):
            gate = np.array(get(f"gate_{n}")(x))
            x = gate * get(f"transform_{n}")(x) + (1 - gate) * x
        masks.append(words != 0)
        encoded.append(get("contextual")(x, mask=masks[-1]))
    h, u = map(np.array, encoded)
    if flow == "both":
        g = get("flow")(*encoded, context_mask=masks[0], query_mask=masks[1])
    else:
        average = np.stack([row[mask].mean(axis=0) for row, mask in zip(u, masks[1], strict=True)])
        average = average[:, None] + np.zeros_like(h)
        g = np.concatenate([h, average, h * average], axis=-1)
    m = get("modeling_2")(get("modeling_1")(g, mask=masks[0]), mask=masks[0])
    m2 = get("modeling_end")(m, mask=masks[0])
    logits = model.predict_on_batch(inputs)
    for name, hidden in (("start", m), ("end", m2)):
        kernel, bias = (np.array(weight) for weight in get(f"{name}_score").weights)
        expected = (np.concatenate([g, hidden], axis=-1) @ kernel)[..., 0] + bias
        np.testing.assert_allclose(logits[name][masks[0]], expected[masks[0]], atol=1e-4)
        assert (logits[name][~masks[0]] == bidaf.NOWHERE).all()
    if flow == "both":
        d = 4
        embeddings = 2000 * d + 200 * 8 + (5 * 8 * d + d)
        highway = 4 * (2 * d * 2 * d + 2 * d)
        bilstms = sum(2 * 4 * d * (width * d + d + 1) for width in (2, 8, 2, 2))
        assert model.count_params() == embeddings + highway + 6 * d + bilstms + 2 * (10 * d + 1)


@pytest.mark.parametrize("limit", [1, 3, 50])
def test_span_search_finds_the_most_probable_span(limit):
    rng = np.random.default_rng(limit)
    start, end = rng.normal(size=(2, 7, 11))
    start[:, 8:] = end[:, 8:] = bidaf.NOWHERE
    first, last, probability = (np.array(x) for x in bidaf.SpanSearch(limit)(start, end))
    for n in range(len(start)):
        p1, p2 = (np.exp(x[n]) / np.exp(x[n]).sum() for x in (start, end))
        spans = [(k, m) for k in range(11) for m in range(k, min(k + limit, 11))]
        best = max(spans, key=lambda span: p1[span[0]] * p2[span[1]])
        assert (first[n], last[n]) == best
        np.testing.assert_allclose(probability[n], p1[best[0]] * p2[best[1]], rtol=1e-5)


@pytest.mark.parametrize("flow", bidaf.FLOWS)
def test_what_a_flow_returns(flow, quick):
    model, answerer = bidaf.build_model((9, 7), 4, flow, 0.2, 20)
    directions = {"context_to_query", "query_to_context"}
    expected = {"both": directions, "none": set(), "context-to-query": {"context_to_query"}}
    assert set(answerer.output) & directions == expected.get(flow, directions)
    output = model.get_layer("average" if flow == "none" else "flow").output
    merged = {"both": 4, "query-to-context": 4}.get(flow, 3)
    assert (output if flow == "none" else output[0]).shape[-1] == merged * 8


# --- training ------------------------------------------------------------------------------------


# --- command line --------------------------------------------------------------------------------


def squad_file(path, start=6):
    question = entry("a", "What is it?", [("red", start)])
    write(path, document(question, passage="It is red."))


def refused(tmp_path, *more):
    output = tmp_path / "output"
    with pytest.raises(SystemExit) as error:
        command.main(["--data", str(tmp_path), "--output", str(output), *more])
    assert not output.exists()
    return str(error.value)


def test_bad_data_is_refused_before_anything_is_written(tmp_path):
    assert "train-v1.1.json: No such file" in refused(tmp_path)
    train, dev = (tmp_path / name for name in questions.FILES)
    train.write_text('{"data": [{"title": "x"}]}', encoding="utf-8")
    assert "paragraphs" in refused(tmp_path)
    squad_file(train)
    assert "dev-v1.1.json" in refused(tmp_path)
    squad_file(dev)
    squad_file(train, start=5)
    assert "no question of it can be used: 1 with answer not at its offset" in refused(tmp_path)
    squad_file(train)
    message = refused(tmp_path, "--max-passage", "2")
    assert "0 questions to train on; left out: 1 with passage of more than 2 tokens" in message


def write_questions(folder, size):
    """Writes generated questions as the two files of the official format."""
    for seed, name in enumerate(questions.FILES):
        documents = [
            document(entry(e.id, e.question, [(e.answers[0], e.start)]), passage=e.passage)
            for e in passages.make_sets([size], seed)[0]
        ]
        documents.append(document(entry("x", "", [("y", 0)]), passage=""))
        write(folder / name, {"data": [part for x in documents for part in x["data"]]})


@pytest.mark.slow
def test_files_without_attention(tmp_path, quick, capsys):
    """Runs the whole command on data with an empty passage and an empty question."""
    write_questions(tmp_path, 6)
    output = tmp_path / "output"
    arguments = ["--data", str(tmp_path), "--output", str(output), "--flow", "none"]
    arguments += ["--units", "3", "--steps", "3", "--batch-size", "4"]
    folder = output / "none"
    folder.mkdir(parents=True)
    (folder / "attention.png").write_text("of an earlier run")
    command.main(arguments)
    printed = capsys.readouterr().out
    assert "left out: 1 with passage empty" in printed
    assert "val_loss" in printed
    predictions = json.loads((folder / "predictions.json").read_text(encoding="utf-8"))
    assert len(predictions) == json.loads((folder / "summary.json").read_text())["questions"] == 7
    assert predictions["x"] == ""
    assert not (folder / "attention.png").exists()
    with pytest.raises(SystemExit, match="other settings \\(learning_rate"):
        command.main([*arguments, "--learning-rate", "0.1"])
    train = tmp_path / questions.FILES[0]
    train.write_text(train.read_text(encoding="utf-8").replace("?", " now?"), encoding="utf-8")
    with pytest.raises(SystemExit, match="other settings \\(training data"):
        command.main(arguments)
