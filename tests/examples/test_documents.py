"""Classification of documents: sentences, files, ids, batches, model, folds, runs and resuming."""

import collections
import itertools
import json
import re
import signal
import subprocess
import sys
import unicodedata

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from examples.common import batching, seeds, tokens
from examples.common.results import Results
from examples.common.sentences import CLOSING, ENDS, split_sentences
from examples.documents import __main__ as command
from examples.documents import (
    baselines,
    encoding,
    evaluation,
    folds,
    letters,
    outputs,
    prior,
    reading,
    reasons,
    training,
)
from examples.documents import model as han
from examples.documents.ngrams import MarginProbabilities
from examples.documents.reading import Document
from keras_attention.faithfulness import comprehensiveness, sufficiency
from tests.helpers import wait_for

pytest.importorskip("tensorflow_text", reason="tokens with byte offsets come from it")


def split(texts, longest=100):
    """Texts as sentences as words: `[[[(word, begin, end), ...], ...], ...]`."""
    columns = split_sentences(tf.constant(texts, tf.string), longest)
    words, begins, ends = (column.to_list() for column in columns)
    return [
        [[(w.decode(), b, e) for w, b, e in zip(*s, strict=True)] for s in zip(*text, strict=True)]
        for text in zip(words, begins, ends, strict=True)
    ]


def sentences_of(text, longest=100):
    return [" ".join(word for word, *_ in sentence) for sentence in split([text], longest)[0]]


# --- sentences -----------------------------------------------------------------------------------


SHE = ['She [ so ( he said " no ! " ) ] : left']


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It is. It was", ["It is .", "It was"]),
        ("No! Why? So… Yes... Ok?! End", ["No !", "Why ?", "So …", "Yes . . .", "Ok ? !", "End"]),
        (
            "U.S.A is it, at 3.5 or 1,000.25 a.b",
            ["U . S . A is it , at 3 . 5 or 1 , 000 . 25 a . b"],
        ),
        ('He said "no." She left', ['He said " no . "', "She left"]),
        ('("No.") She [so (he said "no!")]: left', ['( " No . " )', *SHE]),
        ("(Really?) ‘Yes!’ «Oui.» End", ["( Really ? )", "‘ Yes ! ’", "« Oui . »", "End"]),
        ('It is. "Now" it is', ["It is .", '" Now " it is']),
        ('It is. " Now', ["It is .", '" Now']),
        ('the "end" (of) it', ['the " end " ( of ) it']),
        ("one\ntwo\r\nthree\n\n \r\n four", ["one", "two", "three", "four"]),
        ("one\u00a0\n\u3000two \u00a0\r\nthree", ["one", "two", "three"]),
        ("\n\none.\n", ["one ."]),
        ("one\rtwo\u2028three \u2029 four\vfive\ffive", ["one", "two", "three", "four five five"]),
        ("one\u2003two\tthree\u00a0four", ["one two three four"]),
        (
            "北京很好。 我爱北京！\u3000为什么？ 好",
            ["北京很好 。", "我爱北京 ！", "为什么 ？", "好"],
        ),
        ("שלום, עולם. מה שלומך? טוב", ["שלום , עולם .", "מה שלומך ?", "טוב"]),
        ("مرحبا. كيف", ["مرحبا .", "كيف"]),
        ("naïve e\u0301tude 👍🏽", ["naïve e\u0301tude 👍 🏽"]),
        ("before\0after", ["before after"]),
        ("", []),
        (" \n\t\u00a0\u3000\r\n", []),
        (".", ["."]),
    ],
)
def test_sentences(text, expected):
    assert sentences_of(text) == expected


def test_a_text_does_not_end_the_sentence_of_another():
    # Each text would end a sentence if it were joined with the next one.
    texts = ["It is.", '" no', "", " x", "y\n", "z"]
    found = [[[word for word, *_ in s] for s in text] for text in split(texts)]
    assert found == [[["It", "is", "."]], [['"', "no"]], [], [["x"]], [["y"]], [["z"]]]
    assert split([]) == []


def test_long_sentences_continue_as_the_next():
    assert sentences_of("a b c d e f g. h", 3) == ["a b c", "d e f", "g .", "h"]
    assert sentences_of("a b c\nd", 3) == ["a b c", "d"]
    assert sentences_of("a b", 1) == ["a", "b"]


SIGNS = st.sampled_from(
    [*"ab7.!?…。！？\"')]}»”’(«, \n\r\t\v\f\0\u00a0\u3000\u2028é北א", "\r\n", ". "]
)
TEXT = st.lists(SIGNS | st.characters(codec="utf-8"), max_size=30).map("".join)


def blank(text):
    return all(c in " \t\n\v\f\r\0" or unicodedata.category(c)[0] == "Z" for c in text)


@given(st.lists(TEXT, max_size=4), st.integers(1, 5))
@settings(deadline=None, max_examples=25, derandomize=True)
def test_sentences_of_any_text(texts, longest):
    whole = split(texts, 10**6)
    assert len(whole) == len(texts)
    for text, found in zip(texts, whole, strict=True):
        data = text.encode()
        expected, last, ended = [], 0, 0
        for word, begin, end in itertools.chain(*found):
            # Words are parts of the text with only white space between them.
            assert data[begin:end].decode() == word
            gap = data[last:begin].decode()
            assert blank(gap)
            assert not any(map(blank, word))
            if not expected or set(gap) & set("\n\r\u2028\u2029") or (gap and ended):
                expected.append([])
            # Up to three closing signs may follow the end.
            closes = word in CLOSING and not gap
            ended = 4 if word in ENDS else max(ended - 1, 0) * closes
            expected[-1].append((word, begin, end))
            last = end
        assert blank(data[last:].decode())
        assert found == expected
    pieces = [
        [s[i : i + longest] for s in text for i in range(0, len(s), longest)] for text in whole
    ]
    assert split(texts, longest) == pieces


def test_sentences_inside_a_graph():
    signature = [tf.TensorSpec((None,), tf.string)]
    graph = tf.function(lambda texts: split_sentences(texts, 4), signature)
    for texts in (["a b. c d e f g", "", "\n", "北京 好。 x"], ["x"], [""], []):
        found = graph(tf.constant(texts, tf.string))
        expected = split_sentences(tf.constant(texts, tf.string), 4)
        assert [x.to_list() for x in found] == [x.to_list() for x in expected]
        assert [x.dtype for x in found] == [tf.string, tf.int64, tf.int64]


# --- files ---------------------------------------------------------------------------------------


def write_lines(path, *entries, ending="\n"):
    lines = [e if isinstance(e, str) else json.dumps(e, ensure_ascii=False) for e in entries]
    path.write_bytes("".join(line + ending for line in lines).encode())
    return path


def line(text="It is.", label="a"):
    return {"text": text, "label": label}


def refused(tmp_path, data, *more):
    output = tmp_path / "output"
    with pytest.raises(SystemExit) as error:
        command.main(["--data", str(data), "--output", str(output), *more])
    assert not output.exists()
    message = str(error.value)
    assert message.endswith("Nothing was written.")
    return message


def test_a_folder_is_read(tmp_path):
    for name, content in {
        "pos/b.txt": b"Good.\r\nYes.",
        "pos/a.txt": "\ufeffGroßartig".encode(),
        "pos/.DS_Store": b"\xff\x00",
        "neg/z": b"",
        ".git/config": b"\xff",
        "README": b"\xff",
        "neg/more/c.txt": b"\xff",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_bytes(content)
    assert reading.read(str(tmp_path)) == [
        Document("neg/z", "", "neg"),
        Document("pos/a.txt", "Großartig", "pos"),
        Document("pos/b.txt", "Good.\r\nYes.", "pos"),
    ]


def test_articles_are_read(tmp_path):
    path = tmp_path / "squad.json"
    articles = [
        {"title": title, "paragraphs": [{"context": f"{title} {n}", "qas": []} for n in range(2)]}
        for title in ("Rain", "Sun")
    ]
    path.write_text(json.dumps({"data": articles}), encoding="utf-8")
    assert reading.read(path) == [
        Document(f"{title}, paragraph {n + 1}", f"{title} {n}", title)
        for title in ("Rain", "Sun")
        for n in range(2)
    ]
    for content in ("[1", "[]", '{"data": [{"title": "x"}]}'):
        path.write_text(content)
        message = refused(tmp_path, path)
        assert message.startswith(f"{path}: not a file of SQuAD, which holds articles in `data` (")
        assert "a file that ends in .jsonl" in message


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_lines_are_read(tmp_path, ending):
    entries = [line("Größe\u2028x\n", "a"), "", " ", line("", 1), {**line("x", 0), "more": None}]
    path = write_lines(tmp_path / "d.jsonl", *entries, ending=ending)
    for mark in (b"", b"\xef\xbb\xbf"):
        path.write_bytes(mark + path.read_bytes())
        assert reading.read(path) == [
            Document("line 1", "Größe\u2028x\n", "a"),
            Document("line 4", "", "1"),
            Document("line 5", "x", "0"),
        ]
    # Without a line break at the end, and with an escaped surrogate pair.
    path.write_text('{"text": "\\ud83d\\udc4d", "label": "b"}\n{"text": "x", "label": "c"}')
    assert [d.text for d in reading.read(path)] == ["👍", "x"]


@pytest.mark.parametrize(
    ("entry", "fragments"),
    [
        ("{text: 1}", ["not JSON"]),
        ("[" * 3, ["not JSON"]),
        ("[1, 2]", ["a string `text` and a `label`", "found [1, 2]"]),
        ('"text"', ["a string `text` and a `label`"]),
        ({"label": "a"}, ["a string `text`"]),
        ({"text": "x"}, ["a `label`"]),
        (line(text=7), ["a string `text`", '"text": 7']),
        (line(text=None), ["a string `text`"]),
        (line(label=""), ["a string or an integer"]),
        (line(label=" "), ["a string or an integer"]),
        (line(label=None), ["a string or an integer"]),
        (line(label=True), ["a string or an integer"]),
        (line(label=1.5), ["a string or an integer"]),
        (line(label=["a"]), ["a string or an integer"]),
        ('{"text": "\\ud83d", "label": "a"}', ["\\ud83d", "half of a character"]),
        ('{"text": "x", "label": "\\udc4d"}', ["half of a character"]),
        ('{"text": "x\\u0000y", "label": "a"}', ["NUL"]),
    ],
)
def test_a_bad_line_is_named(tmp_path, entry, fragments):
    path = write_lines(tmp_path / "d.jsonl", line(), "", entry, line(label="b"))
    message = refused(tmp_path, path)
    assert message.startswith(f"{path}, line 3: ")
    for fragment in fragments:
        assert fragment in message


def test_files_that_cannot_be_used(tmp_path):
    path = tmp_path / "d.jsonl"
    message = refused(tmp_path, path)
    assert message.startswith(f"{path}: not there")
    assert '{"text": "...", "label": "..."}' in message
    for content in (b"", b"\n \r\n", b"\xef\xbb\xbf"):
        path.write_bytes(content)
        assert refused(tmp_path, path).startswith(f"{path}: holds no document")
    write_lines(path, line(), line())
    assert "all 2 documents are of the class 'a'" in refused(tmp_path, path)
    path.write_bytes(b'\xef\xbb\xbf{"text": "caf\xe9"}')
    assert f"{path}: not UTF-8 at byte 16 (0xe9)" in refused(tmp_path, path)
    write_lines(path, *[line(label="b")] * 3, *[line()] * 2)
    message = refused(tmp_path, path, "--folds", "3")
    assert "the class 'a' has 2 documents, fewer than the 3 folds. Give --folds 2" in message
    write_lines(path, *[line(label="b")] * 3, line())
    assert "--folds 2" not in refused(tmp_path, path, "--folds", "2")


def test_folders_that_cannot_be_used(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    assert refused(tmp_path, folder).startswith(f"{folder}: has no sub-folder")
    (folder / ".hidden").mkdir()
    (folder / "a.txt").write_text("x")
    assert refused(tmp_path, folder).startswith(f"{folder}: has no sub-folder")
    for name in ("pos", "neg"):
        (folder / name).mkdir()
    (folder / "pos" / "1.txt").write_text("x")
    (folder / "neg" / ".DS_Store").write_text("x")
    assert refused(tmp_path, folder).startswith(f"{folder / 'neg'}: the class has no document")
    bad = folder / "neg" / "1.txt"
    bad.write_bytes("ü".encode() + "ü".encode("latin1") + b"x")
    assert f"{bad}: not UTF-8 at byte 2 (0xfc)" in refused(tmp_path, folder)
    bad.write_bytes("It is".encode("utf-16-le"))
    assert f"{folder}, neg/1.txt: holds a NUL" in refused(tmp_path, folder)
    bad.unlink()
    (folder / "neg" / ".DS_Store").unlink()
    (folder / "neg").rmdir()
    assert "all 1 documents are of the class 'pos'" in refused(tmp_path, folder)


# --- text to ids ---------------------------------------------------------------------------------


TEXTS = ["The cat. THE É\ndog ran", "", "a b c d e f g", " \n", "Cat 北京. é . the"]


def test_words():
    found = tokens.Words(["the", "é", "cat"])
    assert found.size == 5
    ids = found(tf.constant([["THE", "É", ""], ["dog", "Cat", "the"]]))
    assert ids.dtype == "int32"
    assert ids.numpy().tolist() == [[1, 2, 0], [4, 3, 1]]
    many = tokens.Words(["the"], 50)
    assert many.size == 52
    ids = many(tf.constant(["the", "", *"abcdefgh", "A"])).numpy()
    assert ids[:2].tolist() == [1, 0]
    assert ids[2:].min() >= 2
    assert ids.max() < many.size
    assert len({*ids[2:]}) > 3
    assert ids[2] == ids[-1]
    for words in ([], np.array([], object)):
        empty = tokens.Words(words)
        assert empty(tf.constant(["a", ""])).numpy().tolist() == [1, 0]
        assert empty.size == 2
    assert found(tf.constant([], tf.string)).shape == (0,)


def test_encoded_is_what_a_loop_finds():
    vocabulary = tokens.Words(["the", "cat", ".", "é"])
    known = {"the": 1, "cat": 2, ".": 3, "é": 4}
    data = encoding.encode(TEXTS, [3, 1, 2, 0, 1], vocabulary, 3)
    expected = [
        [[known.get(word.lower(), 5) for word, *_ in s] for s in text] for text in split(TEXTS, 3)
    ]
    assert expected[0] == [[1, 2, 3], [1, 4], [5, 5]]
    assert data.labels.tolist() == [3, 1, 2, 0, 1]
    assert data.words.tolist() == [*itertools.chain(*itertools.chain(*expected))]
    assert data.sizes.tolist() == [[len(t), max(map(len, t), default=0)] for t in expected]
    for index in ([0, 1, 2, 3, 4], [4, 1], [1], [1, 3], [2, 2], []):
        for multiple in (1, 4):
            ids = data.padded(np.array(index, int), multiple)
            sizes = np.array([data.sizes[n] for n in index]).reshape(-1, 2).max(0, initial=1)
            assert ids.dtype == "int32"
            assert ids.shape == (len(index), *(-(-sizes // multiple) * multiple))
            for row, n in zip(ids, index, strict=True):
                wanted = np.zeros_like(row)
                for i, sentence in enumerate(expected[n]):
                    wanted[i, : len(sentence)] = sentence
                assert np.array_equal(row, wanted)


def test_many_documents_are_encoded_as_one_by_one():
    texts = [f"w{n % 7} x. y{n % 3}" * (n % 4) for n in range(1003)]
    vocabulary = tokens.Words(["w1", "x", "y2", "w3", "."])
    data = encoding.encode(texts, range(1003), vocabulary, 4)
    for n in [0, 1, 498, 499, 500, 501, 999, 1000, 1002]:
        alone = encoding.encode([texts[n]], [n], vocabulary, 4)
        assert np.array_equal(data.padded([n]), alone.padded([0]))
        assert np.array_equal(data.sizes[[n]], alone.sizes)
    nothing = encoding.encode([], [], vocabulary, 4)
    assert nothing.sizes.shape == (0, 2)
    assert nothing.padded([]).shape == (0, 1, 1)


# --- batches -------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 9)), max_size=120),
    st.integers(1, 6),
    st.integers(1, 150),
    st.none() | st.integers(0, 9),
)
@settings(deadline=None, max_examples=100, derandomize=True)
def test_batches_within_a_budget(sizes, size, cells, seed):
    sizes = np.array(sizes, int).reshape(-1, 2)
    orders = [None if seed is None else np.random.default_rng(seed) for _ in range(2)]
    batches, again = (batching.budgeted(sizes, size, cells, order) for order in orders)
    assert sorted(n for batch in batches for n in batch) == list(range(len(sizes)))
    for batch, same in zip(batches, again, strict=True):
        assert np.array_equal(batch, same)
        assert 1 <= len(batch) <= size
        assert len(batch) == 1 or len(batch) * sizes[batch].max(0).prod() <= cells


def test_batches_are_as_large_as_the_budget_allows():
    same = np.full((20, 2), (5, 4))
    assert [len(b) for b in batching.budgeted(same, 8, 1000)] == [8, 8, 4]
    assert [len(b) for b in batching.budgeted(same, 8, 60)] == [3] * 6 + [2]
    assert [len(b) for b in batching.budgeted(same, 8, 19)] == [1] * 20
    # A wide sample does not make the next batch wide.
    first_wide = np.array([(30, 1), *[(6, 6)] * 5])
    assert [len(b) for b in batching.budgeted(first_wide, 8, 200)] == [1, 5]
    assert batching.budgeted(np.zeros((0, 2), int), 8, 10) == []
    orders = [np.random.default_rng(seed) for seed in (1, 2)]
    first, second = (np.concatenate(batching.budgeted(same, 8, 60, order)) for order in orders)
    assert not np.array_equal(first, second)


def test_an_outlier_widens_no_other_batch():
    rng = np.random.default_rng(0)
    for wide in ((60, 40), (1, 2000), (2000, 1)):
        sizes = np.full((50, 2), (6, 7))
        sizes[17] = wide
        batches = batching.budgeted(sizes, 10, 500, rng)
        assert [17] in [batch.tolist() for batch in batches]
        widest = [sizes[batch].max(0).tolist() for batch in batches if 17 not in batch]
        assert widest == [[6, 7]] * 5


# --- model ---------------------------------------------------------------------------------------


def plain_pooling(x, mask, kind):
    """The definition, as loops."""
    pooled, weights = np.zeros((len(x), x.shape[2])), np.zeros(x.shape[:2])
    for n, d in np.ndindex(pooled.shape):
        valid = [t for t in range(x.shape[1]) if mask[n, t]]
        if kind == "max":
            valid = [t for t in valid if x[n, t, d] == max(x[n, u, d] for u in valid)]
        for t in valid:
            pooled[n, d] += x[n, t, d] / len(valid)
            weights[n, t] += 1 / len(valid) / x.shape[2]
    return pooled, weights


@pytest.mark.parametrize("kind", ["average", "max"])
def test_plain_pooling(kind):
    rng = np.random.default_rng(1)
    layer = han.PlainPooling(kind)
    # Few different numbers give ties. One row has negative numbers alone.
    x = rng.integers(-2, 3, (5, 7, 3)).astype("float32")
    x[1] = -np.abs(x[1]) - 1
    mask = rng.random((5, 7)) < 0.6
    mask[1, 2], mask[2], mask[3] = False, False, True
    x[~mask] += 5
    for given_mask in (mask, None):
        valid = np.ones((5, 7), bool) if given_mask is None else mask
        pooled, weights = layer(x, mask=given_mask, return_attention_scores=True)
        expected = plain_pooling(x, valid, kind)
        np.testing.assert_allclose(pooled, expected[0], atol=1e-6)
        np.testing.assert_allclose(weights, expected[1], atol=1e-6)
        np.testing.assert_allclose(np.sum(weights, axis=1), valid.any(axis=1), atol=1e-6)
        assert np.array_equal(layer(x, mask=given_mask), pooled)
    assert layer.compute_mask(x, mask) is None
    # Invalid steps may hold anything.
    unread = np.where(mask[..., None], x, np.nan)
    assert np.array_equal(layer(unread, mask=mask), layer(x, mask=mask))


def test_the_gradient_of_a_maximum_goes_to_it():
    x = tf.constant([[[1.0, 5.0], [3.0, 2.0], [3.0, 9.0]]])
    with tf.GradientTape() as tape:
        tape.watch(x)
        pooled = tf.reduce_sum(han.PlainPooling("max")(x, mask=tf.constant([[True, True, False]])))
    assert tape.gradient(pooled, x).numpy().tolist() == [[[0, 1], [1, 0], [0, 0]]]


def test_word_dropout():
    layer = han.WordDropout(0.4, 9, seed=3)
    ids = np.arange(6000).reshape(20, 30, 10).astype("int32") % 9
    for mode in (None, False):
        assert np.array_equal(layer(ids, training=mode), ids)
    found = np.array(layer(ids, training=True))
    assert found.dtype == "int32"
    assert not found[ids == 0].any()
    changed = (found != ids)[ids > 0]
    assert (found[found != ids] == 9).all()
    assert 0.35 < changed.mean() < 0.45
    assert not np.array_equal(layer(ids, training=True), found)
    assert np.array_equal(han.WordDropout(0.0, 9)(ids, training=True), ids)
    again = han.WordDropout.from_config(layer.get_config())
    assert np.array_equal(again(ids, training=True), found)


def make_model(pooling, encoder, **options):
    options = {"embedding": 5, "units": 3, "dropout": 0.5, "word_dropout": 0.5, **options}
    model, reader = han.build_model(11, 3, pooling, encoder, **options)
    for n, weight in enumerate(model.trainable_weights):
        weight.assign(0.7 * np.random.default_rng(n).normal(size=weight.shape))
    return model, reader


def make_ids():
    """Documents of 4, 1, 0 and 3 sentences."""
    rng = np.random.default_rng(2)
    ids = rng.integers(1, 11, (4, 4, 6)).astype("int32")
    ids *= np.arange(6) < rng.integers(1, 6, (4, 4, 1))
    ids *= np.arange(4)[:, None] < np.array([4, 1, 0, 3])[:, None, None]
    return ids


@pytest.mark.parametrize("encoder", ["gru", "words", "none"])
@pytest.mark.parametrize("pooling", han.POOLINGS)
def test_the_model_and_what_padding_changes(pooling, encoder):
    ids = make_ids()
    model, reader = make_model(pooling, encoder)
    logits = np.array(model(ids, training=False))
    found = {name: np.array(value) for name, value in reader(ids, training=False).items()}
    assert logits.shape == (4, 3)
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found["probabilities"], expected, atol=1e-6)
    words, sentences = found["word_weights"], found["sentence_weights"]
    assert words.shape == ids.shape
    assert not words[ids == 0].any()
    np.testing.assert_allclose(words.sum(axis=2), ids.any(axis=2), atol=1e-6)
    assert not sentences[~ids.any(axis=2)].any()
    np.testing.assert_allclose(sentences.sum(axis=1), ids.any(axis=(1, 2)), atol=1e-6)
    if encoder == "none" and pooling == "average":
        # The whole model by hand.
        table, kernel, bias = (np.array(weight) for weight in model.trainable_weights)
        for n in range(4):
            vectors = [np.mean(table[s[s > 0]], axis=0) for s in ids[n] if s.any()]
            document = np.mean(vectors, axis=0) if vectors else np.zeros(5)
            np.testing.assert_allclose(logits[n], document @ kernel + bias, atol=1e-5)
    assert np.ptp(logits, axis=0).min() > 0.01
    # With more padding: words, sentences and documents.
    longer = reader(np.pad(ids, [(0, 2), (0, 3), (0, 5)]), training=False)
    for name, value in found.items():
        more = np.array(longer[name])
        inside = tuple(slice(size) for size in value.shape)
        np.testing.assert_allclose(more[inside], value, atol=1e-6)
        if name != "probabilities":
            more[inside] = 0
            assert not more.any()
    hierarchy = model.get_layer("hierarchy")
    encoders = [hierarchy.word_encoder is not None, hierarchy.sentence_encoder is not None]
    assert encoders == {"gru": [True, True], "words": [True, False], "none": [False] * 2}[encoder]
    # Training applies dropout.
    assert not np.allclose(model(ids, training=True), logits)


@pytest.mark.parametrize("pooling", ["average", "max"])
def test_a_plain_hierarchy_is_saved(pooling, tmp_path):
    _, reader = make_model(pooling, "none", word_dropout=0.25)
    reader.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    expected = reader(make_ids(), training=False)
    for name, value in again(make_ids(), training=False).items():
        assert np.array_equal(value, expected[name])
    hierarchy = again.get_layer("hierarchy")
    assert type(hierarchy) is han.PlainHierarchy
    assert hierarchy.kind == hierarchy.word_attention.kind == pooling
    assert again.get_layer("word_dropout").rate == 0.25
    assert again.get_layer("word_dropout").unknown == 10


# --- folds ---------------------------------------------------------------------------------------


def test_folds_are_blocks_of_each_class():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 101)
    for count in (2, 3, 7, 10):
        fold = folds.split_folds(labels, count)
        assert fold.shape == labels.shape
        for label in range(3):
            mine = fold[labels == label]
            assert (np.diff(mine) >= 0).all()
            counts = np.bincount(mine, minlength=count)
            assert len(counts) == count
            assert np.ptp(counts) <= 1
    labels = np.tile([0, 1], 1000)
    fold = folds.split_folds(labels, 10)
    for label in (0, 1):
        assert fold[labels == label].tolist() == [n // 100 for n in range(1000)]


def make_task(least):
    """Six documents in three folds. Every fold has words of its own."""
    words = ["red red Alpha", "", "beta Red\nblue", "blue ALPHA", "gamma gamma red", "beta Gamma"]
    texts = [Document(str(n), text, "ab"[n % 2]) for n, text in enumerate(words)]
    return folds.Folds(texts, 3, 2, least)


@pytest.mark.parametrize("least", [1, 2, 9])
def test_the_vocabulary_is_that_of_the_training_documents(least):
    task = make_task(least)
    assert task.classes.tolist() == ["a", "b"]
    assert task.empty == 1
    assert task.fold.tolist() == [0, 0, 1, 1, 2, 2]
    for number in range(3):
        data, vocabulary, train, test = task.split(number)
        assert test.tolist() == [2 * number, 2 * number + 1]
        assert sorted([*train, *test]) == list(range(6))
        words = [task.texts[n].text.lower().split() for n in range(6)]
        counts = collections.Counter(word for n in train for word in words[n])
        known = {word for word, count in counts.items() if count >= least}
        assert vocabulary.size == len(known) + 2
        flat = [word for text in words for word in text]
        ids = dict(zip(flat, data.words.tolist(), strict=True))
        assert {ids[word] for word in known} == set(range(1, len(known) + 1))
        assert {ids[word] for word in set(flat) - known} <= {len(known) + 1}
        # The vocabulary of the SavedModel gives the same ids. The most frequent word comes first.
        assert vocabulary(tf.constant(flat)).numpy().tolist() == data.words.tolist()
        ordered = sorted(known, key=lambda word: ids[word])
        assert [counts[w] for w in ordered] == sorted((counts[w] for w in known), reverse=True)
        assert data.sizes.tolist() == [[2, 2], [0, 0], [2, 2], [1, 2], [2, 2], [1, 2]]


def test_given_vectors_are_those_of_the_words_of_a_fold():
    task = make_task(1)
    assert task.word_vectors(0, 1) is None
    task.vectors = {"red": np.array([1.0, 2.0]), "gamma": np.array([3.0, 4.0])}
    for number in range(3):
        vocabulary = task.split(number)[1]
        found = task.word_vectors(number, 1)
        assert found.shape == (vocabulary.size, 2)
        for word, vector in task.vectors.items():
            (known,) = vocabulary(tf.constant([word])).numpy()
            assert known == vocabulary.size - 1 or np.array_equal(found[known], vector)
    model, _ = han.build_model(vocabulary.size, 2, "max", "none", 2, 3, 0.0, 0.0, vectors=found)
    embedding = model.get_layer("embedding")
    assert np.array_equal(embedding.embeddings, found)
    assert not embedding.trainable


def test_a_word_of_the_tested_documents_alone_is_unknown():
    texts = [Document("", text, "ab"[n % 2]) for n, text in enumerate(["new", "old", "old", "x"])]
    _, vocabulary, *_ = folds.Folds(texts, 2, 9, 1).split(0)
    assert vocabulary(tf.constant(["old", "new", "never"])).numpy().tolist()[1:] == [3, 3]
    assert vocabulary.size == 4


def test_words_of_any_length_and_kind():
    texts = ["x" * 5000, "北京 İ ẞ ß", "y", " "]
    given = [Document("", text, "ab"[n % 2]) for n, text in enumerate(texts)]
    task = folds.Folds(given, 2, 9, 1)
    assert task.words.nbytes < 100
    data, vocabulary, train, _ = task.split(1)
    found = encoding.encode(texts, data.labels, vocabulary, 9)
    for x, y in zip(found, data, strict=True):
        assert np.array_equal(x, y)
    assert data.padded(train).max() == vocabulary.size - 2


def test_documents_without_words_are_a_task():
    texts = [Document("", "", "ab"[n % 2]) for n in range(4)]
    task = folds.Folds(texts, 2, 9, 1)
    data, vocabulary, *_ = task.split(0)
    assert task.empty == 4
    assert vocabulary.size == 2
    assert data.padded(np.arange(4)).shape == (4, 1, 1)


# --- letters -------------------------------------------------------------------------------------


def pattern(templates, wishes):
    wish = "|".join(re.sub(r"\{\w+\}", "[a-z-]+", text) for text in wishes)
    whole = "|".join(text.replace("{wish}", f"(?:{wish})") for text in templates)
    whole = re.sub(r"\{\w+\}", "[A-Za-z-]+", whole)
    return re.compile(rf"(?:{whole})\.")


def test_one_sentence_of_a_letter_decides():
    found, deciding = letters.make(300, seed=4)
    assert [d.name for d in found[:2]] == ["letter 0", "letter 1"]
    decisive = {label: pattern(letters.DECISIVE, letters.WISHES[label]) for label in letters.WISHES}
    # The number counts the sentences as split_sentences splits them.
    splits = split([document.text for document in found], command.parse([]).longest)
    for document, place, sentences in zip(found, deciding, splits, strict=True):
        data = document.text.encode()
        texts = [data[s[0][1] : s[-1][2]].decode() for s in sentences]
        assert len(texts) == document.text.count(".")
        assert max(map(len, sentences)) <= letters.LONGEST
        deciders = [
            (n, label)
            for n, text in enumerate(texts)
            for label, regex in decisive.items()
            if regex.fullmatch(text)
        ]
        assert deciders == [(place, document.label)]
    assert {d.label for d in found} == set(letters.WISHES)
    from_the_end = {d.text.count(".") - n for d, n in zip(found, deciding, strict=True)}
    assert {0, 1, 2, 3, 4, 5} <= set(deciding)
    assert {1, 2, 3, 4, 5, 6} <= from_the_end


def test_no_word_of_a_letter_decides():
    found, _ = letters.make(600, seed=1)
    for label, wishes in letters.WISHES.items():
        elsewhere = {w for d in found if d.label != label for w in re.findall(r"[\w-]+", d.text)}
        mine = {w for d in found if d.label == label for w in re.findall(r"[\w-]+", d.text)}
        assert mine <= elsewhere
        for wish in wishes:
            whole = pattern(letters.OTHERS, [wish])
            assert any(whole.search(d.text) for d in found if d.label != label)


def test_letters_are_those_of_their_seed():
    assert letters.make(20, seed=3) == letters.make(20, seed=3)
    assert letters.make(20, seed=3) != letters.make(20, seed=4)
    assert letters.make(30, seed=3)[0][:20] == letters.make(20, seed=3)[0]
    assert letters.make(0) == ([], [])


# --- results -------------------------------------------------------------------------------------


def test_results_are_kept(tmp_path):
    path = tmp_path / "results.json"
    results = Results(path, {"a": (1, 2)})
    assert not path.exists()
    assert results.find(fold=1) is None
    results.add({"fold": 1, "pooling": "max", "x": 0.1})
    results.add({"fold": 2, "pooling": "max", "x": 0.2})
    again = Results(path, {"a": (1, 2)})
    assert again.find(fold=2, pooling="max") == {"fold": 2, "pooling": "max", "x": 0.2}
    assert again.find(fold=2, pooling="average") is None
    assert again.find(none=None)["fold"] == 1
    assert [file.name for file in tmp_path.iterdir()] == ["results.json"]
    with pytest.raises(SystemExit, match=r"other settings \(a: \[1, 2\] then, 3 now; b: None th"):
        Results(path, {"a": 3, "b": 1})
    for text in ("", "garbage", "[]", "{}", '{"arguments": {}}', '{"a": 1, "b": 2}', '"x"'):
        path.write_text(text)
        with pytest.raises(SystemExit, match=r"cannot be read .* Delete .* to start again"):
            Results(path, {"a": 1})
    path.write_text('{"arguments": [], "results": []}')
    with pytest.raises(SystemExit, match="it is not of this program"):
        Results(path, {"a": 1})


# --- linear models -------------------------------------------------------------------------------


def test_linear_models_are_trained_on_the_other_folds():
    words = ["good", "bad"]
    texts = [f"{words[n % 2]} film number n{n}" for n in range(12)]
    # In the last fold the classes have changed places.
    given = [Document("", text, "ab"[(n + (n >= 8)) % 2]) for n, text in enumerate(texts)]
    task = folds.Folds(given, 3, 9, 1)
    found = baselines.run_baselines(task, 2, 1)
    assert [entry["pooling"] for entry in found] == list(baselines.BASELINES)
    for entry in found:
        assert (entry["fold"], entry["documents"], entry["accuracy"]) == (3, 4, 0.0)
    # One sign tells the class of these.
    given = [Document("", "?!"[n % 2], "ab"[n % 2]) for n in range(12)]
    found = baselines.run_baselines(folds.Folds(given, 3, 9, 1), 0, 1)
    assert [entry["accuracy"] for entry in found] == [100.0] * 3
    # No n-gram of these occurs in two documents.
    given = [Document("", f"w{n}", "ab"[n % 2]) for n in range(6)]
    assert len(baselines.run_baselines(folds.Folds(given, 3, 9, 1), 0, 1)) == 3
    # Only pairs tell the class of these.
    given = [Document("", ("a b c", "b a c")[n % 2], "ab"[n % 2]) for n in range(12)]
    found = baselines.run_baselines(folds.Folds(given, 3, 9, 1), 0, 1)
    assert [entry["accuracy"] for entry in found] == [50.0, 100.0, 50.0]


def test_linear_models_need_a_word():
    given = [Document("", " \n", "ab"[n % 2]) for n in range(4)]
    assert baselines.run_baselines(folds.Folds(given, 2, 9, 1), 0, 1) == []


# --- reasons -------------------------------------------------------------------------------------


def reasons_task():
    """Two classes of few words, in four folds, and a model of them."""
    rng = np.random.default_rng(4)
    texts = []
    for n in range(24):
        words = [*rng.choice(["the", "film", "was", "so", "old"], 9), ("bad", "good")[n % 2]]
        texts.append(Document(str(n), " ".join(rng.permutation(words)), "ab"[n % 2]))
    task = folds.Folds(texts, 4, 5, 1)
    model, reader = han.build_model(
        task.split(0)[1].size, 2, "attention", "words", 5, 3, dropout=0.0, word_dropout=0.0
    )
    for n, weight in enumerate(model.trainable_weights):
        weight.assign(np.random.default_rng(n).normal(size=weight.shape))
    return task, model, reader


@pytest.mark.parametrize("classes", [2, 3])
def test_the_coefficients_are_those_of_the_svm(classes):
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.svm import LinearSVC

    rng = np.random.default_rng(1)
    texts = [" ".join(rng.choice(["one", "two", "six", "ten"], 5)) + " 42" for _ in range(30)]
    given = [Document("", text, "abc"[n % classes]) for n, text in enumerate(texts)]
    task = folds.Folds(given, 3, 9, 1)
    data, vocabulary, inside, _ = task.split(1)
    found = baselines.word_coefficients(task, 1, vocabulary, 7)
    assert found.shape == (classes, vocabulary.size)
    assert not found[:, [0, -1]].any()
    tf_idf = TfidfVectorizer(sublinear_tf=True, token_pattern=r"\w+")
    rows = tf_idf.fit_transform([texts[n] for n in inside])
    svm = LinearSVC(random_state=7).fit(rows, data.labels[inside])
    for n in inside[:5]:
        # The score is the sum over the words, with their counts as logarithms.
        words = collections.Counter(texts[n].split())
        counts = {word: 1 + np.log(count) for word, count in words.items()}
        ids = vocabulary(tf.constant([*counts])).numpy()
        idf = [tf_idf.idf_[tf_idf.vocabulary_[word]] for word in counts]
        length = np.linalg.norm(np.multiply([*counts.values()], idf))
        scores = found[:, ids] @ np.array([*counts.values()]) / length + svm.intercept_
        expected = svm.decision_function(tf_idf.transform([texts[n]]))[0]
        np.testing.assert_allclose(scores if classes > 2 else scores[1], expected, atol=1e-9)


def test_gradients_of_words_among_ngrams():
    task = reasons_task()[0]
    data, vocabulary, inside, _ = task.split(0)
    settings = {"batch_size": 9, "cells": 999, "seed": 1, "form": "topic"}
    model, reader = prior.prepare(vocabulary.size, 2, data, inside, "attention", settings)
    attend = model.get_layer("ngrams")
    attend.value.assign(np.random.default_rng(1).normal(size=attend.value.shape))
    ids = data.padded(inside[:3])
    found = reasons.gradients(model, ids)
    probabilities = reader(ids)["probabilities"].numpy()
    classes = probabilities.argmax(axis=1)
    for place in ((0, 0), (1, 2)):
        gates = np.ones(ids.shape, "float32")
        gates[:, *place] = 1.001
        after = MarginProbabilities()(attend(ids, gates=gates)).numpy()
        gain = (after - probabilities)[np.arange(3), classes] / 0.001
        np.testing.assert_allclose(found[:, *place], gain, atol=2e-3)
    assert np.abs(found).max() > 0.01


def test_gradients_of_words():
    task, model, reader = reasons_task()
    ids = task.data.padded(np.arange(3))
    found = reasons.gradients(model, ids)
    assert found.shape == ids.shape
    table = model.get_layer("embedding").embeddings
    before = np.array(table)
    probabilities = reader(ids)["probabilities"].numpy()
    classes = probabilities.argmax(axis=1)
    # A word whose row grows by a part of itself.
    for word in (1, 3):
        changed = before.copy()
        changed[word] *= 1.001
        table.assign(changed)
        after = reader(ids)["probabilities"].numpy()
        table.assign(before)
        gain = (after - probabilities)[np.arange(3), classes] / 0.001
        np.testing.assert_allclose((found * (ids == word)).sum(axis=(1, 2)), gain, atol=2e-3)


def test_reasons_are_averages_over_documents():
    task, model, reader = reasons_task()
    data, *_, outside = task.split(0)
    settings = {"seed": 3, "batch_size": 4, "cells": 1000}
    found = reasons.measure(model, reader, reader, task, 0, outside, settings)
    ids = data.padded(outside)

    def predict(ids):
        return reader(ids)["probabilities"].numpy()

    outputs = {name: value.numpy() for name, value in reader(ids).items()}
    weights = outputs["word_weights"] * outputs["sentence_weights"][:, :, None]
    for kind, importance in {
        "weights": weights,
        "gradient times input": reasons.gradients(model, ids),
    }.items():
        expected = {
            "comprehensiveness": comprehensiveness(predict, ids, importance).mean(),
            "sufficiency": sufficiency(predict, ids, importance).mean(),
        }
        assert found[kind] == pytest.approx(expected, abs=1e-5)
    assert set(found) == {
        "weights",
        "gradient times input",
        "coefficients of the SVM",
        "random words",
        "weights of another seed",
    }
    # The same model stands for the other seed.
    again = found["weights of another seed"]
    assert again == pytest.approx({"overlap": 1, "jensen_shannon": 0}, abs=1e-6)
    lines = reasons.describe(found, 0, len(outside)).splitlines()
    assert lines[0].endswith("6 documents of fold 1, 10% of their words:")
    assert f"{found['weights']['comprehensiveness']:.3f}" in lines[2]
    assert lines[-1].startswith("Beside the weights of another seed: 100% of")
    alone = reasons.measure(model, reader, None, task, 0, outside, settings)
    assert set(alone) == set(found) - {"weights of another seed"}


# --- whole runs ----------------------------------------------------------------------------------


SMALL = [
    "--encoder",
    "gru",
    "--units",
    "2",
    "--embedding",
    "3",
    "--folds",
    "2",
    "--batch-size",
    "5",
    "--min-count",
    "1",
]


def without_times(path):
    """The results without the linear models."""
    results = json.loads(path.read_text(encoding="utf-8"))["results"]
    results = [entry for entry in results if entry["pooling"] not in baselines.BASELINES]
    assert all(entry.pop("epoch_seconds") > 0 for entry in results)
    return results


@pytest.fixture(scope="module")
def data_path(tmp_path_factory):
    """Ten documents for each class: one word tells the class. One document of each has no word."""
    rng = np.random.default_rng(0)
    entries = []
    for n in range(20):
        words = rng.choice(["the", "film", "was", "3.5", "Größe", "北京", "<b>", "."], 12)
        words[rng.integers(12)] = ("dull", "great")[n % 2]
        text = " ".join(words) + "\n" * (n % 3)
        entries.append(line("" if n in (4, 7) else f"It is. {text}", n % 2))
    return write_lines(tmp_path_factory.mktemp("data") / "d.jsonl", *entries)


def stub(function):
    """A function that calls `function` instead of training."""
    return lambda *arguments: function()


@pytest.fixture(scope="module")
def whole_run(data_path, tmp_path_factory):
    """A run with sizes that are padded to multiples of 16, as on a GPU."""
    output = tmp_path_factory.mktemp("whole") / "output"
    arguments = ["--data", str(data_path), "--output", str(output), *SMALL, "--epochs", "2"]
    arguments += ["--runs", "1", "--longest", "5"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outputs, "MULTIPLE", 16)
        command.main(arguments)
    return arguments, output


def load_task(data_path):
    return folds.Folds(reading.read(data_path), 2, 5, 1)


@pytest.mark.slow
def test_what_a_run_writes(whole_run, data_path, capsys):
    _, output = whole_run
    folder = output / "attention"
    names = ["document.png", "documents.html", "model.keras", "saved_model"]
    assert sorted(path.name for path in folder.iterdir()) == names
    assert (folder / "document.png").read_bytes().startswith(b"\x89PNG")
    (entry,) = without_times(output / "results.json")
    assert (entry["pooling"], entry["fold"], entry["documents"]) == ("attention", 1, 10)
    # The reported accuracy is that of the saved model.
    data, _, _, outside = load_task(data_path).split(0)
    model = keras.saving.load_model(folder / "model.keras")
    found = model.predict_on_batch(data.padded(outside))["probabilities"]
    assert set(entry["reasons"]) >= {"weights", "random words"}
    assert entry["accuracy"] == 100 * np.mean(found.argmax(axis=1) == data.labels[outside])
    assert entry["parameters"] == model.count_params()


@pytest.mark.slow
def test_the_saved_model_takes_any_text(whole_run, data_path):
    folder = whole_run[1] / "attention"
    vocabulary = load_task(data_path).split(0)[1]
    loaded = tf.saved_model.load(str(folder / "saved_model"))
    serve = loaded.signatures["serving_default"]
    model = keras.saving.load_model(folder / "model.keras")
    texts = ["The film was dull. GREAT 北京 \u202eשלום", "", "a " * 40 + "\0\x7f👍.", " \n"]
    for chosen in (texts, texts[1:2], texts[:1], [texts[3], texts[1]]):
        found = {k: v.numpy() for k, v in serve(texts=tf.constant(chosen)).items()}
        encoded = encoding.encode(chosen, [0] * len(chosen), vocabulary, 5)
        expected = model.predict_on_batch(encoded.padded(range(len(chosen))))
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, atol=1e-5)
        assert found["classes"].tolist() == [[b"0", b"1"]] * len(found["label"])
        best = expected["probabilities"].argmax(axis=1)
        assert found["label"].tolist() == [str(n).encode() for n in best]
        for n, text in enumerate(chosen):
            for s, w in np.ndindex(*found["words"].shape[1:]):
                begin, end = found["start_byte"][n, s, w], found["end_byte"][n, s, w]
                assert text.encode()[begin:end] == found["words"][n, s, w]
    none = serve(texts=tf.constant([], tf.string))
    assert {k: v.shape[0] for k, v in none.items()} == dict.fromkeys(
        (*expected, "classes", "label", "words", "start_byte", "end_byte"), 0
    )


@pytest.mark.slow
def test_the_page_shows_the_weights_of_the_saved_model(whole_run, data_path):
    folder = whole_run[1] / "attention"
    task = load_task(data_path)
    serve = tf.saved_model.load(str(folder / "saved_model")).signatures["serving_default"]
    page = (folder / "documents.html").read_text(encoding="utf-8")
    articles = re.findall(r"<article.*?</article>", page, re.DOTALL)
    assert len(articles) >= 4
    shown = [re.search(r"line \d+", article)[0] for article in articles]
    assert len(set(shown)) == len(shown)
    tested = {task.texts[n].name for n in task.split(0)[3]}
    assert set(shown) <= tested
    for name, article in zip(shown, articles, strict=True):
        text = next(d.text for d in task.texts if d.name == name)
        found = {k: v.numpy() for k, v in serve(texts=tf.constant([text])).items()}
        expected = []
        for s, weight in enumerate(found["sentence_weights"][0]):
            inside = found["words"][0, s] != b""
            if inside.any():
                expected += [weight, *found["word_weights"][0, s][inside]]
        weights = [float(x) for x in re.findall(r'data-weight="([^"]*)"', article)]
        np.testing.assert_allclose(weights, expected, atol=1e-5)
        label = found["label"][0].decode()
        assert f"predicted <strong><bdi>{label}</bdi></strong>" in article
        assert "&lt;" in article if "<b>" in text else True


@pytest.mark.slow
def test_a_finished_run_is_only_reported(whole_run, monkeypatch, capsys):
    arguments, output = whole_run
    for name in ("run_fold", "run_baselines"):
        monkeypatch.setattr(command, name, stub(pytest.fail))
    before = (output / "results.json").read_bytes()
    command.main(arguments)
    printed = capsys.readouterr().out
    assert "20 documents, 1 of 2 folds; mean and" in printed
    assert "2 documents without a word; they are kept" in printed
    entry, *linear = json.loads(before)["results"]
    assert [other["pooling"] for other in linear] == list(baselines.BASELINES)
    lines = [f"{other['pooling']}: accuracy {other['accuracy']:.2f}%" for other in (entry, *linear)]
    for other in linear:
        gain = entry["accuracy"] - other["accuracy"]
        lines.append(f"attention over {other['pooling']}: {gain:.2f} points")
    assert printed.endswith("\n".join(lines) + "\n")
    assert "±" not in printed
    for name, value in (("seed", "7"), ("epochs", "3"), ("folds", "3"), ("encoder", "none")):
        with pytest.raises(SystemExit, match=rf"other settings \({name}: '?\w+'? then, '?{value}"):
            command.main([*arguments, f"--{name}", value])
    other = write_lines(output.parent / "other.jsonl", *[line(label=n % 2) for n in range(20)])
    with pytest.raises(SystemExit, match=r"other settings \(training data: "):
        command.main(["--data", str(other), *arguments[2:]])
    assert (output / "results.json").read_bytes() == before


@pytest.mark.slow
def test_several_poolings_and_folds(data_path, tmp_path, monkeypatch, capsys):
    saved, seen = [], []
    read = training.read

    def noted(reader, data, chosen, chosen_settings):
        found = read(reader, data, chosen, chosen_settings)
        right = np.argmax(found["probabilities"], axis=1) == data.labels[chosen]
        seen.append((chosen_settings["pooling"], chosen_settings["fold"], 100 * right.mean()))
        # One batch finds the same as many batches.
        whole = reader.predict_on_batch(data.padded(chosen))
        np.testing.assert_allclose(found["probabilities"], whole["probabilities"], atol=1e-6)
        return found

    monkeypatch.setattr(training, "read", noted)
    monkeypatch.setattr(training, "save", lambda *given: saved.append(given))
    arguments = ["--data", str(data_path), "--output", str(tmp_path / "o"), *SMALL]
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("dull 1 2 3\ngreat 4 5 6\n", encoding="utf-8")
    arguments = [x for x in arguments if x not in ("--embedding", "3")]
    arguments += ["--vectors", str(vectors)]
    arguments += ["--epochs", "1", "--encoder", "none", "--folds", "3", "--cells", "200"]
    command.main([*arguments, "--pooling", "average", "max", "--runs", "1"])
    command.main([*arguments, "--pooling", "max", "average", "max", "--runs", "2"])
    order = [("average", 1), ("max", 1), ("max", 2), ("average", 2)]
    assert [one[:2] for one in seen] == order
    results = without_times(tmp_path / "o" / "results.json")
    assert [(e["pooling"], e["fold"], e["accuracy"]) for e in results] == seen
    assert [e["documents"] for e in results] == [8, 8, 6, 6]
    # Only the first fold is saved.
    assert [given[-1].name for given in saved] == ["average", "max"]
    assert [list((tmp_path / "o" / p).iterdir()) for p in ("average", "max")] == [[], []]
    printed = capsys.readouterr().out.rpartition("20 documents, 2 of 3 folds")[2]
    for pooling in ("average", "max"):
        scores = [accuracy for p, _, accuracy in seen if p == pooling]
        spread = abs(scores[0] - scores[1]) / 2**0.5
        assert f"{pooling}: accuracy {np.mean(scores):.2f} ± {spread:.2f}%\n" in printed
    assert "decides" not in printed
    assert "points" not in printed


@pytest.mark.slow
def test_ngrams_are_the_default_and_resume(data_path, tmp_path, monkeypatch, capsys):
    """Without the first of three folds, and killed before the second epoch of the second fold."""
    results = []
    for name, stopped in (("whole", None), ("parts", 3)):
        epochs = itertools.count()

        def interrupted(model, seed, epoch, epochs=epochs, stopped=stopped):
            if next(epochs) == stopped:
                crash()
            seeds.reseed(model, seed, epoch)

        monkeypatch.setattr(training, "reseed", interrupted)
        arguments = ["--data", str(data_path), "--output", str(tmp_path / name), "--without", "1"]
        arguments += ["--folds", "3", "--runs", "2", "--epochs", "2"]
        if stopped:
            with pytest.raises(MemoryError):
                command.main(arguments)
        command.main(arguments)
        results.append(without_times(tmp_path / name / "results.json"))
    assert results[0] == results[1]
    assert "Resuming after epoch 1 of" in capsys.readouterr().out
    assert sum(entry["documents"] for entry in results[0]) < 14
    assert (tmp_path / "whole" / "attention" / "documents.html").read_text().count("<pre") == 1


def test_a_class_too_small_without_a_fold(data_path, tmp_path):
    lines = [line(label=n % 2) for n in range(6)]
    path = write_lines(tmp_path / "few.jsonl", *lines)
    arguments = ["--data", str(path), "--folds", "3", "--without", "2"]
    with pytest.raises(SystemExit, match=r"has 2 documents, fewer than the 3 folds"):
        command.main([*arguments, "--output", str(tmp_path / "output")])


@pytest.mark.slow
def test_letters_are_asked_for_the_deciding_sentence(tmp_path, monkeypatch, capsys):
    read, expected = training.read, []

    def noted(reader, data, chosen, chosen_settings):
        found = read(reader, data, chosen, chosen_settings)
        deciding = letters.make(60, seed=6)[1]
        hits = [
            int(np.argmax(weights)) == deciding[n]
            for n, weights in zip(chosen, found["sentence_weights"], strict=True)
        ]
        expected.append(100 * sum(hits) / len(hits))
        return found

    monkeypatch.setattr(training, "read", noted)
    monkeypatch.setattr(training, "save", lambda *given: None)
    arguments = ["--output", str(tmp_path), *SMALL, "--documents", "60", "--seed", "6"]
    command.main([*arguments, "--epochs", "1", "--encoder", "none"])
    entry, other = without_times(tmp_path / "results.json")
    assert (entry["pooling"], other["pooling"]) == ("attention", "average")
    assert entry["deciding"] == expected[0]
    assert 0 < entry["deciding"] < 100
    assert "deciding" not in other
    printed = capsys.readouterr().out
    assert printed.count(f"sentence with the largest weight decides in {expected[0]:.1f}%") == 1


def test_the_report_compares_fold_by_fold(tmp_path, capsys):
    results = Results(tmp_path / "results.json", {})
    for pooling, scores in {"attention": (95, 98, 92), "max": (90, 97, 87)}.items():
        for fold, accuracy in enumerate(scores, 1):
            results.add({"pooling": pooling, "fold": fold, "accuracy": accuracy})
    task = make_task(1)
    arguments = ["--runs", "3", "--pooling", "max", "attention"]
    evaluation.report(results, command.parse(arguments), task)
    assert capsys.readouterr().out.endswith(
        "max: accuracy 91.33 ± 5.13%\nattention: accuracy 95.00 ± 3.00%\n"
        "attention over max: 3.67 ± 2.31 points, standard error 1.33\n"
    )
    evaluation.report(results, command.parse([*arguments, "--smoke"]), task)
    results.add({"pooling": "average", "fold": 1, "accuracy": 89.9})
    only = command.parse(["--runs", "1", "--pooling", "average", "--smoke"])
    with pytest.raises(SystemExit, match="expected at least 90%"):
        evaluation.report(results, only, task)


def run_small(data_path, output, patch, at=None, stop=None):
    """Runs two folds of three epochs. Calls `stop` before epoch `at` of all six, or at "read"."""
    weights, epochs = {}, itertools.count()
    reseed, read = seeds.reseed, training.read

    def interrupted(model, seed, epoch):
        if next(epochs) == at:
            stop()
        reseed(model, seed, epoch)

    def noted(reader, data, chosen, chosen_settings):
        weights[chosen_settings["fold"]] = reader.get_weights()
        if at == "read":
            stop()
        return read(reader, data, chosen, chosen_settings)

    patch.setattr(training, "reseed", interrupted)
    patch.setattr(training, "read", noted)
    patch.setattr(training, "save", lambda *given: None)
    arguments = ["--data", str(data_path), "--output", str(output), *SMALL, "--epochs", "3"]
    arguments += ["--encoder", "none", "--dropout", "0.4", "--word-dropout", "0.3"]
    try:
        command.main(arguments)
    finally:
        patch.undo()
    return without_times(output / "results.json"), weights


def interrupt():
    signal.raise_signal(signal.SIGINT)


def crash():
    raise MemoryError


@pytest.mark.exhaustive
def test_a_stopped_run_resumes_to_the_same_result(data_path, tmp_path, monkeypatch, capsys):
    results, weights = run_small(data_path, tmp_path / "whole", monkeypatch)
    assert sorted(weights) == [1, 2]
    assert [entry["fold"] for entry in results] == [1, 2]
    handler = signal.getsignal(signal.SIGINT)
    for at, stop in ((1, crash), (4, interrupt), ("read", interrupt)):
        output = tmp_path / f"parts-{at}"
        capsys.readouterr()
        with pytest.raises((MemoryError, SystemExit)) as error:
            run_small(data_path, output, monkeypatch, at, stop)
        if stop is interrupt:
            expected = "after this fold" if at == "read" else "1 of 3 epochs of this fold are saved"
            assert expected in str(error.value)
        assert signal.getsignal(signal.SIGINT) is handler
        assert "Resuming" not in capsys.readouterr().out
        again, resumed = run_small(data_path, output, monkeypatch)
        printed = capsys.readouterr().out
        assert ("Resuming after epoch 1 of" in printed) == (at != "read")
        assert ("fold 1 of 2" in printed) == (at == 1)
        assert again == results
        for fold, arrays in resumed.items():
            for x, y in zip(arrays, weights[fold], strict=True):
                assert np.array_equal(x, y)
        assert not list(output.glob("attention/fold-*"))


def test_a_training_that_diverges_ends(data_path, tmp_path, monkeypatch):
    monkeypatch.setattr(
        keras.Model, "train_on_batch", lambda *_, **__: {"loss": np.nan, "accuracy": 0}
    )
    arguments = ["--data", str(data_path), "--output", str(tmp_path), *SMALL, "--encoder", "none"]
    with pytest.raises(SystemExit, match="the training diverged: loss nan in epoch 1"):
        command.main(arguments)
    assert not (tmp_path / "results.json").exists()


def test_the_last_seed_has_folds(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "build_model", lambda *_, **__: crash())
    chosen = vars(command.parse(["--seed", str(2**32 - 1)]))
    with pytest.raises(MemoryError):
        training.run_fold(make_task(1), None, chosen, "max", 1, tmp_path, None)


# --- command line --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        (["--data", ""], "--data is empty"),
        (["--smoke", "--data", "x"], "--smoke and --documents are for the generated letters"),
        (["--documents", "9", "--data", "x"], "--smoke and --documents are for the generated"),
        (["--longest", "19"], "--longest must be at least 20 for letters"),
        (["--folds", "1"], "--folds must be at least 2, and --runs no more; received 1 and 1"),
        (["--folds", "0"], "--folds must be at least 2"),
        (["--folds", "3", "--runs", "4"], "received 3 and 4"),
        (["--data", "x", "--runs", "11"], "received 10 and 11"),
        (["--runs", "0"], "--runs must be at least 1"),
        (["--units", "0"], "--units must be at least 1"),
        (["--embedding", "0"], "--embedding must be at least 1"),
        (["--epochs", "-1"], "--epochs must be at least 1"),
        (["--batch-size", "0"], "--batch-size must be at least 1"),
        (["--cells", "0"], "--cells must be at least 1"),
        (["--longest", "0"], "--longest must be at least 1"),
        (["--min-count", "0"], "--min-count must be at least 1"),
        (["--documents", "-3"], "--documents must be at least 1"),
        (["--dropout", "1"], "--dropout must be in [0, 1)"),
        (["--word-dropout", "-0.1"], "--word-dropout must be in [0, 1)"),
        (["--learning-rate", "nan"], "--learning-rate must be in [0, inf)"),
        (["--seed", "-1"], "--seed must be in [0, 2**32)"),
        (["--pooling", "median"], "invalid choice: 'median'"),
        (["--pooling"], "expected at least one argument"),
        (["--encoder", "lstm"], "invalid choice: 'lstm'"),
        (["--data", "x", "--units", "9"], "--units has no effect with --encoder ngrams; leave it"),
        (["--form", "topic"], "--form has no effect with --encoder words; leave it out"),
        (["--data", "x", "--pooling", "max"], "--pooling max needs an encoder of words"),
        (["--data", "x", "--vectors", "y"], "--vectors needs an encoder of words, such as"),
        (["--vectors", "y", "--embedding", "9"], "--embedding is the width of --vectors: leave"),
        (["--without", "6"], "--without must be a fold from 1 to 5; received 6"),
        (["--without", "0"], "--without must be a fold from 1 to 5; received 0"),
    ],
)
def test_bad_arguments(arguments, fragment, capsys):
    with pytest.raises(SystemExit):
        command.parse(arguments)
    assert fragment in capsys.readouterr().err


def test_defaults():
    found = command.parse([])
    assert (found.folds, found.runs, found.pooling) == (5, 1, ["attention", "average"])
    assert (found.documents, command.parse(["--smoke"]).documents) == (5000, 2000)
    assert command.parse(["--smoke", "--documents", "70"]).documents == 70
    found = command.parse(["--data", "x", "--encoder", "gru", "--dropout", "0", "--folds", "4"])
    assert (found.folds, found.runs, found.dropout, found.min_count) == (4, 4, 0, 5)
    assert found.pooling == ["attention"]
    for encoder in han.ENCODERS:
        assert command.parse(["--encoder", encoder]).encoder == encoder
    found = command.parse(["--data", "x"])
    assert (found.encoder, found.form, found.epochs, found.units) == ("ngrams", "auto", 20, None)


@pytest.mark.parametrize("count", [1, 2, 6])
def test_too_few_letters(count, tmp_path):
    output = tmp_path / "output"
    with pytest.raises(
        SystemExit, match=rf"--documents {count}: the class '\w+' has . documents, f"
    ):
        command.main(["--documents", str(count), "--output", str(output)])
    assert not output.exists()


def test_letters_of_which_none_wants_something(tmp_path):
    alike = next(n for n in range(99) if len({d.label for d in letters.make(2, n)[0]}) == 1)
    arguments = ["--documents", "2", "--folds", "2", "--seed", str(alike)]
    with pytest.raises(SystemExit, match=r"has 0 documents, fewer than the 2 folds\. Give more"):
        command.main([*arguments, "--output", str(tmp_path / "output")])


def test_an_output_that_is_a_file(data_path, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(SystemExit, match=r"--output .* Choose a folder that can be written"):
        command.main(["--data", str(data_path), "--output", str(tmp_path / "file"), *SMALL])


def run_example(output, *more, **options):
    started = [sys.executable, "-m", "examples.documents", "--output", str(output), *more]
    return subprocess.Popen(started, text=True, encoding="utf-8", **options)


@pytest.mark.slow
def test_a_killed_process_resumes(tmp_path):
    more = ["--documents", "100", "--folds", "2", "--units", "8", "--epochs", "100"]
    more += ["--encoder", "none", "--pooling", "attention"]
    state = tmp_path / "attention" / "fold-1" / "state.json"
    with run_example(tmp_path, *more, stdout=subprocess.DEVNULL) as process:
        wait_for(lambda: state.exists() or process.poll() is not None)
        process.kill()
    epochs = json.loads(state.read_text())["epoch"]
    assert 1 <= epochs < 100
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with run_example(tmp_path, *more, **pipes) as process:
        printed, _ = process.communicate()
    assert process.returncode == 0, printed
    assert f"Resuming after epoch {epochs} of" in printed
    assert (tmp_path / "attention" / "model.keras").exists()
