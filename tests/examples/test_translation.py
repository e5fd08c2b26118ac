"""Translation: data, errors, resuming, and a short run of the whole command."""

import json
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from examples.common import arguments, dates
from examples.common.training import Resume
from examples.translation import __main__ as command
from examples.translation import data, evaluation, model, options, shards
from tests import Killed

pytest.importorskip("tensorflow_text", reason="the tokenizers come from it")


def write(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return str(path)


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("eins\nzwei\ndrei\n", "one\ntwo\n", "a has more lines than .*b, which has 2: line n of"),
        ("a\n" * 40, "a\n" * 45, "b has more lines than .*a, which has 40"),
        ("fine\nsch\udcf6n\n", "one\ntwo\n", "a, line 2: not UTF-8"),
        ("fine\na\0\n", "one\ntwo\n", "a, line 2: holds a NUL.*iconv -f utf-16"),
        ("\n\n", "\none\n", "hold no pair"),
        ("", "", "hold no pair"),
        ("one\n", None, "b: No such file"),
    ],
)
def test_files_that_do_not_fit_are_refused_before_anything_is_written(
    tmp_path, source, target, message
):
    paths = [tmp_path / "a", tmp_path / "b"]
    for path, text in zip(paths, (source, target), strict=True):
        if text is not None:
            path.write_bytes(text.encode("utf-8", "surrogateescape"))
    before, pair = sorted(tmp_path.iterdir()), [*map(str, paths)]
    files = ["--train", *pair, "--valid", *pair, "--test", *pair]
    with pytest.raises(SystemExit, match=message):
        command.main([*files, "--output", str(tmp_path / "output")])
    with pytest.raises(SystemExit, match=message):
        shards.main([*pair, "--output", str(tmp_path / "output")])
    assert sorted(tmp_path.iterdir()) == before


def test_pairs_with_an_empty_side_are_left_out_and_counted(tmp_path, capsys):
    source = write(tmp_path / "a", "eins\n\ndrei\u2028vier\r\n", "utf-8-sig")
    target = write(tmp_path / "b", "one\ntwo\nthree four\n")
    pairs = [("eins", "one"), ("drei\u2028vier", "three four")]
    assert list(data.read_pairs([source, target])) == pairs
    assert "1 pairs" in capsys.readouterr().out
    assert len(list(data.read_pairs([source, target], keep_empty=True))) == 3


def test_a_vocabulary_smaller_than_the_alphabet_is_refused():
    for kind in ("bpe", "char"):
        with pytest.raises(SystemExit, match=r"--vocabulary must be at least 9.*received 8"):
            data.learn_subwords(["ab", "cd"], 8, kind)
        assert data.learn_subwords(["ab", "cd"], 9, kind)


@pytest.mark.parametrize("lines", [["ab " * 2_000], ["ab " * 2_000, "cd"]])
def test_subwords_are_learned_from_long_lines_too(lines):
    for kind in ("bpe", "char"):
        tokenizer, _ = data.make_tokenizers([data.learn_subwords(lines, 12, kind)] * 2)
        assert data.UNKNOWN not in tokenizer.tokenize("ab ab").numpy()


def test_subwords_log_nothing(capfd):
    subwords = [data.learn_subwords(lines, 30, "bpe") for lines in (["silent"], ["quiet"])]
    tokenizers = data.make_tokenizers(subwords)
    assert [len(side) for side in data.encode(tokenizers, [["silent"], ["quiet"]])[0]] == [2, 2]
    assert "LOG(" not in capfd.readouterr().err


def test_dates_are_right_reproducible_and_disjoint():
    date = dates.datetime.date(1998, 9, 3)
    written = {dates.write(date, pattern) for pattern in dates.FORMATS}
    assert len(written) == len(dates.FORMATS)
    assert {"3rd of September 1998", "3 Sep 1998", "Thursday, 3 September 1998"} <= written
    endings = [dates.write(date.replace(day=day), "{nth}") for day in (1, 2, 11, 12, 13, 21, 22)]
    assert endings == ["1st", "2nd", "11th", "12th", "13th", "21st", "22nd"]
    assert dates.write(date.replace(month=8, day=31), "{ordinal}") == "thirty-first"
    first, second = dates.make_pairs([300, 200], seed=5)
    assert (first, second) == tuple(dates.make_pairs([300, 200], seed=5))
    assert not set(first[1]) & set(second[1])
    assert first != dates.make_pairs([300, 200], seed=6)[0]


class Numbers:
    """A tokenizer of texts that are ids."""

    def tokenize(self, lines):
        return tf.strings.to_number(tf.strings.split(lines), tf.int32)


def test_the_last_models_learn_targets_in_reverse_order():
    parsed = options.parse(["--ensemble", "3", "--backward", "2", "--seed", "5"])
    assert arguments.members(parsed) == [(5, False), (6, True), (7, True)]
    texts = ["5 6 3", "7 3"], ["8 9 10 3", "3"]
    pairs = data.encode((Numbers(), Numbers()), texts, backward=True)
    assert pairs == [([5, 6, 3], [10, 9, 8, 3]), ([7, 3], [3])]


def test_long_training_pairs_are_left_out_and_counted(capsys):
    pairs = [([1] * 3, [1] * 4), ([1] * 9, [1]), ([1] * 2, [1] * 2)]
    assert data.drop_long(pairs, 4) == [pairs[0], pairs[2]]
    assert "1 of 3 training pairs have more than 4 tokens" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="raise --max-tokens"):
        data.drop_long(pairs, 1)


def test_without_attention_the_decoder_is_a_plain_recurrence():
    rng = np.random.default_rng(0)
    words, state, memory, other = (
        rng.normal(size=x).astype("float32") for x in ((2, 3, 5), (2, 6), (2, 7, 6), (2, 4, 6))
    )
    decoder = model.make_decoder("none", 6, 10, False)
    found = decoder(words, memory, initial_state=state)
    plain = keras.layers.RNN(decoder.cell, return_sequences=True)
    np.testing.assert_allclose(found, plain(words, initial_state=state), rtol=0, atol=1e-6)
    np.testing.assert_array_equal(found, decoder(words, other, initial_state=state))
    assert not decoder.attention.weights


@pytest.mark.slow
def test_a_stack_translates_as_before_when_it_is_loaded(tmp_path):
    arguments = ["--attention", "stack", "--units", "6", "--embedding", "5", "--output", "x"]
    made = model.build_model((20, 20), options.parse(arguments))
    made.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    source = np.random.default_rng(0).integers(4, 20, (3, 7))
    found, again = (x.generate(source, 5, "greedy") for x in (made, loaded))
    np.testing.assert_array_equal(again.tokens, found.tokens)
    np.testing.assert_array_equal(again.weights, found.weights)


def test_a_model_with_small_vocabularies_is_saved(tmp_path, monkeypatch):
    monkeypatch.setattr(evaluation, "can_export", lambda: False)
    texts = ["0 1 1 0", "1 0"]
    subwords = [data.learn_subwords(texts, 8, "bpe")] * 2
    arguments = f"--attention none --units 6 --embedding 5 --output {tmp_path}"
    parsed = options.parse(arguments.split())
    made = model.build_model((8, 8), parsed)
    evaluation.save(made, subwords, texts, {"max_length": 5, "beam_width": 2}, parsed)
    assert (tmp_path / "model.keras").exists()


def test_bleu_is_reported_by_source_length_with_its_signature():
    sources = ["ein Wort", "eins zwei drei vier fünf sechs sieben acht neun"]
    perfect = ["one single lonely word here", "one two three four five six seven eight nine"]
    report = evaluation.bleu_report(sources, perfect, perfect)
    assert report["all"] == pytest.approx(100)
    assert "tok:13a" in report["signature"]
    assert report["1-7 words"]["sentences"] == report["8-11 words"]["sentences"] == 1
    wrong = evaluation.bleu_report(sources, ["a b c d e", perfect[1]], perfect)
    assert wrong["1-7 words"]["BLEU"] < 20 < wrong["all"] < 100


@pytest.mark.slow
# `CSVLogger` does not close its file where `fit` ends with an error.
@pytest.mark.filterwarnings("ignore:Exception ignored in.*log.csv")
def test_a_run_that_is_killed_within_an_epoch_ends_with_the_same_weights(tmp_path, monkeypatch):
    """From shards. `test_training.py` does so with data in memory."""
    pytest.importorskip("grain", reason="it reads the shards")
    pairs, valid = dates.make_pairs((90, 10), seed=3)
    paths = [write(tmp_path / str(n), "\n".join(side) + "\n") for n, side in enumerate(pairs)]
    shards.write_shards(paths, tmp_path / "made", 2)
    texts = {"train": shards.Shards(tmp_path / "made"), "valid": valid}
    subwords = [data.learn_subwords(side, 100, "char") for side in pairs]

    def train(name, *more):
        arguments = "--attention luong-dot --units 6 --embedding 5 --batch-size 8 --shards x "
        arguments += f"--steps 21 --save-every 7 --valid a b --test a b --output {tmp_path / name}"
        parsed = options.parse([*arguments.split(), *more])
        trained, summary = command.train(2, False, texts, subwords, parsed)
        return trained.get_weights(), {**summary, "seconds_a_step": 0}

    weights, summary = train("whole")
    steps = []

    def die(self, batch, logs=None):
        steps.append(batch)
        if len(steps) == 16:  # in the third epoch
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Resume, "on_train_batch_end", die)
        with pytest.raises(Killed):
            train("killed")
    resumed, again = train("killed")
    assert again == summary
    for x, y in zip(resumed, weights, strict=True):
        np.testing.assert_array_equal(x, y)
    with pytest.raises(SystemExit, match=r"learning_rate: 0\.002 then, 0\.02 now"):
        train("killed", "--learning-rate", "0.02")


def test_a_run_with_other_validation_data_is_refused(tmp_path, monkeypatch):
    def stop(*_):
        raise Killed

    monkeypatch.setattr(command, "build_model", stop)
    pairs, valid, other = dates.make_pairs((20, 5, 5), seed=3)
    subwords = [data.learn_subwords(side, 100, "char") for side in pairs]
    parsed = options.parse(["--output", str(tmp_path)])
    for _ in range(2):
        with pytest.raises(Killed):
            command.train(1, False, {"train": pairs, "valid": valid}, subwords, parsed)
    with pytest.raises(SystemExit, match=r"\(validation data: '.*' then, '.*' now\)"):
        command.train(1, False, {"train": pairs, "valid": other}, subwords, parsed)


@pytest.mark.exhaustive
def test_two_directions_learn_and_serve(tmp_path):
    started = [sys.executable, "-m", "examples.translation", "--output", str(tmp_path)]
    started += ["--ensemble", "2", "--backward", "1"]
    run = subprocess.run(started, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "seed 2, right to left: " in run.stdout
    assert "The reloaded SavedModel agrees" in run.stdout
    assert "difference after reloading " in run.stdout
    summary = json.loads((tmp_path / "summary.json").read_text())
    found = summary["ensemble"]
    # Each writes dates in its direction, and their translations are read from left to right.
    assert [member["backward"] for member in found["members"]] == [False, True]
    assert [member["seed"] for member in found["members"]] == [1, 2]
    assert all(member["score"] > 0.8 for member in found["members"])
    assert found["mean"] == np.mean([member["score"] for member in found["members"]])
    assert found["score"] == summary["exact"] > 0.8
    assert (tmp_path / "alignment.png").read_bytes().startswith(b"\x89PNG")
    assert len((tmp_path / "translations.txt").read_text().splitlines()) == 1000
    folders = sorted(path.name for path in tmp_path.glob("checkpoint-*"))
    backward = "checkpoint-bahdanau-backward-seed-2"
    assert folders == ["checkpoint-bahdanau", backward, "checkpoint-none"]
