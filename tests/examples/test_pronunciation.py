"""Pronunciation: the invented spelling, the files, the ids, and the official evaluation."""

import json
import re
import types

import numpy as np
import pytest
import tensorflow as tf

from examples.pronunciation import __main__ as command
from examples.pronunciation import data, evaluation, export, language
from examples.pronunciation.model import Pronouncer, build_model
from keras_attention.search import SearchResult


PAIRS = [("ça", ["s", "a"]), ("deux mots", ["d", "ø", "m", "o"])]


def write(folder, text, name="fre_train.tsv"):
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(text.encode())
    return folder / name


@pytest.mark.parametrize("change", [str, lambda s: "\ufeff" + s.replace("\n", "\r\n\n")])
def test_a_file_is_read(tmp_path, change):
    assert data.read(write(tmp_path, change("ça\ts a\ndeux mots\td ø m o\n"))) == PAIRS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ça\ts a\nça s a\n", "line 2: expected a word, a tab"),
        ("ça\t \n", "line 1"),
        ("\ts a\n", "line 1"),
        ("ça\ts a\tfra\n", "line 1"),
        ("\n", "holds no word"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path, text, message):
    with pytest.raises(SystemExit, match=message):
        data.read(write(tmp_path, text))


def test_the_files_of_a_language_are_found_in_folders(tmp_path):
    for split in data.SPLITS:
        write(tmp_path / "medium", f"{split}\ta\n", f"fre_{split}.tsv")
    found = data.load(tmp_path, "fre", seed=1)
    assert found == {split: [(split, ["a"])] for split in data.SPLITS}
    with pytest.raises(SystemExit, match=r"expected one file dut_train\.tsv, found 0.* there: fre"):
        data.load(tmp_path, "dut", seed=1)


def test_symbols_become_ids_and_back():
    phones = data.Symbols([["b", "a"], ["a"], ["a", "b", "tʃ"]])
    assert phones.names[data.END + 1 :] == ["a", "b", "tʃ"]
    [ids] = data.encode_phones(phones, [["tʃ", "a", "new"]])
    assert ids == [6, 4, data.UNKNOWN, data.END]
    assert phones.decode([6, 4, 5, data.END, 4]) == ["tʃ", "a", "b"]
    assert phones.decode([6, 4]) == ["tʃ", "a"]
    letters = data.Symbols(["ab"])
    assert data.encode_words(letters, ["ba"]) == [[data.START, 5, 4, data.END]]


def test_accents_are_letters_of_their_own():
    together, apart = "\N{LATIN SMALL LETTER E WITH ACUTE}", "e\N{COMBINING ACUTE ACCENT}"
    letters, _ = data.find_symbols([(together, ["e"])])
    composed, decomposed = data.encode_words(letters, [together, apart])
    assert composed == decomposed == [data.START, 4, 5, data.END]
    [grave] = data.encode_words(letters, ["\N{LATIN SMALL LETTER E WITH GRAVE}"])
    assert grave == [data.START, 4, data.UNKNOWN, data.END]  # the e is known


def test_the_picture_shows_each_mark_on_a_circle(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    drawn = {}
    monkeypatch.setattr(export, "save_figure", lambda path, figure: drawn.update(figure=figure))
    export.draw_alignment("né", ["n", "e"], np.full((4, 8), 0.2), tmp_path / "x.png")
    labels = [label.get_text() for label in drawn["figure"].axes[0].get_xticklabels()]
    assert labels == ["⊢", "n", "e", "◌\N{COMBINING ACUTE ACCENT}", "⊣"]


def build(attention, dropout=0.0, backward=False):
    options = {"attention": attention, "units": 5, "embedding": 3, "layers": 2, "dropout": dropout}
    return build_model(types.SimpleNamespace(**options), 11, 13, backward)


def test_a_backward_model_reads_the_last_letter_first():
    ahead, back = (build("hard", backward=way) for way in (False, True))
    word, phones = np.array([[2, 5, 6, 7, 3, 0]]), np.array([[6, 7, 3]])
    for model in (ahead, back):
        model((word, phones))
    back.set_weights(ahead.get_weights())
    turned = np.array([[3, 7, 6, 5, 2, 0]])
    np.testing.assert_allclose(back((word, phones)), ahead((turned, phones)), atol=1e-6)
    assert np.abs(np.array(back((word, phones))) - ahead((word, phones))).max() > 1e-3


def test_phones_of_a_backward_model_are_in_reading_order():
    tokens = np.array([[4, 5, 6, data.END], [7, data.END, data.END, data.END]])
    found = SearchResult(tokens, np.array([4, 2]), np.zeros(2), None, np.zeros((2, 4)))
    model = types.SimpleNamespace(generate=lambda ids, **options: found)
    letters, phones = data.Symbols(["ab"]), data.Symbols(["v", "w", "x", "y"])
    for backward, expected in ((False, ["v", "w", "x"]), (True, ["x", "w", "v"])):
        pronouncer = Pronouncer([(model, backward)], letters, phones, beam=3, longest=4)
        assert pronouncer(["ab", "b"]) == [expected, ["y"]]


def test_a_word_is_right_or_wrong():
    found = [["a", "b"], ["ab"], ["a"], []]
    right = [("a", "b"), ("a", "b"), ("a", "a"), ("a",)]
    # Of seven phones, "b" is missing and "ab" is wrong, then an "a" is missing twice.
    scores = {"words": 4, "word_error_rate": 75, "phone_error_rate": 100 * 4 / 7}
    assert evaluation.score(found, right) == pytest.approx(scores)
    with pytest.raises(ValueError, match="shorter"):
        evaluation.score(found, right[:3])


SMALL = ["--units", "5", "--steps", "6", "--beam", "2", "--dropout", "0.3"]


@pytest.fixture
def words(monkeypatch):
    """Few words, and epochs of two steps."""
    monkeypatch.setattr(data, "INVENTED", (90, 7, 7))
    monkeypatch.setattr(command, "EPOCH", 2)


@pytest.mark.parametrize(
    "count",
    [pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.exhaustive)],
)
def test_the_whole_command(count, words, tmp_path, capsys):
    """A model that is too small to learn anything, or two of both directions, write everything."""
    ensemble = ["--ensemble", "2", "--backward", "1"] if count == 2 else []
    command.main([*SMALL, "--output", str(tmp_path), *ensemble])
    assert "The reloaded SavedModel agrees" in capsys.readouterr().out
    summary = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
    directions = ["left to right", "right to left"]
    assert [model["direction"] for model in summary["models"]] == directions[:count]
    lines = (tmp_path / "test.tsv").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("\t") for line in lines]
    wrong = sum(phones.split() != language.pronounce(word) for word, phones in pairs)
    assert 100 * wrong / len(pairs) == pytest.approx(summary["test"]["word_error_rate"])
    assert (tmp_path / "alignment-4.png").stat().st_size > 1000
