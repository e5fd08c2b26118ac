"""Question answering: text, vectors, model, training, errors and resuming."""

import itertools
import json
import os
import signal
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from examples.common import checkpoint, seeds, tokens, vectors
from examples.question_answering import __main__ as command
from examples.question_answering import data as questions
from examples.question_answering import export, passages, training, vocabulary
from examples.question_answering import model as bidaf
from examples.question_answering.squad import Example

pytest.importorskip("tensorflow_text", reason="tokens with byte offsets come from it")

TEXTS = ("“Don't” – 北京, naïve  U.S.\u00a010th.", "", " \n")


def make_vocabulary(examples, size=1000):
    texts = [text for e in examples for text in (e.passage, e.question)]
    return vocabulary.learn_vocabulary(texts, size)[0]


@pytest.fixture(scope="module")
def examples():
    return passages.make_examples(40, seed=5)


def per_word(units, name):
    """Takes the place of an LSTM in tests of files and of resuming: Keras traces it in no time."""
    dense = keras.layers.Dense(2 * units, activation="tanh", name=name)
    return lambda x, mask: dense(x)


# --- text ----------------------------------------------------------------------------------------


def test_tokens_and_their_bytes():
    found, starts, ends = tokens.tokenize(list(TEXTS))
    words = [token.decode() for token in found[0].numpy()]
    assert words == [
        *("“", "Don", "'", "t", "”", "–", "北京", ",", "naïve", "U", ".", "S", ".", "10th", "."),
    ]
    for word, start, end in zip(words, starts[0].numpy(), ends[0].numpy(), strict=True):
        assert TEXTS[0].encode()[start:end].decode() == word
    assert found.row_lengths().numpy().tolist() == [15, 0, 0]


def test_vocabulary():
    learned, words = vocabulary.learn_vocabulary(["The cat, the É cat ran é .", "The ."], 4)
    assert words[0] == "the"
    assert set(words) == {"the", "cat", ".", "é"}
    ids, characters = learned(tf.constant(["THE", "É", "ran", "dog", "the", "zz"]))
    ids = ids.numpy()
    assert ids[0] == ids[4] == 1
    assert 1 <= ids[1] <= 4
    # Unknown words stay distinct, and all ids are below the reported size.
    assert ids[2] > 4
    assert len({*ids[[2, 3, 5]]}) > 1
    assert ids.max() < learned.sizes[0] == 5 + vocabulary.UNKNOWN_WORDS
    characters = characters.numpy()
    assert characters.shape == (6, vocabulary.WORD_LENGTH)
    assert characters[0, 1] != characters[4, 1]  # H and h
    assert characters[5, 0] == characters[5, 1] == learned.sizes[1] - 1  # never seen
    assert not characters[5, 2:].any()


def test_long_words_are_looked_at_in_part():
    known = make_vocabulary(passages.make_examples(4))
    _, characters = known(tf.constant(["a" * 100]))
    assert characters.shape == (1, vocabulary.WORD_LENGTH)


def test_a_span_is_cut_out_of_the_original_text(examples):
    data, left_out = questions.prepare(examples, make_vocabulary(examples), (400, 50))
    assert not left_out
    for n, example in enumerate(examples):
        assert questions.cut(data, n, *data.spans[n]) == example.answers[0]
    accented = [e for e in examples if not e.passage[: e.start].isascii()]
    assert accented


def test_an_answer_within_a_word_is_that_word():
    passage = "Zoë paid about 1950s-style prices."
    example = Example("a", passage, "When?", ("1950",), passage.index("1950"))
    data, _ = questions.prepare([example], make_vocabulary([example]), (400, 50))
    assert questions.cut(data, 0, *data.spans[0]) == "1950s"


def test_what_cannot_be_learned_from_is_counted():
    def example(name, passage="It is red.", question="What is it?", gold="red"):
        return Example(name, passage, question, (gold,), passage.index(gold))

    bad = [
        example("long", passage="very " * 9 + "red"),
        example("asks", question="what " * 9),
        example("mute", question="\u00a0"),
        example("void", passage="It is \u00a0.", gold="\u00a0"),
    ]
    known = make_vocabulary(bad)
    data, left_out = questions.prepare([bad[0], example("good"), *bad[1:]], known, (8, 8))
    assert [e.id for e in data.examples] == ["good"]
    assert questions.cut(data, 0, *data.spans[0]) == "red"
    assert data.inputs(np.array([0]))[2][0, :4].all()
    assert dict(left_out)["passage of more than 8 tokens"] == 1
    assert dict(left_out)["question of more than 8 tokens"] == 1
    assert left_out["question without a word"] == left_out["answer without a word"] == 1
    assert left_out.total() == len(bad)
    with pytest.raises(SystemExit, match="no question is left to train on: 1 with passage"):
        questions.prepare(bad[:1], known, (8, 8))


def test_selected_texts_are_those_texts_alone(examples):
    known = make_vocabulary(examples)
    texts = [examples[0].question, "", examples[1].passage, "北京 – naïve", " "]
    encoded = vocabulary.encode(texts, known)
    for index in ([0, 1, 2, 3, 4], [1, 3], [3, 0, 4], [1], []):
        found = encoded.select(index)
        expected = vocabulary.encode([texts[n] for n in index], known)
        for x, y in zip(found, expected, strict=True):
            assert x.dtype == y.dtype
            np.testing.assert_array_equal(x, y)


def test_nothing_is_left_out_of_a_test_set():
    empty = [Example("a", "", "What?", ("x",), 0), Example("b", "Some text.", "", ("x",), 0)]
    long = Example("c", "word " * 900, "What?", ("x",), 0)
    data, left_out = questions.prepare([*empty, long], make_vocabulary([long]))
    assert not left_out
    assert len(data.examples) == 3
    words, characters, asked, _ = data.inputs(np.arange(3))
    assert words.shape[1] >= 900
    assert characters.shape == (*words.shape, vocabulary.WORD_LENGTH)
    assert not words[0].any()
    assert not asked[1].any()
    assert questions.cut(data, 0, 0, 0) == ""


def test_batches_hold_every_question_once_and_differ_by_epoch(examples):
    data, _ = questions.prepare(examples, make_vocabulary(examples), (400, 50))
    first, again, second = (data.batches(7, np.random.default_rng(s)) for s in (1, 1, 2))
    assert sorted(np.concatenate(first)) == list(range(len(examples)))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    lengths = data.passages.lengths[data.passage_of]
    flat = [lengths[n] for batch in data.batches(7) for n in batch]
    assert flat == sorted(flat)


# --- vectors -------------------------------------------------------------------------------------


def test_vectors(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("the 1 2 3\n. 4 5 6\nat a place 7 8 9\n", encoding="utf-8")
    assert list(vectors.read_vectors(path, {"at a place"})) == ["at a place"]
    found = vectors.read_vectors(path, {"the", ".", "cat"})
    assert sorted(found) == [".", "the"]
    fast = tmp_path / "vectors.vec"
    fast.write_text("3 3\nthe 1 2 3 \n. 4 5 6 \nat a place 7 8 9 \n", encoding="utf-8")
    for word, vector in vectors.read_vectors(fast, {"the", "."}).items():
        assert np.array_equal(vector, found[word])
    given = vectors.first_vectors([".", "cat", "the"], found, 6, seed=1)
    assert given.shape == (6, 3)
    assert given[1].tolist() == [4, 5, 6]
    assert given[3].tolist() == [1, 2, 3]
    model, _ = bidaf.build_model((6, 5), 2, "both", 0.0, 4, given)
    embedding = model.get_layer("words")
    assert np.array_equal(embedding.embeddings, given)
    assert not embedding.trainable_weights
    assert model.get_layer("highway_1").weights[0].shape == (5, 5)


@pytest.mark.parametrize(
    ("text", "fragments"),
    [
        ("the 1 2 3\ncat 1 2\n", ["line 2", "3 finite numbers", "found 'cat 1 2"]),
        ("the 1 x 3\n", ["line 1", "the 1 x 3"]),
        ("the 1 2 3\ncat 1 nan 3\n", ["line 2", "nan"]),
        ("dog 1 2 3\n", ["none of the words"]),
        ("", ["none of the words"]),
    ],
)
def test_vectors_that_cannot_be_used(tmp_path, text, fragments):
    path = tmp_path / "vectors.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SystemExit) as error:
        vectors.read_vectors(path, {"the", "cat"})
    for fragment in [str(path), *fragments]:
        assert fragment in str(error.value)
    with pytest.raises(SystemExit, match="No such file"):
        vectors.read_vectors(tmp_path / "missing.txt", {"the"})


# --- model ---------------------------------------------------------------------------------------


def test_highway():
    layer = bidaf.Highway()
    x = np.random.default_rng(0).normal(size=(2, 3, 5)).astype("float32")
    layer.build(x.shape)
    for weight in layer.weights:
        weight.assign(np.random.default_rng(1).normal(size=weight.shape))
    w, b, wt, bt = (np.array(weight) for weight in layer.weights)
    gate = 1 / (1 + np.exp(-(x @ wt + bt)))
    expected = gate * np.maximum(x @ w + b, 0) + (1 - gate) * x
    np.testing.assert_allclose(layer(x), expected, atol=1e-5)


def test_character_filters():
    layer = bidaf.CharacterCNN(7, 3, 0.5)
    ids = np.random.default_rng(0).integers(1, 7, (2, 5, vocabulary.WORD_LENGTH))
    ids[1, 2:] = 0
    layer.build(ids.shape)
    table, kernel, bias = (np.array(weight) for weight in layer.weights)
    found = np.array(layer(ids))
    assert found.shape == (2, 5, 3)
    for place in np.ndindex(2, 5):
        letters = table[ids[place]]
        windows = [letters[k : k + 5] for k in range(vocabulary.WORD_LENGTH - 4)]
        values = [np.einsum("kc,kcf->f", window, kernel[0]) + bias for window in windows]
        expected = np.maximum(np.max(values, axis=0), 0)
        np.testing.assert_allclose(found[place], expected, atol=1e-5)


def test_the_model_is_that_of_the_paper(examples):
    """Calling the layers one by one gives the same logits. Each has the size of the paper."""
    data, _ = questions.prepare(examples[:3], make_vocabulary(examples))
    model, _ = bidaf.build_model((2000, 200), 4, "both", 0.2, 20)
    for n, weight in enumerate(model.trainable_weights):
        weight.assign(0.3 * np.random.default_rng(n).normal(size=weight.shape))
    inputs = data.inputs(np.arange(3))
    get = model.get_layer
    encoded, masks = [], []
    for words, letters in (inputs[:2], inputs[2:]):
        x = np.concatenate([get("words")(words), get("characters")(letters)], axis=-1)
        x = get("highway_2")(get("highway_1")(x))
        masks.append(words != 0)
        encoded.append(get("contextual")(x, mask=masks[-1]))
    g, _ = get("flow")(
        *encoded, context_mask=masks[0], query_mask=masks[1], return_attention_scores=True
    )
    m = get("modeling_2")(get("modeling_1")(g, mask=masks[0]), mask=masks[0])
    m2 = get("modeling_end")(m, mask=masks[0])
    for logits, name, hidden in zip(
        model.predict_on_batch(inputs), ("start", "end"), (m, m2), strict=True
    ):
        kernel, bias = (np.array(weight) for weight in get(f"{name}_score").weights)
        expected = (np.concatenate([g, hidden], axis=-1) @ kernel)[..., 0] + bias
        np.testing.assert_allclose(logits[masks[0]], expected[masks[0]], atol=1e-4)
    d = 4
    lstm = lambda width: 2 * 4 * d * (width + d + 1)  # noqa: E731
    wanted = {
        "words": 2000 * d,
        "characters": 200 * 8 + 5 * 8 * d + d,
        "highway_1": 2 * (2 * d * 2 * d + 2 * d),
        "highway_2": 2 * (2 * d * 2 * d + 2 * d),
        "contextual": lstm(2 * d),
        "flow": 3 * 2 * d,
        "modeling_1": lstm(8 * d),
        "modeling_2": lstm(2 * d),
        "modeling_end": lstm(2 * d),
        "start_score": 10 * d + 1,
        "end_score": 10 * d + 1,
    }
    assert {layer.name: layer.count_params() for layer in model.layers if layer.weights} == wanted


def test_the_average_question_is_that_of_its_words():
    rng = np.random.default_rng(0)
    context, query = rng.normal(size=(2, 5, 3)), rng.normal(size=(2, 4, 3))
    mask = np.array([[True, True, False, False], [False] * 4])
    found = np.array(bidaf.AverageQuestion()(context, query, query_mask=mask))
    average = query[0, :2].mean(axis=0)
    for t in range(5):
        expected = np.concatenate([context[0, t], average, context[0, t] * average])
        np.testing.assert_allclose(found[0, t], expected, atol=1e-6)
    assert not found[1, :, 3:].any()


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


@pytest.mark.slow
@pytest.mark.parametrize("flow", bidaf.FLOWS)
def test_what_a_flow_returns(flow, examples):
    data, _ = questions.prepare(examples[:5], make_vocabulary(examples))
    model, answerer = bidaf.build_model((2000, 200), 4, flow, 0.2, 20)
    inputs = data.inputs(np.arange(5))
    for logits in model(inputs):
        assert (np.array(logits)[inputs[0] == 0] == bidaf.NOWHERE).all()
    directions = {"context_to_query", "query_to_context"}
    expected = {"both": directions, "none": set(), "context-to-query": {"context_to_query"}}
    assert set(answerer.output) & directions == expected.get(flow, directions)
    merged = {"both": 4, "query-to-context": 4}.get(flow, 3)
    name = "average" if flow == "none" else "flow"
    output = model.get_layer(name).output
    output = output if flow == "none" else output[0]
    assert output.shape[-1] == merged * 8


@pytest.mark.slow
def test_strings_in_answers_out(examples, monkeypatch):
    monkeypatch.setattr(bidaf, "bilstm", per_word)
    known = make_vocabulary(examples)
    _, answerer = bidaf.build_model(known.sizes, 4, "both", 0.0, 3)
    serve = tf.function(export.make_serve(answerer, known), autograph=False)
    texts = [examples[0].passage, "", "北京 – naïve Zoë", " "]
    asked = [examples[0].question, "Who?", "", ""]
    found = {k: v.numpy() for k, v in serve(tf.constant(texts), tf.constant(asked)).items()}
    for n, text in enumerate(texts):
        cut = text.encode()[found["start_byte"][n] : found["end_byte"][n]]
        assert cut == found["answer"][n]
        cut.decode()
    assert found["answer"][1] == found["answer"][3] == b""
    assert found["answer"][0]
    assert found["answer"][2]
    empty = serve(tf.constant([], "string"), tf.constant([], "string"))
    assert empty["answer"].shape == (0,)
    alone = serve(tf.constant(texts[1:2]), tf.constant(asked[1:2]))
    assert alone["answer"].numpy().tolist() == [b""]
    data, _ = questions.prepare(examples[:1], known)
    direct = answerer.predict_on_batch(data.inputs(np.array([0])))
    cut = questions.cut(data, 0, direct["start"][0], direct["end"][0])
    assert cut.encode() == found["answer"][0]
    np.testing.assert_allclose(found["probability"][0], direct["probability"][0], rtol=1e-4)
    steps = data.passages.lengths[0]
    sums = found["context_to_query"][0, :steps].sum(axis=1)
    np.testing.assert_allclose(sums, 1, atol=1e-5)
    np.testing.assert_allclose(found["query_to_context"].sum(axis=1), [1, 0, 0, 0], atol=1e-5)


# --- training ------------------------------------------------------------------------------------


SETTINGS = {
    "steps": 6,
    "batch_size": 8,
    "seed": 3,
    "optimizer": "adam",
    "learning_rate": 0.01,
    "average": 0.5,
}


def trained(data, directory, steps=SETTINGS["steps"]):
    settings = {**SETTINGS, "steps": steps}
    saved = checkpoint.Checkpoint(directory, {}, unit="step")
    keras.utils.set_random_seed(1)
    model, _ = bidaf.build_model((2000, 200), 3, "both", 0.3, 20)
    state = training.train(model, data, settings, saved, every=2)
    losses = [entry["loss"] for entry in state["history"]]
    return losses, [np.array(weight) for weight in model.weights]


@pytest.mark.slow
def test_a_stopped_run_resumes_to_the_same_result(tmp_path, examples, monkeypatch, capsys):
    monkeypatch.setattr(bidaf, "bilstm", per_word)
    monkeypatch.setattr(questions, "MULTIPLE", 128)  # one shape, so Keras traces once
    # An epoch has five batches, so the sixth step belongs to the second epoch.
    data, _ = questions.prepare(examples, make_vocabulary(examples), (400, 50))
    losses, weights = trained(data, tmp_path / "whole")
    assert len(losses) == 3

    reseed = training.reseed

    def interrupted(model, seed, step):
        if step == 2:
            signal.raise_signal(signal.SIGINT)
        reseed(model, seed, step)

    monkeypatch.setattr(training, "reseed", interrupted)
    # A process in the background may ignore Ctrl-C, so set the usual handler.
    old = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(SystemExit, match="stopped and saved after step 3 of 6"):
            trained(data, tmp_path / "parts")
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, old)
    monkeypatch.setattr(training, "reseed", reseed)
    again, resumed = trained(data, tmp_path / "parts")
    assert "Resuming after step 3" in capsys.readouterr().out
    # The third and the fourth step were reported alone.
    assert again[0] == losses[0]
    assert np.mean(again[1:3]) == pytest.approx(losses[1], rel=1e-6)
    assert again[3] == losses[2]
    for x, y in zip(resumed, weights, strict=True):
        assert np.array_equal(x, y)
    # The weights are the moving averages at the end.
    assert sorted(p.name for p in (tmp_path / "parts").iterdir()) == [
        "state.json",
        "step-006.weights.h5",
    ]
    finished, same = trained(data, tmp_path / "parts")
    assert finished == again
    assert all(np.array_equal(x, y) for x, y in zip(same, weights, strict=True))


class Killed(Exception):
    pass


def run_small(output, patch, examples, at=None):
    """Runs six steps, four an epoch; saves every second one; dies before step `at` of this run.

    Returns all that was learned and answered, without times.
    """
    steps, saved, reseed = itertools.count(), [], seeds.reseed

    def killed(model, seed, step):
        if next(steps) == at:
            raise Killed
        reseed(model, seed, step)

    patch.setattr(training, "reseed", killed)
    patch.setattr(bidaf, "bilstm", per_word)
    patch.setattr(questions, "MULTIPLE", 128)  # one shape, so Keras traces once
    patch.setattr(command, "load_data", lambda arguments: (examples[:32], examples[32:]))
    patch.setattr(command, "save", lambda answerer, *_: saved.extend(answerer.get_weights()))
    sizes = ["--units", "3", "--batch-size", "8", "--steps", "6", "--save-every", "2"]
    try:
        command.main(["--data", "x", *sizes, "--average", "0.5", "--output", str(output)])
    finally:
        patch.undo()
    folder = output / "both"
    state, summary = (
        json.loads((folder / name).read_text())
        for name in ("checkpoint/state.json", "summary.json")
    )
    for timed in ("seconds_a_step", "answer_seconds"):
        del summary[timed]
    losses = [entry["loss"] for entry in state["history"]]
    return (losses, summary, (folder / "predictions.json").read_text()), saved


@pytest.mark.exhaustive
def test_a_killed_run_continues_to_the_same_result(tmp_path, examples, monkeypatch, capsys):
    whole, weights = run_small(tmp_path / "whole", monkeypatch, examples)
    with pytest.raises(Killed):
        run_small(tmp_path / "parts", monkeypatch, examples, at=3)
    capsys.readouterr()
    again, same = run_small(tmp_path / "parts", monkeypatch, examples)
    printed = capsys.readouterr().out
    assert "Resuming after step 2" in printed
    assert "epoch 1: exact match" in printed
    assert len(whole[0]) == 3
    assert again == whole
    for x, y in zip(same, weights, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.slow
def test_averaged_weights_are_lent(examples, monkeypatch):
    monkeypatch.setattr(bidaf, "bilstm", per_word)
    data, _ = questions.prepare(examples, make_vocabulary(examples), (400, 50))
    model, _ = bidaf.build_model((2000, 200), 2, "none", 0.0, 20)
    model.compile(training.make_optimizer(SETTINGS), ["sparse_categorical_crossentropy"] * 2)
    batch = np.arange(8)
    seen = []
    for _ in range(2):
        model.train_on_batch(data.inputs(batch), [data.spans[batch, side] for side in (0, 1)])
        seen.append([np.array(v) for v in model.trainable_variables])
    with training.averaged(model):
        inside = [np.array(v) for v in model.trainable_variables]
    after = [np.array(v) for v in model.trainable_variables]
    for first, second, average, kept in zip(*seen, inside, after, strict=True):
        assert np.array_equal(second, kept)
        np.testing.assert_allclose(average, (first + second) / 2, atol=1e-6)


@pytest.mark.slow
def test_a_model_is_the_same_whatever_was_trained_before(tmp_path, examples, monkeypatch):
    monkeypatch.setattr(bidaf, "bilstm", per_word)
    monkeypatch.setattr(command, "load_data", lambda arguments: (examples, examples[:4]))
    monkeypatch.setattr(command, "save", lambda *_: None)
    begun = []

    def train(model, *_):
        begun.append([np.array(variable) for variable in model.variables])
        return {"history": [{"seconds_a_step": 1.0}]}

    monkeypatch.setattr(training, "train", train)
    sizes = ["--units", "3", "--output", str(tmp_path)]
    command.main(sizes)
    command.main([*sizes, "--flow", "none"])
    _, second, alone = begun
    for x, y in zip(second, alone, strict=True):
        np.testing.assert_array_equal(x, y)


# --- command line --------------------------------------------------------------------------------


def squad_file(path, passage="It is red.", gold="red", start=6, question="What is it?"):
    entry = {"id": "a", "question": question, "answers": [{"text": gold, "answer_start": start}]}
    paragraphs = [{"context": passage, "qas": [entry]}]
    path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}), encoding="utf-8")


def refused(tmp_path, *more):
    output = tmp_path / "output"
    with pytest.raises(SystemExit) as error:
        command.main(["--data", str(tmp_path), "--output", str(output), *more])
    assert not output.exists()
    return str(error.value)


def test_bad_data_is_refused_before_anything_is_written(tmp_path):
    assert "train-v1.1.json" in refused(tmp_path)
    train, dev = tmp_path / "train-v1.1.json", tmp_path / "dev-v1.1.json"
    train.write_text('{"data": [{"title": "x"}]}', encoding="utf-8")
    assert "paragraphs" in refused(tmp_path)
    squad_file(train)
    assert "dev-v1.1.json" in refused(tmp_path)
    squad_file(dev)
    squad_file(train, start=5)
    assert "no question of it can be used: 1 with answer not at its offset" in refused(tmp_path)
    squad_file(train)
    assert "passage of more than 2 tokens" in refused(tmp_path, "--max-passage", "2")
    assert "No such file" in refused(tmp_path, "--vectors", str(tmp_path / "glove"))


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        (["--steps", "0"], "--steps must be at least 1"),
        (["--dropout", "1"], "--dropout must be in [0, 1)"),
        (["--average", "-1"], "--average must be in [0, 1)"),
        (["--seed", "-1"], "--seed must be in [0, 2**32)"),
        (["--data", ""], "--data is empty"),
        (["--smoke", "--data", "x"], "--smoke uses the generated passages"),
    ],
)
def test_bad_arguments(arguments, fragment, capsys):
    with pytest.raises(SystemExit):
        command.parse(arguments)
    assert fragment in capsys.readouterr().err


def run_example(output, *more, **options):
    started = [sys.executable, "-m", "examples.question_answering", "--output", str(output), *more]
    return subprocess.Popen(started, text=True, encoding="utf-8", **options)


@pytest.mark.slow
def test_the_smoke_run_learns_and_serves(tmp_path):
    with run_example(tmp_path, "--smoke", stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as run:
        printed, _ = run.communicate()
    assert run.returncode == 0, printed
    assert "difference after reloading " in printed
    assert "The reloaded SavedModel agrees: 4 answers equal" in printed
    folder = tmp_path / "both"
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    assert summary["exact_match"] >= 50
    assert summary["questions"] == 200
    predictions = json.loads((folder / "predictions.json").read_text(encoding="utf-8"))
    assert {e.id for e in passages.split((8000, 200), seed=1)[1]} == set(predictions)
    assert (folder / "attention.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_files_with_vectors_and_without_attention(tmp_path, monkeypatch, capsys):
    """Runs the whole command on data with an empty passage and an empty question."""
    monkeypatch.setattr(bidaf, "bilstm", per_word)
    text, names = "Zoë was born in Tarnow. Imre was born in Oakmere.", ("Zoë", "Imre")
    towns = {"Zoë": "Tarnow", "Imre": "Oakmere"}
    entries = [
        {
            "id": f"{n}",
            "question": f"Where was {names[n % 2]} born?",
            "answers": [
                {"text": towns[names[n % 2]], "answer_start": text.index(towns[names[n % 2]])}
            ],
        }
        for n in range(6)
    ]
    void = {"id": "x", "question": "", "answers": [{"text": "y", "answer_start": 0}]}
    paragraphs = [{"context": "", "qas": [void]}, {"context": text, "qas": entries}]
    for name in questions.FILES:
        document = {"data": [{"paragraphs": paragraphs}]}
        (tmp_path / name).write_text(json.dumps(document), encoding="utf-8")
    given = tmp_path / "vectors.txt"
    given.write_text("born 1 2 3\ntarnow 2 3 4\n", encoding="utf-8")
    output = tmp_path / "output"
    arguments = ["--data", str(tmp_path), "--output", str(output), "--flow", "none"]
    arguments += ["--units", "3", "--steps", "3", "--batch-size", "4", "--vectors", str(given)]
    (output / "none").mkdir(parents=True)
    (output / "none" / "attention.png").write_text("of an earlier run")
    command.main(arguments)
    printed = capsys.readouterr().out
    assert "left out: 1 with passage empty" in printed
    assert "vectors of 2 words, fixed" in printed
    assert "epoch 1: exact match" in printed
    folder = output / "none"
    predictions = json.loads((folder / "predictions.json").read_text(encoding="utf-8"))
    assert sorted(predictions) == sorted([*map(str, range(6)), "x"])
    assert predictions["x"] == ""
    assert all(predictions[str(n)] in text for n in range(6))
    assert json.loads((folder / "summary.json").read_text())["questions"] == 7
    assert not (folder / "attention.png").exists()
    state = folder / "checkpoint" / "state.json"
    with pytest.raises(SystemExit, match="other settings \\(learning_rate"):
        command.main([*arguments, "--learning-rate", "0.1"])
    weights = next(state.parent.glob("*.h5"))
    weights.write_bytes(weights.read_bytes()[:3000])
    with pytest.raises(
        SystemExit, match=rf"{weights.name} was changed .* Delete .* to start again"
    ):
        command.main(arguments)
    for text in ("garbage", "{}", "[]"):
        state.write_text(text)
        with pytest.raises(SystemExit, match=r"cannot be read .* Delete .* to start again"):
            command.main(arguments)
    blocked = [*arguments[:3], str(given), *arguments[4:]]
    with pytest.raises(SystemExit, match=r"--output .* Choose a folder that can be written"):
        command.main(blocked)


def write_questions(folder, sizes):
    """Writes generated questions as the two files of the official format."""
    for name, size in zip(questions.FILES, sizes, strict=True):
        paragraphs = [
            {
                "context": e.passage,
                "qas": [
                    {
                        "id": e.id,
                        "question": e.question,
                        "answers": [{"text": e.answers[0], "answer_start": e.start}],
                    }
                ],
            }
            for e in passages.make_examples(size, seed=size)
        ]
        document = {"data": [{"paragraphs": paragraphs}]}
        (folder / name).write_text(json.dumps(document), encoding="utf-8")


@pytest.mark.exhaustive
def test_a_run_of_another_backend_is_finished(tmp_path):
    """JAX trains for two epochs and shows the progress; TensorFlow exports."""
    pytest.importorskip("jax", reason="JAX is not installed")
    write_questions(tmp_path, (60, 20))
    more = ["--data", str(tmp_path), "--units", "4", "--steps", "5", "--batch-size", "20"]
    printed = []
    for backend in ("jax", "tensorflow"):
        environment = {**os.environ, "KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu"}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "env": environment}
        with run_example(tmp_path / "output", *more, **pipes) as run:
            printed.append(run.communicate()[0])
        assert run.returncode == 0, printed[-1]
    assert "step 5/5" in printed[0]
    assert "The SavedModel is written with the TensorFlow backend" in printed[0]
    assert "Resuming after step 5" in printed[1]
    assert "The reloaded SavedModel agrees" in printed[1]
