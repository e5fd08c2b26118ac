"""Translation: data, errors, resuming, and a short run of the whole command."""

import json
import subprocess
import sys

import keras
import numpy as np
import pytest

from examples.common import checkpoint, dates
from examples.translation import __main__ as command
from examples.translation import data as texts
from examples.translation import evaluation, model, reading, rounds, search, training

pytest.importorskip("tensorflow_text", reason="the tokenizers come from it")


def write(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return str(path)


def run_with_files(tmp_path, source, target):
    pair = [write(tmp_path / "a", source), write(tmp_path / "b", target)]
    output = tmp_path / "output"
    arguments = ["--train", *pair, "--valid", *pair, "--test", *pair, "--output", str(output)]
    with pytest.raises(SystemExit) as error:
        command.main(arguments)
    assert not output.exists()
    return str(error.value)


def test_misaligned_files_are_refused_with_both_line_counts(tmp_path):
    message = run_with_files(tmp_path, "eins\nzwei\ndrei\n", "one\ntwo\n")
    assert "has 3 lines" in message
    assert "has 2" in message


def test_files_without_a_pair_missing_and_undecodable_files_are_refused(tmp_path):
    assert "no pair" in run_with_files(tmp_path, "\n\n", "\none\n")
    good = write(tmp_path / "good", "one\n")
    bad = write(tmp_path / "bad", "fine\nschön\n", "latin-1")
    with pytest.raises(SystemExit, match="bad, line 2: not UTF-8"):
        reading.load_pairs([bad, good])
    with pytest.raises(SystemExit, match="No such file"):
        reading.load_pairs([good, str(tmp_path / "absent")])


def test_a_byte_order_mark_is_left_out(tmp_path):
    source = write(tmp_path / "a", "eins\nzwei\n", "utf-8-sig")
    target = write(tmp_path / "b", "one\ntwo\n")
    assert reading.load_pairs([source, target]) == (["eins", "zwei"], ["one", "two"])


def test_a_vocabulary_smaller_than_the_alphabet_is_refused():
    with pytest.raises(SystemExit, match=r"--vocabulary must be at least 9.*received 8"):
        texts.learn_subwords(["ab", "cd"], 8, "bpe")
    assert texts.learn_subwords(["ab", "cd"], 9, "bpe")


def test_pairs_with_an_empty_side_are_left_out_and_counted(tmp_path, capsys):
    source = write(tmp_path / "a", "eins\n\ndrei\u2028vier\r\n")
    target = write(tmp_path / "b", "one\ntwo\nthree four\n")
    assert reading.load_pairs([source, target]) == (
        ["eins", "drei\u2028vier"],
        ["one", "three four"],
    )
    assert "1 pairs" in capsys.readouterr().out
    assert len(reading.load_pairs([source, target], keep_empty=True)[0]) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--train", "a", "b"], "give all three or none"),
        (["--input-feeding"], "goes with the luong attentions"),
        (["--units", "7"], "must be even"),
        (["--beam", "0"], "--beam must be at least 1"),
        (["--batch-size", "-1"], "--batch-size must be at least 1"),
        (["--dropout", "1.5"], "--dropout must be in [0, 1)"),
        (["--learning-rate", "nan"], "--learning-rate must be in [0, inf)"),
        (["--seed", str(2**32)], "--seed must be in [0, 2**32)"),
        (["--ensemble", "0"], "--ensemble must be at least 1"),
        (["--seed", str(2**32 - 3), "--ensemble", "4"], "--seed must be at most 4294967292"),
        (["--backward", "1"], "less than --ensemble, which is 1; received 1"),
        (["--ensemble", "2", "--backward", "1", "--compare-searches"], "cannot be combined"),
        (["--ensemble", "2", "--backward", "1", "--coverage-penalty", "1"], "cannot be combined"),
        (["--length-penalty", "-1"], "--length-penalty must be in [0, 5)"),
        (["--no-repeat-ngram-size", "-1"], "--no-repeat-ngram-size must be in [0, inf)"),
        (["--attention", "none", "--coverage-penalty", "1"], "--coverage-penalty needs an attent"),
    ],
)
def test_bad_arguments_are_refused(arguments, message, capsys):
    with pytest.raises(SystemExit):
        command.parse(arguments)
    assert message in capsys.readouterr().err


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


def test_batches_hold_every_pair_once():
    sources = [[5 + i] * (1 + i % 7) + [texts.END] for i in range(23)]
    targets = [[6 + i] * (1 + i % 5) + [texts.END] for i in range(23)]
    seen = []
    for pair, again in texts.make_batches(sources, targets, 4, np.random.default_rng(0)):
        assert again is pair[1]
        for rows in zip(*pair, strict=True):
            lists = [row[row != texts.PAD].tolist() for row in rows]
            assert all(not row[len(x) :].any() for row, x in zip(rows, lists, strict=True))
            seen.append(tuple(lists))
    assert sorted(seen) == sorted(zip(sources, targets, strict=True))


def test_the_last_models_learn_targets_in_reverse_order():
    arguments = command.parse(["--ensemble", "3", "--backward", "2", "--seed", "5"])
    assert training.members(arguments) == [(5, False), (6, True), (7, True)]
    batches = list(texts.make_batches([[5, 6, 3], [7, 3]], [[8, 9, 10, 3], [4, 3]], 2))
    [((source, target), again)] = texts.reverse_batches(batches)
    assert again is target
    assert np.array_equal(source, batches[0][0][0])
    assert sorted(target.tolist()) == [[4, 3, 0, 0], [10, 9, 8, 3]]


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


class Killed(Exception):
    pass


@pytest.mark.slow
def test_a_killed_run_continues_to_the_same_result(tmp_path, monkeypatch, capsys):
    rng = np.random.default_rng(0)
    pairs = [[*rng.integers(4, 12, rng.integers(2, 7)).tolist(), texts.END] for _ in range(41)]
    data = {"train": (pairs, pairs[::-1]), "valid": (pairs[:9], pairs[9:18])}
    arguments = {"batch_size": 8, "epochs": 3, "learning_rate": 0.01, "smoothing": 0.1, "seed": 2}

    def train(directory):
        keras.utils.set_random_seed(7)
        made = model.build_model("luong-dot", 12, 12, 6, 5, 0.3, 10, False)
        saved = checkpoint.Checkpoint(directory, arguments)
        epochs = rounds.Epochs(data["train"], arguments)
        state = training.train(made, epochs, data["valid"], arguments, saved)
        return state["history"], made.get_weights()

    whole, weights = train(tmp_path / "whole")
    save = checkpoint.Checkpoint.save

    def save_and_die(self, model, entry):
        save(self, model, entry)
        if entry["epoch"] == 2:
            raise Killed

    monkeypatch.setattr(checkpoint.Checkpoint, "save", save_and_die)
    with pytest.raises(Killed):
        train(tmp_path / "killed")
    monkeypatch.setattr(checkpoint.Checkpoint, "save", save)
    resumed, resumed_weights = train(tmp_path / "killed")
    assert "Resuming after epoch 2" in capsys.readouterr().out
    for entry, other in zip(whole, resumed, strict=True):
        assert {**entry, "seconds": 0} == {**other, "seconds": 0}
    for a, b in zip(weights, resumed_weights, strict=True):
        np.testing.assert_array_equal(a, b)
    files = sorted(path.name for path in (tmp_path / "killed").iterdir())
    assert len([name for name in files if name.startswith("epoch")]) == 1

    arguments["learning_rate"] = 0.02
    with pytest.raises(SystemExit, match=r"learning_rate: 0\.01 then, 0\.02 now"):
        train(tmp_path / "killed")
    assert files == sorted(path.name for path in (tmp_path / "killed").iterdir())


@pytest.mark.slow
def test_a_model_is_the_same_whatever_was_trained_before(tmp_path, monkeypatch):
    sets = dict(zip(("train", "valid", "test"), dates.make_pairs((60, 10, 12), 3), strict=True))
    monkeypatch.setattr(command, "load_data", lambda arguments: sets)
    begun = []

    def train(model, *_):
        begun.append([np.array(variable) for variable in model.variables])
        return {"history": [{"valid_loss": 1.0, "seconds": 1.0}], "best": 1}

    monkeypatch.setattr(training, "train", train)
    monkeypatch.setattr(checkpoint.Checkpoint, "load_best", lambda *_: None)
    sizes = ["--units", "8", "--embedding", "4", "--beam", "2", "--output", str(tmp_path)]
    # The command writes a SavedModel after it has built the second model.
    command.main([*sizes, "--attention", "luong-dot"])
    monkeypatch.setattr(command, "save", lambda *_, **__: None)
    command.main([*sizes, "--attention", "none"])
    _, second, alone = begun
    for x, y in zip(second, alone, strict=True):
        np.testing.assert_array_equal(x, y)


def test_the_table_changes_one_option_in_each_row():
    arguments = command.parse(["--length-penalty", "0.5", "--beam", "3"])
    table = search.searches(arguments)
    assert table.pop("greedy") == {"search": "greedy"}
    plain = table.pop("beam 3")
    assert plain == {"beam_width": 3, "length_penalty": 0.5}
    changes = [{x: y for x, y in row.items() if plain.get(x) != y} for row in table.values()]
    assert {"length_penalty": 0.0} in changes
    assert {"length_penalty": 1.0} in changes
    assert {"coverage_penalty": 0.1, "coverage": "gnmt"} in changes
    assert {"no_repeat_ngram_size": 3} in changes
    assert all(len(set(change) - {"coverage"}) == 1 for change in changes)
    arguments.attention = "none"
    assert not [x for x in search.searches(arguments) if "coverage" in x]


@pytest.mark.slow
def test_an_ensemble_resumes_and_reports_its_members_and_searches(tmp_path, monkeypatch, capsys):
    sets = dict(zip(("train", "valid", "test"), dates.make_pairs((60, 10, 12), 3), strict=True))
    monkeypatch.setattr(command, "load_data", lambda arguments: sets)
    monkeypatch.setattr(search, "searches", lambda _: {"greedy": {"search": "greedy"}})
    options = ["--units", "8", "--embedding", "4", "--epochs", "1", "--smoke", "--seed", "5"]
    options += ["--output", str(tmp_path), "--coverage-penalty", "0.1", "--beam", "2"]
    with monkeypatch.context() as patch:
        patch.setattr(command, "save", lambda *_, **__: None)
        # So little training is not enough.
        with pytest.raises(SystemExit, match="smoke run"):
            command.main(options)
    with pytest.raises(SystemExit, match="smoke run"):
        command.main([*options, "--ensemble", "2", "--compare-searches"])
    printed = capsys.readouterr().out
    # The second run uses the model of the first.
    assert "Resuming after epoch 1" in printed
    assert printed.count("epoch 1/1: ") == 2
    assert "The reloaded SavedModel agrees" in printed
    folders = sorted(path.name for path in tmp_path.glob("checkpoint-*"))
    assert folders == ["checkpoint-bahdanau", "checkpoint-bahdanau-seed-6"]
    summary = json.loads((tmp_path / "summary.json").read_text())
    found = summary["ensemble"]
    assert [member["seed"] for member in found["members"]] == [5, 6]
    assert len({member["validation_perplexity"] for member in found["members"]}) == 2
    assert found["mean"] == np.mean([member["score"] for member in found["members"]])
    assert found["score"] == summary["exact"]
    assert summary["searches"]["greedy"]["options"] == {"search": "greedy"}


@pytest.mark.slow
def test_models_of_both_directions_learn_and_serve(tmp_path, capsys):
    options = ["--smoke", "--output", str(tmp_path), "--ensemble", "2", "--backward", "1"]
    command.main(options)
    printed = capsys.readouterr().out
    assert "seed 2, right to left: " in printed
    assert "The reloaded SavedModel agrees" in printed
    folders = sorted(path.name for path in tmp_path.glob("checkpoint-*"))
    assert folders == ["checkpoint-bahdanau", "checkpoint-bahdanau-backward-seed-2"]
    found = json.loads((tmp_path / "summary.json").read_text())["ensemble"]
    # Each writes dates in its direction, and their translations are read from left to right.
    assert [member["backward"] for member in found["members"]] == [False, True]
    assert all(member["score"] > 0.8 for member in found["members"])
    assert found["score"] > 0.8


def test_a_diverged_run_says_so_and_keeps_what_it_had(tmp_path):
    saved = checkpoint.Checkpoint(tmp_path / "run", {})
    with pytest.raises(SystemExit, match="diverged: validation loss nan after epoch 1"):
        saved.save(None, {"epoch": 1, "valid_loss": float("nan")})
    assert not (tmp_path / "run").exists()


def test_long_training_pairs_are_left_out_and_counted(capsys):
    pairs = [[1] * n for n in (3, 9, 2)], [[1] * n for n in (4, 1, 2)]
    assert texts.drop_long(*pairs, 4) == ([[1] * 3, [1] * 2], [[1] * 4, [1] * 2])
    assert "1 training pairs of more than 4 tokens" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="raise --max-tokens"):
        texts.drop_long(*pairs, 1)


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
def test_the_smoke_run_learns_and_serves(tmp_path):
    started = [sys.executable, "-m", "examples.translation", "--smoke", "--output", str(tmp_path)]
    run = subprocess.run(started, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "The reloaded SavedModel agrees" in run.stdout
    assert "difference after reloading " in run.stdout
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["exact"] >= 0.5
    assert (tmp_path / "alignment.png").read_bytes().startswith(b"\x89PNG")
    assert len((tmp_path / "translations.txt").read_text().splitlines()) == 200
