"""Speech: sound, the language of tones, recordings, batches, and what the command writes."""

import itertools
import json

import keras
import numpy as np
import pytest

from examples.speech import __main__ as command
from examples.speech import data, model, sound, tones
from keras_attention.alignment import forward_sum_loss, guided_attention_loss
from tests import fast

LANGUAGE = tones.Tones()
LETTERS = 5  # the ids of the models below, PAD, START and END among them


def test_tones_are_understood_without_a_model_and_sound_has_its_frames():
    rng = np.random.default_rng(3)
    texts = [LANGUAGE.make_text(rng, 9) for _ in range(10)]
    spoken = [sound.log_mel(LANGUAGE.say(text, rng)).numpy() for text in texts]
    assert [LANGUAGE.understand(frames) for frames in spoken] == texts
    found = sound.log_mel(sound.sound(spoken[0])).numpy()[: len(spoken[0])]
    assert np.corrcoef(found.ravel(), spoken[0].ravel())[0, 1] > 0.9
    assert LANGUAGE.understand(found) == texts[0]


def make_recordings(folder, indices=(0, 5, 8), digits="0123456789"):
    for digit, speaker, n in itertools.product(digits, ("ann", "bob"), indices):
        # The loudness names the recording.
        samples = np.full(400, (int(digit) + 1) / 20 + 0.001 * n)
        sound.write_wav(folder / f"{digit}_{speaker}_{n}.wav", samples)
    return folder


def test_each_part_of_the_digits_has_recordings_of_its_own(tmp_path):
    found = data.Digits(make_recordings(tmp_path))
    assert found.voices == ["ann", "bob"]
    assert data.Digits(tmp_path, ["bob"]).voices == ["bob"]
    held_out = data.Digits(tmp_path, held_out="bob")
    assert (held_out.voices, held_out.judged) == (["ann"], ["bob"])
    rng = np.random.default_rng(1)
    for part, index in (("test", 0), ("valid", 5), ("train", 8)):
        heard = np.array([found.say("7", rng, part).max() for _ in range(5)])
        np.testing.assert_allclose(heard, 8 / 20 + 0.001 * index, atol=6 * data.NOISE)
    assert set(found.make_text(rng, 400)) == set("0123456789")


def test_batches_of_the_speaker():
    rng = np.random.default_rng(1)
    frames = [rng.uniform(0, 1, (n, sound.MELS)).astype("float32") for n in (9, 70)]
    (letters, last, valid), targets, weights = data.speaker_batch(["ab", "b"], frames, "ab")
    np.testing.assert_array_equal(letters, [[3, 4, 0, 0], [4, 0, 0, 0]])
    steps = targets["frames"].shape[1]
    assert steps % data.SHAPES == 0
    shared = model.SHARED
    np.testing.assert_array_equal(targets["frames"][0, 1], frames[0][shared : 2 * shared].ravel())
    np.testing.assert_array_equal(last[0, 1], frames[0][shared - 1])
    assert not last[:, 0].any()
    # Nine frames take three steps, seventy take eighteen.
    np.testing.assert_array_equal(targets["stop"].argmax(1).ravel(), [2, 17])
    assert targets["stop"].sum() == 2
    np.testing.assert_array_equal(weights["stop"].sum(1), [3, 18])
    np.testing.assert_array_equal(valid, weights["stop"])


@pytest.mark.parametrize("name", ["content", "stepwise"])
def test_losses_of_alignments(name):
    """Letters are the memory of a speaker, and the query of a listener."""
    rng = np.random.default_rng(1)
    few, many = (rng.normal(size=(2, n, 5)).astype("float32") for n in (3, 7))
    masks = np.arange(3) < [[3], [2]], np.arange(7) < [[7], [6]]
    for pace, query, memory, valid in ((0.4, many, few, masks[::-1]), (2.5, few, many, masks)):
        found, options = {}, dict(zip(("query_mask", "value_mask"), valid, strict=True))
        for loss in model.ALIGNMENT_LOSSES:
            keras.utils.set_random_seed(1)
            attention = model.make_attention(name, 4, pace, loss=loss)
            _, weights = attention(query, memory, **options, return_attention_scores=True)
            found[loss] = [float(x) for x in attention.losses]
        scores = np.log(np.maximum(weights, 1e-30))
        scores = scores if pace < 1 else np.swapaxes(scores, 1, 2)
        guided = (10 if pace < 1 else 100) * guided_attention_loss(weights, *valid)
        total = 0.01 * forward_sum_loss(scores, *masks[::-1])
        assert found["none"] == []
        assert found["guided"] == pytest.approx([float(guided)], rel=1e-5)
        assert found["forward-sum"] == pytest.approx([float(total)], rel=1e-5)
        assert float(total) > 0


def test_a_free_run_repeats_the_model():
    keras.utils.set_random_seed(1)
    built = model.build_speaker(model.make_attention("location", 4, 0.5), LETTERS, 8)
    letters = np.array([[3, 4, 4, 0], [4, 3, 3, 4]], "int32")
    run = model.Speaker(built, max_steps=5)(letters)
    frames = np.asarray(run.outputs)
    last = np.pad(frames[:, :-1, -sound.MELS :], [(0, 0), (1, 0), (0, 0)])
    expected = built([letters, last, np.ones(last.shape[:2], bool)])
    steps = int(np.max(run.lengths))
    np.testing.assert_allclose(frames[:, :steps], expected["frames"][:, :steps], atol=1e-5)
    stopped = np.asarray(expected["stop"])[:, :, 0] > 0
    for row, length in zip(stopped, np.asarray(run.lengths), strict=True):
        assert not row[: length - 1].any()
        assert row[length - 1] or length == 5


@pytest.mark.parametrize("digits", fast([False, True], [], slow=1), ids=["tones", "digits"])
def test_the_whole_command(digits, tmp_path, capsys):
    recordings = tmp_path / "recordings"
    recordings.mkdir()
    data = f"listen --data {make_recordings(recordings)} " if digits else ""
    small = "--utterances 12 --batch-size 4 --units 8 --longest 3 --beam 2 --epochs 1 --lengths 2 4"
    command.main(f"{data}{small} --output {tmp_path}".split())
    unit = "digits" if digits else "letters"
    printed = capsys.readouterr().out
    assert f"\n4 {unit}: " in printed
    for task, wav in [("listen", "heard"), ("speak", "said")][: 1 if digits else 2]:
        summary = json.loads((tmp_path / task / "summary.json").read_text())
        assert set(summary["error"]) == {"2", "4"}
        names = {".lock", "checkpoint", "model.keras", "summary.json"}
        names |= {x for n in (2, 4) for x in (f"{wav}-{n}.wav", f"alignment-{n}.png")}
        assert {path.name for path in (tmp_path / task).iterdir()} == names
