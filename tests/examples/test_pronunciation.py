"""Pronunciation: files, ids, both directions, and the official evaluation."""

import json
import types

import numpy as np
import pytest

from examples.pronunciation import __main__ as command
from examples.pronunciation import data, evaluation
from examples.pronunciation.model import build_model
from tests.examples import assert_ends


def write(folder, text, name="fre_train.tsv"):
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(text.encode())
    return folder / name


BAD = {"ça\ts a\nça s a\n": "line 2: expected a word, a tab", "\n": "holds no word"}
BAD |= dict.fromkeys(["ça\t \n", "\ts a\n", "ça\ts a\tfra\n"], "line 1")


@pytest.mark.parametrize("text", BAD)
def test_a_wrong_file_is_refused(tmp_path, text):
    assert_ends(lambda: data.read(write(tmp_path, text)), BAD[text])


def build(attention, dropout=0.0, backward=False):
    options = {"attention": attention, "units": 5, "embedding": 3, "layers": 2, "dropout": dropout}
    letters, phones = data.find_symbols([("abcdefg", [*"abcdefghi"])])
    return build_model(types.SimpleNamespace(**options), letters, phones, backward)


def test_a_backward_model_reads_the_last_letter_first():
    ahead, back = (build("hard", backward=way) for way in (False, True))
    # Each reads a sign, 2, before the word.
    word, phones = np.array([[5, 6, 2, 0]]), np.array([[6, 7, 3]])
    for model in (ahead, back):
        model((word, phones))
    back.set_weights(ahead.get_weights())
    turned = np.array([[6, 5, 2, 0]])
    np.testing.assert_allclose(back((word, phones)), ahead((turned, phones)), atol=1e-6)
    assert np.abs(np.array(back((word, phones))) - ahead((word, phones))).max() > 1e-4


def test_a_word_is_right_or_wrong():
    found = [["a", "b"], ["ab"], ["a"], []]
    right = [("a", "b"), ("a", "b"), ("a", "a"), ("a",)]
    # Of seven phones, "b" is missing and "ab" is wrong, then an "a" is missing twice.
    scores = {"words": 4, "word_error_rate": 75, "phone_error_rate": 100 * 4 / 7}
    assert evaluation.score(found, right) == pytest.approx(scores)
    with pytest.raises(ValueError, match="shorter"):
        evaluation.score(found, right[:3])


@pytest.mark.slow
def test_the_whole_command(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "EPOCH", 2)
    rng = np.random.default_rng(1)
    for split, count in (("train", 90), ("dev", 7), ("test", 7)):
        words = {"".join(rng.choice([*"abcde"], rng.integers(2, 6))) for _ in range(count)}
        write(tmp_path, "".join(f"{x}\t{' '.join(x)}\n" for x in words), f"fre_{split}.tsv")
    output = tmp_path / "output"
    options = "--units 5 --steps 6 --beam 2 --dropout 0.3 --ensemble 2 --backward 1 --language fre"
    command.main([*options.split(), "--data", str(tmp_path), "--output", str(output)])
    assert "difference after reloading" in capsys.readouterr().out
    summary = json.loads((output / "summary.json").read_text(encoding="utf-8"))
    assert [x["direction"] for x in summary["models"]] == ["left to right", "right to left"]
    lines = (output / "test.tsv").read_text(encoding="utf-8").splitlines()
    wrong = sum(word != phones.replace(" ", "") for word, phones in (x.split("\t") for x in lines))
    assert 100 * wrong / len(lines) == pytest.approx(summary["test"]["word_error_rate"])
    assert (output / "alignment-4.png").stat().st_size > 1000
