"""The question-answering example: its text, its model, its errors, its resumption."""

import json
import pathlib
import signal
import subprocess
import sys
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"
sys.path.insert(0, str(EXAMPLES))

import passages  # noqa: E402
from squad import Example  # noqa: E402

checkpoint = pytest.importorskip("checkpoint")
answer = pytest.importorskip("answer", reason="examples need tensorflow-text installed")
pytest.importorskip("tensorflow_text", reason="tokens with byte offsets come from it")

TEXTS = ("“Don't” – 北京, naïve  U.S.\u00a010th.", "", " \n")


def make_vocabulary(examples, size=1000):
    texts = [text for e in examples for text in (e.passage, e.question)]
    return answer.learn_vocabulary(texts, size)[0]


@pytest.fixture(scope="module")
def examples():
    return passages.make_examples(40, seed=5)


# --- text ----------------------------------------------------------------------------------------


def test_tokens_and_their_bytes():
    tokens, starts, ends = answer.tokenize(list(TEXTS))
    words = [token.decode() for token in tokens[0].numpy()]
    assert words == [
        *("“", "Don", "'", "t", "”", "–", "北京", ",", "naïve", "U", ".", "S", ".", "10th", "."),
    ]
    for word, start, end in zip(words, starts[0].numpy(), ends[0].numpy(), strict=True):
        assert TEXTS[0].encode()[start:end].decode() == word
    assert tokens.row_lengths().numpy().tolist() == [15, 0, 0]


def test_vocabulary():
    vocabulary, words = answer.learn_vocabulary(["The cat, the É cat ran é .", "The ."], 4)
    assert words[0] == "the"
    assert set(words) == {"the", "cat", ".", "é"}
    ids, characters = vocabulary(tf.constant(["THE", "É", "ran", "dog", "the", "zz"]))
    ids = ids.numpy()
    assert ids[0] == ids[4] == 1
    assert 1 <= ids[1] <= 4
    # Unknown words keep an identity, and all ids are within the size that is reported.
    assert ids[2] > 4
    assert len({*ids[[2, 3, 5]]}) > 1
    assert ids.max() < vocabulary.sizes[0] == 5 + answer.UNKNOWN_WORDS
    characters = characters.numpy()
    assert characters.shape == (6, answer.WORD_LENGTH)
    assert characters[0, 1] != characters[4, 1]  # H and h
    assert characters[5, 0] == characters[5, 1] == vocabulary.sizes[1] - 1  # never seen
    assert not characters[5, 2:].any()


def test_long_words_are_looked_at_in_part():
    vocabulary = make_vocabulary(passages.make_examples(4))
    _, characters = vocabulary(tf.constant(["a" * 100]))
    assert characters.shape == (1, answer.WORD_LENGTH)


def test_a_span_is_cut_out_of_the_original_text(examples):
    data, left_out = answer.prepare(examples, make_vocabulary(examples), (400, 50))
    assert not left_out
    for n, example in enumerate(examples):
        assert answer.cut(data, n, *data.spans[n]) == example.answers[0]
    accented = [e for e in examples if not e.passage[: e.start].isascii()]
    assert accented


def test_an_answer_within_a_word_is_that_word():
    passage = "Zoë paid about 1950s-style prices."
    example = Example("a", passage, "When?", ("1950",), passage.index("1950"))
    data, _ = answer.prepare([example], make_vocabulary([example]), (400, 50))
    assert answer.cut(data, 0, *data.spans[0]) == "1950s"


def test_what_cannot_be_learned_from_is_counted():
    def example(name, passage="It is red.", question="What is it?", gold="red"):
        return Example(name, passage, question, (gold,), passage.index(gold))

    bad = [
        example("long", passage="very " * 9 + "red"),
        example("asks", question="what " * 9),
        example("mute", question="\u00a0"),
        example("void", passage="It is \u00a0.", gold="\u00a0"),
    ]
    vocabulary = make_vocabulary(bad)
    data, left_out = answer.prepare([bad[0], example("good"), *bad[1:]], vocabulary, (8, 8))
    assert [e.id for e in data.examples] == ["good"]
    assert answer.cut(data, 0, *data.spans[0]) == "red"
    assert data.inputs(np.array([0]))[2][0, :4].all()
    assert dict(left_out)["passage of more than 8 tokens"] == 1
    assert dict(left_out)["question of more than 8 tokens"] == 1
    assert left_out["question without a word"] == left_out["answer without a word"] == 1
    assert left_out.total() == len(bad)
    with pytest.raises(SystemExit, match="no question is left to train on: 1 with passage"):
        answer.prepare(bad[:1], vocabulary, (8, 8))


def test_nothing_is_left_out_of_a_test_set():
    empty = [Example("a", "", "What?", ("x",), 0), Example("b", "Some text.", "", ("x",), 0)]
    long = Example("c", "word " * 900, "What?", ("x",), 0)
    data, left_out = answer.prepare([*empty, long], make_vocabulary([long]))
    assert not left_out
    assert len(data.examples) == 3
    words, characters, asked, _ = data.inputs(np.arange(3))
    assert words.shape[1] >= 900
    assert characters.shape == (*words.shape, answer.WORD_LENGTH)
    assert not words[0].any()
    assert not asked[1].any()
    assert answer.cut(data, 0, 0, 0) == ""


def test_batches_hold_every_question_once_and_differ_by_epoch(examples):
    data, _ = answer.prepare(examples, make_vocabulary(examples), (400, 50))
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
    path.write_text("the 1 2 3\n. 4 5 6\nother 7 8 9\n", encoding="utf-8")
    found = answer.read_vectors(path, {"the", ".", "cat"})
    assert sorted(found) == [".", "the"]
    vectors = answer.first_vectors([".", "cat", "the"], found, 6, seed=1)
    assert vectors.shape == (6, 3)
    assert vectors[1].tolist() == [4, 5, 6]
    assert vectors[3].tolist() == [1, 2, 3]
    model, _ = answer.build_model((6, 5), 2, "both", 0.0, 4, vectors)
    embedding = model.get_layer("words")
    assert np.array_equal(embedding.embeddings, vectors)
    assert not embedding.trainable_weights
    assert model.get_layer("highway_1").weights[0].shape == (5, 5)


@pytest.mark.parametrize(
    ("text", "fragments"),
    [
        ("the 1 2 3\ncat 1 2\n", ["line 2", "3 numbers", "found 2"]),
        ("the 1 x 3\n", ["line 1", "'x'"]),
        ("dog 1 2 3\n", ["none of the words"]),
        ("", ["none of the words"]),
    ],
)
def test_vectors_that_cannot_be_used(tmp_path, text, fragments):
    path = tmp_path / "vectors.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SystemExit) as error:
        answer.read_vectors(path, {"the", "cat"})
    for fragment in [str(path), *fragments]:
        assert fragment in str(error.value)
    with pytest.raises(SystemExit, match="No such file"):
        answer.read_vectors(tmp_path / "missing.txt", {"the"})


# --- model ---------------------------------------------------------------------------------------


def test_highway():
    layer = answer.Highway()
    x = np.random.default_rng(0).normal(size=(2, 3, 5)).astype("float32")
    layer.build(x.shape)
    for weight in layer.weights:
        weight.assign(np.random.default_rng(1).normal(size=weight.shape))
    w, b, wt, bt = (np.array(weight) for weight in layer.weights)
    gate = 1 / (1 + np.exp(-(x @ wt + bt)))
    expected = gate * np.maximum(x @ w + b, 0) + (1 - gate) * x
    np.testing.assert_allclose(layer(x), expected, atol=1e-5)


def test_the_average_question_is_that_of_its_words():
    rng = np.random.default_rng(0)
    context, query = rng.normal(size=(2, 5, 3)), rng.normal(size=(2, 4, 3))
    mask = np.array([[True, True, False, False], [False] * 4])
    found = np.array(answer.AverageQuestion()(context, query, query_mask=mask))
    average = query[0, :2].mean(axis=0)
    for t in range(5):
        expected = np.concatenate([context[0, t], average, context[0, t] * average])
        np.testing.assert_allclose(found[0, t], expected, atol=1e-6)
    assert not found[1, :, 3:].any()


@pytest.mark.parametrize("limit", [1, 3, 50])
def test_span_search_finds_the_most_probable_span(limit):
    rng = np.random.default_rng(limit)
    start, end = rng.normal(size=(2, 7, 11))
    start[:, 8:] = end[:, 8:] = answer.NOWHERE
    first, last, probability = (np.array(x) for x in answer.SpanSearch(limit)(start, end))
    for n in range(len(start)):
        p1, p2 = (np.exp(x[n]) / np.exp(x[n]).sum() for x in (start, end))
        spans = [(k, m) for k in range(11) for m in range(k, min(k + limit, 11))]
        best = max(spans, key=lambda span: p1[span[0]] * p2[span[1]])
        assert (first[n], last[n]) == best
        np.testing.assert_allclose(probability[n], p1[best[0]] * p2[best[1]], rtol=1e-5)


@pytest.mark.parametrize("flow", answer.FLOWS)
def test_padding_changes_no_answer(flow, examples):
    data, _ = answer.prepare(examples[:5], make_vocabulary(examples))
    model, answerer = answer.build_model((2000, 200), 4, flow, 0.2, 20)
    inputs = data.inputs(np.arange(5))
    longer = [np.pad(x, [(0, 0), (0, 16), *([(0, 0)] * (x.ndim - 2))]) for x in inputs]
    steps = inputs[0].shape[1]
    for x, y in zip(model.predict_on_batch(inputs), model.predict_on_batch(longer), strict=True):
        np.testing.assert_allclose(y[:, :steps], x, atol=1e-5)
        assert (y[:, steps:] == answer.NOWHERE).all()
    found = answerer.predict_on_batch(inputs)
    directions = {"context_to_query", "query_to_context"}
    expected = {"both": directions, "none": set(), "context-to-query": {"context_to_query"}}
    assert set(found) & directions == expected.get(flow, directions)
    merged = {"both": 4, "query-to-context": 4}.get(flow, 3)
    name = "average" if flow == "none" else "flow"
    output = model.get_layer(name).output
    output = output if flow == "none" else output[0]
    assert output.shape[-1] == merged * 8


def test_strings_in_answers_out(examples):
    vocabulary = make_vocabulary(examples)
    _, answerer = answer.build_model(vocabulary.sizes, 4, "both", 0.0, 3)
    serve = tf.function(answer.make_serve(answerer, vocabulary), autograph=False)
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
    alone = serve(tf.constant(texts[1:2]), tf.constant(asked[1:2]))
    assert alone["answer"].numpy().tolist() == [b""]
    data, _ = answer.prepare(examples[:1], vocabulary)
    direct = answerer.predict_on_batch(data.inputs(np.array([0])))
    assert answer.cut(data, 0, direct["start"][0], direct["end"][0]).encode() == found["answer"][0]
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
    model, _ = answer.build_model((2000, 200), 3, "both", 0.3, 20)
    state = answer.train(model, data, settings, saved, every=2)
    losses = [entry["loss"] for entry in state["history"]]
    return losses, [np.array(weight) for weight in model.weights]


def test_a_stopped_run_goes_on_to_the_same_result(tmp_path, examples, monkeypatch, capsys):
    # Five batches an epoch: the sixth step is of the second one.
    data, _ = answer.prepare(examples, make_vocabulary(examples), (400, 50))
    losses, weights = trained(data, tmp_path / "whole")
    assert len(losses) == 3

    reseed = answer.reseed

    def interrupted(model, seed, step):
        if step == 2:
            signal.raise_signal(signal.SIGINT)
        reseed(model, seed, step)

    monkeypatch.setattr(answer, "reseed", interrupted)
    with pytest.raises(SystemExit, match="stopped and saved after step 3 of 6"):
        trained(data, tmp_path / "parts")
    monkeypatch.setattr(answer, "reseed", reseed)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    again, resumed = trained(data, tmp_path / "parts")
    assert "Resuming after step 3" in capsys.readouterr().out
    # The third step was reported alone, the fourth too.
    assert again[0] == losses[0]
    assert np.mean(again[1:3]) == pytest.approx(losses[1], rel=1e-6)
    assert again[3] == losses[2]
    for x, y in zip(resumed, weights, strict=True):
        assert np.array_equal(x, y)
    # What is left are the moving averages.
    assert sorted(p.name for p in (tmp_path / "parts").iterdir()) == [
        "state.json",
        "step-006.weights.h5",
    ]
    finished, same = trained(data, tmp_path / "parts")
    assert finished == again
    assert all(np.array_equal(x, y) for x, y in zip(same, weights, strict=True))


def test_averaged_weights_are_lent(examples):
    data, _ = answer.prepare(examples, make_vocabulary(examples), (400, 50))
    model, _ = answer.build_model((2000, 200), 2, "none", 0.0, 20)
    model.compile(answer.make_optimizer(SETTINGS), ["sparse_categorical_crossentropy"] * 2)
    batch = np.arange(8)
    seen = []
    for _ in range(2):
        model.train_on_batch(data.inputs(batch), [data.spans[batch, side] for side in (0, 1)])
        seen.append([np.array(v) for v in model.trainable_variables])
    with answer.averaged(model):
        inside = [np.array(v) for v in model.trainable_variables]
    after = [np.array(v) for v in model.trainable_variables]
    for first, second, average, kept in zip(*seen, inside, after, strict=True):
        assert np.array_equal(second, kept)
        np.testing.assert_allclose(average, (first + second) / 2, atol=1e-6)


# --- command line --------------------------------------------------------------------------------


def squad_file(path, passage="It is red.", gold="red", start=6, question="What is it?"):
    entry = {"id": "a", "question": question, "answers": [{"text": gold, "answer_start": start}]}
    paragraphs = [{"context": passage, "qas": [entry]}]
    path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}), encoding="utf-8")


def refused(tmp_path, *more):
    output = tmp_path / "output"
    with pytest.raises(SystemExit) as error:
        answer.main(["--data", str(tmp_path), "--output", str(output), *more])
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
        (["--smoke", "--data", "x"], "--smoke runs on the generated passages"),
    ],
)
def test_bad_arguments(arguments, fragment, capsys):
    with pytest.raises(SystemExit):
        answer.parse(arguments)
    assert fragment in capsys.readouterr().err


def command(output, *more):
    arguments = ["--output", str(output), "--units", "16", "--steps", "12", "--flow", "both"]
    return [sys.executable, str(EXAMPLES / "answer.py"), "--save-every", "2", *arguments, *more]


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_result(tmp_path):
    losses = []
    for name in ("whole", "parts"):
        output = tmp_path / name
        if name == "parts":
            with subprocess.Popen(command(output, "--smoke")) as process:
                state = output / "checkpoint-both" / "state.json"
                while not state.exists():
                    assert process.poll() is None
                    time.sleep(0.05)
                process.kill()
            assert 2 <= json.loads(state.read_text())["step"] < 12
        subprocess.run(command(output, "--smoke"), check=False)
        state = json.loads((output / "checkpoint-both" / "state.json").read_text())
        losses.append([entry["loss"] for entry in state["history"]])
        predictions = json.loads((output / "predictions.json").read_text(encoding="utf-8"))
        losses.append(predictions)
    assert losses[0] == losses[2]
    assert losses[1] == losses[3]
