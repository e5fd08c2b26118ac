"""Classification of documents: files, ids, folds, models, and runs."""

import collections
import json
import re

import keras
import numpy as np
import pytest

from examples.documents import __main__ as command
from examples.documents import data as data_module
from examples.documents import evaluation
from examples.documents import model as han
from examples.documents.data import Document, Encoded, Folds, encode, read
from tests.examples import assert_ends


def write_table(path, *rows, ending="\n"):
    path.write_bytes("".join(row + ending for row in rows).encode())
    return path


def test_a_folder_is_read(tmp_path):
    files = {"pos/b.txt": b"Good.\r\nYes.", "pos/a.txt": "\ufeffGroßartig".encode(), "neg/z": b""}
    ignored = "pos/.DS_Store", ".git/config", "README", "neg/more/c.txt"
    for name, content in {**files, **dict.fromkeys(ignored, b"\xff\x00")}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_bytes(content)
    assert read(str(tmp_path)) == [
        Document("neg/z", "", "neg"),
        Document("pos/a.txt", "Großartig", "pos"),
        Document("pos/b.txt", "Good.\r\nYes.", "pos"),
    ]


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_a_table_is_read(tmp_path, ending):
    rows = "id,label,text", '7,a,"One, ""two""\nthree"', "8,b ," + 200_000 * "x"
    assert read(write_table(tmp_path / "d.CSV", *rows, ending=ending)) == [
        Document("row 1", 'One, "two"\nthree', "a"),
        Document("row 2", 200_000 * "x", "b"),
    ]


@pytest.mark.parametrize(("rows", "fragment"), [
    (["text;label", "x;a"], ", line 1: expected the columns `text` and `label`"),
    (["text,label,label", "x,a,b"], "the columns `text` and `label` once"),
    (["text,label", "x,a", "good, thanks,b"], ", line 3: has 3 cells, not 2. Quote texts"),
    (["text,label", "x,a", '"good,b', "bad,a"], ", line 3: a quote is in the wrong place"),
    (["text,label", "x, "], ", line 2: `label` is empty"),
    (["text,label"], "holds no document. Give a folder"),
    (["text,label", "x,a", "y,a"], "all documents are of the class 'a'"),
    (["text,label", *["x,b"] * 11, "y,a"], "the class 'a' has 1 documents, fewer than the 10"),
])  # fmt: skip
def test_tables_that_cannot_be_used(tmp_path, rows, fragment):
    path, output = write_table(tmp_path / "d.csv", *rows), tmp_path / "output"
    arguments = ["--data", str(path), "--output", str(output)]
    assert_ends(lambda: command.main(arguments), str(path), fragment)
    assert not output.exists()


@pytest.mark.parametrize("multiple", [1, 4])
def test_padded_documents(multiple, monkeypatch):
    monkeypatch.setattr(data_module, "MULTIPLE", multiple)
    vocabulary = data_module.Words(["the", "cat", ".", "é"])
    texts = ["The cat. THE É\ndog ran", "", "a b c d e f g", " \n", "Cat 北京. é . the"]
    found = [encode(text, vocabulary, 3) for text in texts]
    assert [x.tolist() for x in found[0]] == [[1, 2, 3], [1, 4], [5, 5]]
    assert [len(x) for x in found[2]] == [3, 3, 1]
    data = Encoded(found, [3, 1, 2, 0, 1])
    for index in ([0, 1, 2, 3, 4], [4, 1], [1], [2, 2]):
        ids = data.padded(index)
        sizes = [(1, 1), *((len(found[n]), max(map(len, found[n]), default=0)) for n in index)]
        assert ids.shape == (len(index), *(-(-np.max(sizes, axis=0) // multiple) * multiple))
        for row, n in zip(ids, index, strict=True):
            assert np.count_nonzero(row) == sum(map(len, found[n]))
            for words, sentence in zip(row, found[n], strict=False):
                assert words[: len(sentence)].tolist() == sentence.tolist()


@pytest.mark.parametrize("least", [1, 2, 9])
def test_the_vocabulary_is_that_of_the_training_documents(least):
    texts = ["red red Alpha", "", "beta Red\nblue", "blue ALPHA", "gamma gamma red", "beta Gamma"]
    documents = [Document(str(n), x, "ab"[n % 2]) for n, x in enumerate(texts)]
    task = Folds(documents, 3, 2, least)
    assert task.classes.tolist() == ["a", "b"]
    for number in (1, 2, 3):
        data, vocabulary, train, test, _ = task.split(number)
        assert test.tolist() == [2 * number - 2, 2 * number - 1]
        words = [text.lower().split() for text in texts]
        counts = collections.Counter(word for n in train for word in words[n])
        known = {word for word, count in counts.items() if count >= least}
        assert vocabulary.size == len(known) + 2
        flat = [word for text in words for word in text]
        found = [n for document in data.ids for sentence in document for n in sentence]
        assert found == [vocabulary(word) for word in flat]
        assert {vocabulary(word) for word in set(flat) - known} <= {len(known) + 1}
        # The most frequent word comes first.
        ordered = sorted(known, key=lambda word: (-counts[word], vocabulary(word)))
        assert [vocabulary(word) for word in ordered] == [*range(1, len(known) + 1)]


def make_ids(words=11):
    rng = np.random.default_rng(2)
    ids = rng.integers(1, words, (4, 4, 6)).astype("int32")
    ids[0, 0, :4], ids[3, 1, :3] = [1, 1, 2, 1], [3, 7, 3]
    ids *= np.arange(6) < np.maximum(rng.integers(1, 7, (4, 4, 1)), 4)
    ids *= np.arange(4)[:, None] < np.array([4, 1, 0, 3])[:, None, None]
    return ids


@pytest.mark.usefixtures("_masks_end_at_recurrent_layers")
@pytest.mark.parametrize("encoder", ["gru", "words"])
@pytest.mark.parametrize("pooling", han.POOLINGS)
@pytest.mark.each_value
def test_the_model(pooling, encoder, tmp_path):
    ids = make_ids()
    model, reader = han.build_model(11, 3, pooling, encoder, 5, 3, 0.5, 0.5)
    for n, weight in enumerate(model.trainable_weights):
        weight.assign(0.7 * np.random.default_rng(n).normal(size=weight.shape))
    logits = np.array(model(ids, training=False))
    wider = np.pad(ids, [(0, 0), (0, 3), (0, 5)])
    np.testing.assert_allclose(model(wider, training=False), logits, atol=1e-6)
    reader.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    found = {name: np.array(value) for name, value in loaded(ids, training=False).items()}
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found["probabilities"], expected, atol=1e-6)
    words, sentences = found["word_weights"], found["sentence_weights"]
    assert not words[ids == 0].any()
    np.testing.assert_allclose(words.sum(axis=2), ids.any(axis=2), atol=1e-6)
    np.testing.assert_allclose(sentences.sum(axis=1), ids.any(axis=(1, 2)), atol=1e-6)
    if pooling == "average":
        shares = (ids > 0) / np.maximum((ids > 0).sum(axis=2, keepdims=True), 1)
        np.testing.assert_allclose(words, shares, atol=1e-6)
    assert (model.get_layer("hierarchy").sentence_encoder is None) == (encoder == "words")
    assert not np.allclose(model(ids, training=True), logits)  # dropout


@pytest.mark.slow
def test_what_a_run_writes(tmp_path, monkeypatch, capsys):
    """Ten documents for each class: one word tells the class. One of each has no word."""
    rng, rows = np.random.default_rng(0), ["text,label"]
    for n in range(20):
        words = rng.choice(["the", "film", "was", "3.5", "Größe", "北京", "<b>", "."], 12)
        words[rng.integers(12)] = ("dull", "great")[n % 2]
        rows.append(f"{'' if n in (4, 7) else f'It is. {chr(32).join(words)} only{n}'},{n % 2}")
    path, output = write_table(tmp_path / "d.csv", *rows), tmp_path / "output"
    options = ["--folds", "2", "--runs", "1", "--epochs", "2"]
    arguments = ["--data", str(path), "--output", str(output), *options]
    command.main(arguments)
    folder, printed = output / "attention", capsys.readouterr().out
    assert {x.name for x in folder.iterdir()} == {"document.png", "documents.html", "model.keras"}
    *linear, entry = json.loads((output / "results.json").read_text())
    assert [other["pooling"] for other in linear] == list(evaluation.BASELINES)
    task = Folds(read(path), 2, 25, 1)
    fold, model = task.split(1), keras.saving.load_model(folder / "model.keras")
    found = evaluation.predict(model, fold.data, fold.test)
    right = np.mean(np.argmax(found["probabilities"], axis=1) == fold.data.labels[fold.test])
    assert entry["accuracy"] == 100 * right
    page = (folder / "documents.html").read_text("utf-8")
    articles = re.findall(r"<article.*?</article>", page, re.DOTALL)
    assert len(articles) >= 4
    for article in articles:
        number = int(re.search(r"row (\d+)", article)[1]) - 1
        row = fold.test.tolist().index(number)
        expected = []
        for s, sentence in enumerate(encode(task.texts[number], fold.vocabulary, 25)):
            words = found["word_weights"][row][s, : len(sentence)]
            expected += [found["sentence_weights"][row][s], *words]
        weights = [float(x) for x in re.findall(r'data-weight="([^"]*)"', article)]
        np.testing.assert_allclose(weights, expected, atol=1e-5)
        assert ("&lt;" in article) == ("<b>" in task.texts[number])
    # A finished run is only reported.
    monkeypatch.setattr(command, "train", pytest.fail)
    command.main(arguments)
    report = printed[printed.index("always ") :]
    assert capsys.readouterr().out.endswith(report)
    with pytest.raises(SystemExit, match=r"other settings \(epochs: 2 then, 3 now"):
        command.main([*arguments, "--epochs", "3"])
