"""Classification of documents: sentences, files, ids, folds, model, reasons and runs."""

import collections
import itertools
import json
import re
import unicodedata

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from examples.common.files import Results
from examples.common.text import CLOSING, ENDS, Words, split_sentences
from examples.common.training import budgeted
from examples.documents import __main__ as command
from examples.documents import data as data_module
from examples.documents import evaluation, letters, ngrams
from examples.documents import model as han
from examples.documents.data import Document, Folds, encode, read

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
        ('("No.") She [so (he said "no!")]: left', ['( " No . " )', *SHE]),
        ('It is. "Now" it is', ["It is .", '" Now " it is']),
        ('the "end" (of) it', ['the " end " ( of ) it']),
        ("one\ntwo\r\nthree\n\n \r\n four", ["one", "two", "three", "four"]),
        ("one\rtwo\u2028three \u2029 four\vfive\ffive", ["one", "two", "three", "four five five"]),
        (
            "北京很好。 我爱北京！\u3000为什么？ 好",
            ["北京很好 。", "我爱北京 ！", "为什么 ？", "好"],
        ),
        ("שלום, עולם. מה שלומך? טוב", ["שלום , עולם .", "מה שלומך ?", "טוב"]),
        ("naïve e\u0301tude 👍🏽", ["naïve e\u0301tude 👍 🏽"]),
        ("before\0after", ["before after"]),
        ("", []),
        (" \n\t\u00a0\u3000\r\n", []),
    ],
)
def test_sentences(text, expected):
    assert sentences_of(text) == expected


SIGNS = st.sampled_from(
    [*"ab7.!?…。！？\"')]}»”’(«, \n\r\t\v\f\0\u00a0\u3000\u2028é北א", "\r\n", ". "]
)
TEXT = st.lists(SIGNS | st.characters(codec="utf-8"), max_size=30).map("".join)


def blank(text):
    return all(c in " \t\n\v\f\r\0" or unicodedata.category(c)[0] == "Z" for c in text)


@given(st.lists(TEXT, max_size=4), st.integers(1, 5))
@settings(deadline=None, max_examples=15, derandomize=True)
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
    assert read(str(tmp_path)) == [
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
    assert read(path) == [
        Document(f"{title}, paragraph {n + 1}", f"{title} {n}", title)
        for title in ("Rain", "Sun")
        for n in range(2)
    ]
    for content in ("[1", "[]", '{"data": [{"title": "x", "paragraphs": [{}]}]}'):
        path.write_text(content)
        assert f"{path}: not a file of SQuAD" in refused(tmp_path, path)


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_lines_and_tables_are_read(tmp_path, ending):
    entries = [line("Größe\u2028x\n", "a"), "", " ", line("", 1), {**line("x", 0), "more": None}]
    path = write_lines(tmp_path / "d.jsonl", *entries, ending=ending)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read(path) == [
        Document("line 1", "Größe\u2028x\n", "a"),
        Document("line 4", "", "1"),
        Document("line 5", "x", "0"),
    ]
    rows = "id,label,text", '7,a,"One, ""two""\nthree"', "8,b ," + 200_000 * "x"
    path = write_lines(tmp_path / "d.CSV", *rows, ending=ending)
    assert read(path) == [
        Document("row 1", 'One, "two"\nthree', "a"),
        Document("row 2", 200_000 * "x", "b"),
    ]


@pytest.mark.parametrize(
    ("entry", "fragment"),
    [
        ("{text: 1}", "not JSON"),
        ("[" * 100_000, "not JSON (maximum recursion depth"),
        ("[1, 2]", "a string `text` and a `label`"),
        ({"label": "a"}, "found {'label': 'a'}"),
        (line(text=7), "a string `text`"),
        (line(label=" "), "a string or an integer"),
        (line(label=True), "a string or an integer"),
        (line(label=1.5), "a string or an integer"),
        ('{"text": "\\ud83d", "label": "a"}', "holds '\\ud83d'"),
        ('{"text": "x", "label": "y\\u0000"}', "holds '\\x00'"),
    ],
)
def test_a_bad_line_is_named(tmp_path, entry, fragment):
    path = write_lines(tmp_path / "d.jsonl", line(), "", entry, line(label="b"))
    message = refused(tmp_path, path)
    assert message.startswith(f"{path}, line 3: ")
    assert fragment in message


def test_data_that_cannot_be_used(tmp_path):
    path = tmp_path / "d.jsonl"
    assert refused(tmp_path, path).startswith(f"{path}: not there. Give a folder with a sub-folder")
    path.write_bytes(b"\n \r\n")
    assert refused(tmp_path, path).startswith(f"{path}: holds no document")
    path.write_bytes(b'\xef\xbb\xbf{"text": "caf\xe9"}')
    assert f"{path}: not UTF-8 at byte 16 (0xe9)" in refused(tmp_path, path)
    table = write_lines(tmp_path / "d.csv", "text;label", "x;a")
    assert f"{table}, line 1: expected the columns `text` and `label`" in refused(tmp_path, table)
    write_lines(table, "text,label", "x,a", "good, thanks,b")
    assert f"{table}, line 3: has more cells than the 2 columns" in refused(tmp_path, table)
    write_lines(table, "text,label", "x,a", '"good,b', "bad,a")
    assert f"{table}, line 3: a quote is in the wrong place" in refused(tmp_path, table)
    write_lines(table, "text,label,label", "x,a,b")
    assert "the columns `text` and `label` once" in refused(tmp_path, table)
    write_lines(tmp_path / "d.json", '{"data": [{"title": 3, "paragraphs": [{"context": "x"}]}]}')
    assert "`title` and `context` must be strings" in refused(tmp_path, tmp_path / "d.json")
    table = write_lines(tmp_path / "d.tsv", "text\tlabel", "x\ta")
    assert "Tables need the ending .csv" in refused(tmp_path, table)
    table.write_bytes("text,label\n".encode("utf-16"))
    assert "iconv -f utf-16" in refused(tmp_path, table)
    assert f"{tmp_path}: has no sub-folder with files" in refused(tmp_path, tmp_path)
    write_lines(path, line(), line())
    assert "all documents are of the class 'a'" in refused(tmp_path, path)
    write_lines(path, *[line(label="b")] * 3, *[line()] * 2)
    message = refused(tmp_path, path, "--folds", "3")
    assert "the class 'a' has 2 documents, fewer than the 3 folds" in message


# --- text to ids ---------------------------------------------------------------------------------


TEXTS = ["The cat. THE É\ndog ran", "", "a b c d e f g", " \n", "Cat 北京. é . the"]


def test_words():
    found = Words(["the", "é", "cat"])
    assert found.size == 5
    ids = found(tf.constant([["THE", "É", ""], ["dog", "Cat", "the"]]))
    assert ids.dtype == "int32"
    assert ids.numpy().tolist() == [[1, 2, 0], [4, 3, 1]]
    many = Words(["the"], 50)
    ids = many(tf.constant(["the", "", *"abcdefgh", "A"])).numpy()
    assert ids[:2].tolist() == [1, 0]
    assert 2 <= ids[2:].min() <= ids.max() < many.size == 52
    assert len({*ids[2:]}) > 3
    assert ids[2] == ids[-1]
    assert Words([])(tf.constant(["a", ""])).numpy().tolist() == [1, 0]


@pytest.mark.parametrize("multiple", [1, 4])
def test_encoded_is_what_a_loop_finds(multiple, monkeypatch):
    monkeypatch.setattr(data_module, "MULTIPLE", multiple)
    known = {"the": 1, "cat": 2, ".": 3, "é": 4}
    data = encode(TEXTS, [3, 1, 2, 0, 1], Words(known), 3)
    expected = [
        [[known.get(word.lower(), 5) for word, *_ in s] for s in text] for text in split(TEXTS, 3)
    ]
    assert expected[0] == [[1, 2, 3], [1, 4], [5, 5]]
    assert data.labels.tolist() == [3, 1, 2, 0, 1]
    for index in ([0, 1, 2, 3, 4], [4, 1], [1], [1, 3], [2, 2]):
        ids = data.padded(index)
        sizes = [(len(expected[n]), max(map(len, expected[n]), default=0)) for n in index]
        sizes = np.maximum(np.max(sizes, axis=0), 1)
        assert ids.dtype == "int32"
        assert ids.shape == (len(index), *(-(-sizes // multiple) * multiple))
        for row, n in zip(ids, index, strict=True):
            wanted = np.zeros_like(row)
            for i, sentence in enumerate(expected[n]):
                wanted[i, : len(sentence)] = sentence
            assert np.array_equal(row, wanted)


def test_many_documents_are_encoded_as_one_by_one():
    texts = [f"w{n % 7} x. y{n % 3}" * (n % 4) for n in range(1003)]
    vocabulary = Words(["w1", "x", "y2", "w3", "."])
    data = encode(texts, range(1003), vocabulary, 4)
    for n in [0, 499, 500, 1002]:
        alone = encode([texts[n]], [n], vocabulary, 4)
        assert np.array_equal(data.padded([n]), alone.padded([0]))


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
    batches, again = (budgeted(sizes, size, cells, order) for order in orders)
    assert sorted(n for batch in batches for n in batch) == list(range(len(sizes)))
    for batch, same in zip(batches, again, strict=True):
        assert np.array_equal(batch, same)
        assert 1 <= len(batch) <= size
        assert len(batch) == 1 or len(batch) * sizes[batch].max(0).prod() <= cells


# --- model ---------------------------------------------------------------------------------------


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
def test_the_model(pooling, encoder):
    """`test_padding.py` shows that padding changes nothing."""
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
    hierarchy = model.get_layer("hierarchy")
    encoders = [hierarchy.word_encoder is not None, hierarchy.sentence_encoder is not None]
    assert encoders == {"gru": [True, True], "words": [True, False], "none": [False] * 2}[encoder]
    # Training applies dropout.
    assert not np.allclose(model(ids, training=True), logits)


def test_the_average_is_saved(tmp_path):
    _, reader = make_model("average", "none")
    reader.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    expected = reader(make_ids(), training=False)
    for name, value in again(make_ids(), training=False).items():
        assert np.array_equal(value, expected[name])


# --- folds ---------------------------------------------------------------------------------------


def documents_of(texts, classes="ab"):
    return [Document(str(n), x, classes[n % len(classes)]) for n, x in enumerate(texts)]


def test_folds_are_blocks_of_each_class():
    """The folds of the authors of the movie reviews."""
    task = Folds([Document("", "", "ab"[n // 1000]) for n in range(2000)], 10, 9, 1)
    for number, (train, test) in enumerate(task.folds):
        block = np.arange(100 * number, 100 * number + 100)
        assert test.tolist() == [*block, *1000 + block]
        assert sorted([*train, *test]) == list(range(2000))


@pytest.mark.parametrize("least", [1, 2, 9])
def test_the_vocabulary_is_that_of_the_training_documents(least):
    texts = ["red red Alpha", "", "beta Red\nblue", "blue ALPHA", "gamma gamma red", "beta Gamma"]
    task = Folds(documents_of(texts), 3, 2, least)
    assert task.classes.tolist() == ["a", "b"]
    for number in (1, 2, 3):
        data, vocabulary, train, test, _ = task.split(number)
        assert test.tolist() == [2 * number - 2, 2 * number - 1]
        words = [text.lower().split() for text in texts]
        counts = collections.Counter(word for n in train for word in words[n])
        known = {word for word, count in counts.items() if count >= least}
        assert vocabulary.size == len(known) + 2
        flat, found = [word for text in words for word in text], data.ids.flat_values.numpy()
        ids = dict(zip(flat, found.tolist(), strict=True))
        assert {ids[word] for word in known} == set(range(1, len(known) + 1))
        assert {ids[word] for word in set(flat) - known} <= {len(known) + 1}
        # The vocabulary of the SavedModel gives the same ids. The most frequent word comes first.
        assert np.array_equal(vocabulary(tf.constant(flat)), found)
        ordered = sorted(known, key=lambda word: ids[word])
        assert [counts[w] for w in ordered] == sorted((counts[w] for w in known), reverse=True)


def test_documents_without_words_are_a_task(tmp_path):
    task = Folds(documents_of([""] * 4), 2, 9, 1)
    data, vocabulary, *_ = task.split(1)
    assert vocabulary.size == 2
    assert not data.padded(np.arange(4)).any()
    results = Results(tmp_path / "results.json", {})
    evaluation.add_baselines(results, task, 1, 1)
    assert results.results == []


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
    splits = split([document.text for document in found], 25)
    for document, place, sentences in zip(found, deciding, splits, strict=True):
        data = document.text.encode()
        texts = [data[s[0][1] : s[-1][2]].decode() for s in sentences]
        assert len(texts) == document.text.count(".")
        assert max(map(len, sentences)) <= 20  # none is continued as the next one
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
    assert letters.make(20, seed=3)[0] == letters.make(30, seed=3)[0][:20]
    assert letters.make(20, seed=3) != letters.make(20, seed=4)


# --- linear models, report, reasons --------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "classes", "expected"),
    [
        # In the last fold the classes have changed places.
        (["good film", "bad film"] * 6, "ababababbaba", [0, 0, 0]),
        # One sign tells the class, or the order of the words, or nothing.
        (["?", "!"] * 6, "ab", [100, 100, 100]),
        (["a b c", "b a c"] * 6, "ab", [50, 100, 50]),
    ],
)
def test_linear_models_are_trained_on_the_other_folds(texts, classes, expected, tmp_path):
    task = Folds(documents_of(texts, classes), 3, 9, 1)
    results = Results(tmp_path / "results.json", {})
    for _ in range(2):  # the second time, all are there
        evaluation.add_baselines(results, task, 3, 1)
    assert [entry["pooling"] for entry in results.results] == list(evaluation.BASELINES)
    assert [entry["accuracy"] for entry in results.results] == expected
    assert {entry["fold"] for entry in results.results} == {3}


def test_the_report_compares_finished_folds(tmp_path, capsys):
    results = Results(tmp_path / "results.json", {})
    for pooling, scores in {"attention": (95, 98, 92, 1), "average": (90, 97, 87)}.items():
        for fold, accuracy in enumerate(scores, 1):
            results.add({"pooling": pooling, "fold": fold, "accuracy": accuracy})
    options = command.parse(["--runs", "3", "--pooling", "average", "attention"])
    documents = documents_of(["x"] * 5)
    evaluation.report(results, options, documents)
    always = "always a, % right: 60.00\n"
    assert capsys.readouterr().out == always + (
        "average, 3 of 5 folds, % right: 91.33 ± 5.13 (standard error 2.96)\n"
        "attention, 3 of 5 folds, % right: 95.00 ± 3.00 (standard error 1.73)\n"
        "attention over average: 3.67 ± 2.31 (standard error 1.33) points\n"
    )
    options = command.parse(["--runs", "1", "--pooling", "attention"])
    evaluation.report(results, options, documents)
    assert capsys.readouterr().out == f"{always}attention, 1 of 5 folds, % right: 95.00\n"


def reasons_task(encoder):
    """Two classes of few words, and a model of them with random weights."""
    rng = np.random.default_rng(4)
    texts = []
    for n in range(24):
        words = [*rng.choice(["the", "film", "was", "so", "old"], 9), ("bad", "good")[n % 2]]
        texts.append(" ".join(rng.permutation(words)))
    fold = Folds(documents_of(texts), 4, 5, 1).split(1)
    if encoder == "ngrams":
        models = ngrams.build_model(fold, "topic", 1)
    else:
        models = han.build_model(fold.vocabulary.size, 2, "attention", encoder, 5, 3, 0.0, 0.0)
    for n, weight in enumerate(models[0].trainable_weights):
        weight.assign(np.random.default_rng(n).normal(size=weight.shape))
    return fold, *models


def test_gradients_of_words_among_ngrams():
    fold, classifier, reader = reasons_task("ngrams")
    ids = fold.data.padded(fold.train[:3])
    found = evaluation.gradients(classifier, ids)
    probabilities = reader(ids)["probabilities"].numpy()
    classes = probabilities.argmax(axis=1)
    for place in ((0, 0), (1, 2)):
        gates = np.ones(ids.shape, "float32")
        gates[:, *place] = 1.001
        after = ngrams.probabilities(classifier.get_layer("ngrams")(ids, gates=gates)).numpy()
        gain = (after - probabilities)[np.arange(3), classes] / 0.001
        np.testing.assert_allclose(found[:, *place], gain, atol=2e-3)
    assert np.abs(found).max() > 0.01


def test_gradients_of_words():
    fold, classifier, reader = reasons_task("words")
    ids = fold.data.padded(np.arange(3))
    found = evaluation.gradients(classifier, ids)
    table = classifier.get_layer("embedding").embeddings
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


def test_weights_matter_if_their_words_decide():
    """The weights of the reader are replaced by those that find the deciding word, or another."""
    fold, classifier, _ = reasons_task("words")
    good, bad = fold.vocabulary(tf.constant(["good", "bad"])).numpy()

    class Reader:
        def __init__(self, right):
            self.right = right

        def predict_on_batch(self, ids):
            deciding = (ids == good) | (ids == bad)
            p = np.where((ids == good).any((1, 2)), 0.9, np.where(deciding.any((1, 2)), 0.1, 0.5))
            weights = np.where(deciding == self.right, 1.0, 0.1) * (ids > 0)
            shares = np.ones(ids.shape[:2])
            p = np.stack([1 - p, p], axis=1)
            return {"probabilities": p, "word_weights": weights, "sentence_weights": shares}

    for right in (True, False):
        found = evaluation.measure_reasons(classifier, Reader(right), fold, 3)
        assert found["weights matter"] is right
        assert ("matter no more than random words" in evaluation.describe(found)) is not right


# --- whole runs ----------------------------------------------------------------------------------


SMALL = ["--encoder", "words", "--folds", "2"]


def use_small_models(patch, longest=5):
    sizes = {"units": 2, "embedding": 3, "min_count": 1, "longest": longest}
    patch.setattr(command, "RECIPES", {name: x | sizes for name, x in command.RECIPES.items()})


@pytest.fixture(scope="module")
def data_path(tmp_path_factory):
    """Ten documents for each class: one word tells the class. One document of each has no word."""
    rng = np.random.default_rng(0)
    entries = []
    for n in range(20):
        words = rng.choice(["the", "film", "was", "3.5", "Größe", "北京", "<b>", "."], 12)
        words[rng.integers(12)] = ("dull", "great")[n % 2]
        text = " ".join(words) + "\n" * (n % 3) + f" only{n}"
        entries.append(line("" if n in (4, 7) else f"It is. {text}", n % 2))
    return write_lines(tmp_path_factory.mktemp("data") / "d.jsonl", *entries)


@pytest.fixture(scope="module")
def whole_run(data_path, tmp_path_factory):
    """A run with sizes that are padded to multiples of 16, as on a GPU."""
    output = tmp_path_factory.mktemp("whole") / "output"
    arguments = ["--data", str(data_path), "--output", str(output), *SMALL, "--epochs", "2"]
    arguments += ["--runs", "1"]
    measure, matter = evaluation.measure_reasons, {"weights matter": True}
    with pytest.MonkeyPatch.context() as patch:
        use_small_models(patch)
        patch.setattr(data_module, "MULTIPLE", 16)
        patch.setattr(evaluation, "measure_reasons", lambda *given: measure(*given) | matter)
        command.main(arguments)
    return arguments, output


@pytest.mark.slow
def test_what_a_run_writes(whole_run, data_path, monkeypatch, capsys):
    arguments, output = whole_run
    folder = output / "attention"
    names = ["document.png", "documents.html", "model.keras", "saved_model"]
    assert sorted(path.name for path in folder.iterdir()) == names
    assert (folder / "document.png").read_bytes().startswith(b"\x89PNG")
    # The reported accuracy is that of the saved model.
    before = (output / "results.json").read_bytes()
    *linear, entry = json.loads(before)
    assert [other["pooling"] for other in linear] == list(evaluation.BASELINES)
    fold = Folds(read(data_path), 2, 5, 1).split(1)
    model = keras.saving.load_model(folder / "model.keras")
    found = model.predict_on_batch(fold.data.padded(fold.test))["probabilities"]
    right = np.mean(found.argmax(axis=1) == fold.data.labels[fold.test])
    assert (entry["accuracy"], entry["parameters"]) == (100 * right, model.count_params())
    # A finished run is only reported.
    use_small_models(monkeypatch)
    monkeypatch.setattr(command, "train", pytest.fail)
    command.main(arguments)
    printed = capsys.readouterr().out
    assert f"attention, 1 of 2 folds, % right: {entry['accuracy']:.2f}\n" in printed
    assert printed.count("attention over ") == 3
    for name, value in (("seed", "7"), ("epochs", "3"), ("encoder", "none")):
        with pytest.raises(SystemExit, match=rf"other settings \({name}: '?\w+'? then, '?{value}"):
            command.main([*arguments, f"--{name}", value])
    other = write_lines(output.parent / "other.jsonl", *[line(label=n % 2) for n in range(20)])
    with pytest.raises(SystemExit, match=r"other settings \(data: "):
        command.main(["--data", str(other), *arguments[2:]])
    assert (output / "results.json").read_bytes() == before


@pytest.mark.slow
def test_the_saved_model_takes_any_text(whole_run, data_path):
    folder = whole_run[1] / "attention"
    vocabulary = Folds(read(data_path), 2, 5, 1).split(1).vocabulary
    serve = tf.saved_model.load(str(folder / "saved_model")).signatures["serving_default"]
    model = keras.saving.load_model(folder / "model.keras")
    texts = ["The film was dull. GREAT 北京 \u202eשלום", "", "a " * 40 + "\0\x7f👍.", " \n"]
    for chosen in (texts, texts[1:2], texts[:1], [texts[3], texts[1]]):
        found = {k: v.numpy() for k, v in serve(texts=tf.constant(chosen)).items()}
        encoded = encode(chosen, [0] * len(chosen), vocabulary, 5)
        expected = model.predict_on_batch(encoded.padded([*range(len(chosen))]))
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
    documents = read(data_path)
    serve = tf.saved_model.load(str(folder / "saved_model")).signatures["serving_default"]
    page = (folder / "documents.html").read_text(encoding="utf-8")
    articles = re.findall(r"<article.*?</article>", page, re.DOTALL)
    shown = [re.search(r"line \d+", article)[0] for article in articles]
    assert len(set(shown)) == len(shown) >= 4
    test = Folds(documents, 2, 5, 1).folds[0][1]
    assert set(shown) <= {documents[n].name for n in test}
    for name, article in zip(shown, articles, strict=True):
        text = next(d.text for d in documents if d.name == name)
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
        assert ("&lt;" in article) == ("<b>" in text)
        assert ("does not know, and treats alike: only" in article) == ("only" in text)


@pytest.mark.slow
def test_letters_are_asked_for_the_deciding_sentence(tmp_path, monkeypatch, capsys):
    noted, predict = [], evaluation.predict

    def note(reader, data, chosen):
        noted.append((chosen, predict(reader, data, chosen)))
        return noted[-1][1]

    use_small_models(monkeypatch, longest=25)
    monkeypatch.setattr(evaluation, "predict", note)
    monkeypatch.setattr(evaluation, "save", lambda *given: None)
    arguments = ["--output", str(tmp_path), *SMALL, "--documents", "60", "--seed", "6"]
    command.main([*arguments, "--epochs", "1", "--encoder", "none"])
    deciding = letters.make(60, seed=6)[1]
    chosen, found = noted[0]
    largest = [np.argmax(weights) for weights in found["sentence_weights"]]
    expected = 100 * np.mean([n == deciding[k] for n, k in zip(largest, chosen, strict=True)])
    attention = json.loads((tmp_path / "results.json").read_text())[-2]
    assert 0 < attention["deciding"] == expected < 100
    printed = capsys.readouterr().out
    assert printed.count(f"sentence with the largest weight decides in {expected:.1f}%") == 1


def test_weights_that_are_no_reasons_are_not_drawn(tmp_path, monkeypatch, capsys):
    task = Folds(documents_of(["one two"] * 4), 2, 9, 1)
    reply = {"absent": ["keras"], "probabilities": [[0.5, 0.5]], "label": ["a"]}
    reply |= {"words": [[["one", ""]]], "start_byte": [[[0, 0]]], "end_byte": [[[3, 0]]]}
    reply |= {"word_weights": [[[1, 0]]], "sentence_weights": [[1]]}
    for name in ("write_model", "write_saved_model"):
        monkeypatch.setattr(evaluation, name, lambda *given: None)
    for name in ("check_saved_model", "predict"):
        monkeypatch.setattr(evaluation, name, lambda *given: reply)
    kinds = ("weights", "gradient times input", "random words")
    reasons = {kind: {"comprehensiveness": 0.0, "sufficiency": 0.0} for kind in kinds}
    for matter in (True, False):
        reasons["weights matter"] = matter
        evaluation.save(None, task.split(1), task, np.array([0]), reasons, tmp_path)
        assert (tmp_path / "document.png").exists() is matter
        page = (tmp_path / "documents.html").read_text(encoding="utf-8")
        assert ("The words with the largest weights matter no more" in page) is not matter
        assert ("No picture, because" in capsys.readouterr().out) is not matter
