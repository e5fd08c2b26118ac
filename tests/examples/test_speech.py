"""Speech: sound, the language of tones, recordings, batches, and models step by step."""

import json
import wave

import keras
import numpy as np
import pytest
import tensorflow as tf

from examples.common import checkpoint
from examples.speech import __main__ as command
from examples.speech import data, digits, evaluation, model, sound, tasks, tones, training
from examples.speech.listening import Listener
from examples.speech.speaking import Speaker, speak
from keras_attention.search import FreeRun

LANGUAGE = tones.Tones()
LETTERS = 5  # the ids of the models below, PAD, START and END among them


def make_frames(seed, *lengths):
    rng = np.random.default_rng(seed)
    return [rng.uniform(0, 1, (n, sound.MELS)).astype("float32") for n in lengths]


def test_silence_is_zero_and_sound_is_not():
    assert not np.any(sound.log_mel(np.zeros(1000, "float32")))
    loud = sound.log_mel(0.5 * np.sin(np.arange(2000, dtype="float32")))
    assert 1 < np.max(loud) < 3


def test_sound_has_the_frames_it_was_made_from():
    samples = LANGUAGE.say("abcdef", np.random.default_rng(1))
    frames = sound.log_mel(samples).numpy()
    found = sound.log_mel(sound.sound(frames)).numpy()[: len(frames)]
    assert np.corrcoef(found.ravel(), frames.ravel())[0, 1] > 0.9
    assert LANGUAGE.understand(found) == "abcdef"


def test_wav_files(tmp_path):
    samples = np.array([0.0, 0.5, -1.0, 2.0])
    sound.write_wav(tmp_path / "a.wav", samples)
    found = sound.read_wav(tmp_path / "a.wav")
    np.testing.assert_allclose(found, [0, 0.5, -1, 1], atol=1e-4)
    (tmp_path / "b.wav").write_bytes(b"RIFF")
    with pytest.raises(SystemExit, match=r"b\.wav: not a WAV file"):
        sound.read_wav(tmp_path / "b.wav")
    with wave.open(str(tmp_path / "c.wav"), "wb") as file:
        file.setparams((2, 2, 44100, 0, "NONE", None))
        file.writeframes(bytes(40))
    with pytest.raises(SystemExit, match="2 channels, 16 bits, 44100 samples"):
        sound.read_wav(tmp_path / "c.wav")


def test_tones_are_understood_without_a_model():
    rng = np.random.default_rng(3)
    texts = [LANGUAGE.make_text(rng, 9) for _ in range(10)]
    spoken = [sound.log_mel(LANGUAGE.say(text, rng)).numpy() for text in texts]
    assert [LANGUAGE.understand(frames) for frames in spoken] == texts
    assert len(set(tones.PATTERNS.values())) == len(LANGUAGE.letters)


def make_recordings(folder, indices=(0, 5), digits="0123456789"):
    for digit in digits:
        for speaker in ("ann", "bob"):
            for n in indices:
                # The loudness names the recording.
                samples = np.full(400, (int(digit) + 1) / 20 + 0.001 * n)
                sound.write_wav(folder / f"{digit}_{speaker}_{n}.wav", samples)
    return folder


def test_digits_hold_out_the_first_recordings(tmp_path):
    found = digits.Digits(make_recordings(tmp_path))
    assert found.voices == ["ann", "bob"]
    assert found.with_voice().voices == ["ann"]
    assert found.with_voice("bob").voices == ["bob"]
    rng = np.random.default_rng(1)
    for part, index in (("test", 0), ("train", 5)):
        heard = np.array([found.say("7", rng, part).max() for _ in range(5)])
        np.testing.assert_allclose(heard, 8 / 20 + 0.001 * index, atol=6 * digits.NOISE)
    assert set(found.make_text(rng, 400)) == set("0123456789")


def test_recordings_that_lack_something_are_refused(tmp_path):
    with pytest.raises(SystemExit, match=r"no recording such as 7_george_12\.wav"):
        digits.Digits(tmp_path)
    make_recordings(tmp_path, [5])
    make_recordings(tmp_path, [0], "01345678")
    with pytest.raises(
        SystemExit, match="ann has no recording for the test set of the digits 2, 9"
    ):
        digits.Digits(tmp_path)
    found = digits.Digits(make_recordings(tmp_path))
    with pytest.raises(SystemExit, match="--voice eve: the speakers are ann, bob"):
        found.with_voice("eve")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sing"], "invalid choice: 'sing'"),
        (["--attention", "luong"], "invalid choice: 'luong'"),
        (["--units", "6"], "--units must be a multiple of 4; received 6"),
        (["--lengths", "5", "0"], "--lengths must be at least 1; received 0"),
        (["--epochs", "0"], "--epochs must be at least 1"),
        (["--attention", "content", "--half-width", "3"], "--half-width goes with an attention"),
        (["speak", "--listener", "absent.keras"], "--listener absent.keras: no such file"),
        (["--voice", "ann"], "--voice goes with --data"),
    ],
)
def test_bad_arguments_are_refused(arguments, message, capsys):
    with pytest.raises(SystemExit):
        command.parse(arguments)
    assert message in capsys.readouterr().err


def test_a_listener_that_is_no_model(tmp_path):
    path = tmp_path / "a.keras"
    path.write_text("nothing")
    with pytest.raises(SystemExit, match=r"a\.keras is not a model that `listen` has saved"):
        command.load_listener(path)


def test_letters_that_differ():
    assert evaluation.edit_distance("abc", "abc") == 0
    assert evaluation.edit_distance("", "abc") == 3
    assert evaluation.edit_distance("xabd", "abcd") == 2
    assert evaluation.error_rate(["ab", "cd"], ["ab", "cx"]) == 0.25


def test_batches_of_the_speaker():
    frames = make_frames(1, 9, 70)
    (letters, last), targets, weights = data.speaker_batch(["ab", "b"], frames, "ab")
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


def test_batches_of_the_listener():
    frames = make_frames(1, 9, 70)
    (padded, valid, shifted), targets, weights = data.listener_batch(["ab", "b"], frames, "ab")
    np.testing.assert_array_equal(shifted, [[1, 3, 4, 0], [1, 4, 0, 0]])
    np.testing.assert_array_equal(targets, [[3, 4, 2, 0], [4, 2, 0, 0]])
    np.testing.assert_array_equal(weights, [[1, 1, 1, 0], [1, 1, 0, 0]])
    np.testing.assert_array_equal(valid.sum(1), [3, 18])
    np.testing.assert_array_equal(padded[1, :70], frames[1])
    assert data.decode(targets[0], "ab") == "ab"


def test_a_free_run_repeats_the_model():
    keras.utils.set_random_seed(1)
    built = model.build_speaker(model.make_attention("location", 4, 0.5), LETTERS, 8)
    for layer in built.get_layer("prenet").layers:
        if isinstance(layer, keras.layers.Dropout):
            layer.rate = 0.0
    letters = np.array([[3, 4, 4, 0], [4, 3, 3, 4]], "int32")
    run = Speaker(built, max_steps=5)(letters)
    frames = np.asarray(run.outputs)
    last = np.pad(frames[:, :-1, -sound.MELS :], [(0, 0), (1, 0), (0, 0)])
    expected = built([letters, last])
    steps = int(np.max(run.lengths))
    np.testing.assert_allclose(frames[:, :steps], expected["frames"][:, :steps], atol=1e-5)
    stopped = np.asarray(expected["stop"])[:, :, 0] > 0
    for row, length in zip(stopped, np.asarray(run.lengths), strict=True):
        assert not row[: length - 1].any()
        assert row[length - 1] or length == 5


def test_dropout_of_the_prenet_stays_on():
    prenet = model.build_prenet(64)
    frames = np.ones((1, 1, sound.MELS), "float32")
    assert not np.array_equal(prenet(frames), prenet(frames))


def test_a_search_scores_as_the_model_does():
    keras.utils.set_random_seed(1)
    built = model.build_listener(model.make_attention("monotonic", 4, 0.5), LETTERS, 8)
    frames, valid = data.listened(make_frames(2, 21, 33))
    found = Listener(built, beam_width=3, max_length=4)(frames, valid)
    tokens = np.asarray(found.tokens)[:, 0]
    shifted = np.pad(tokens[:, :-1], [(0, 0), (1, 0)], constant_values=model.START)
    logits = np.array(built([frames, valid, shifted]))
    logits[:, :, : model.END] = -1e9
    logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    for n, length in enumerate(np.asarray(found.lengths)[:, 0]):
        total = logs[n, np.arange(length), tokens[n, :length]].sum()
        score = np.asarray(found.scores)[n, 0]
        np.testing.assert_allclose(score * (5 + length) / 6, total, atol=1e-4)


def test_speech_is_cut_where_it_ends():
    outputs, weights = np.ones((2, 3, model.SHARED * sound.MELS)), np.ones((2, 3, 4))
    run = FreeRun(*map(tf.constant, (outputs, [1, 3], weights)))
    said = speak(lambda letters: run, ["ab", "a"], "ab")
    assert [(x.shape, y.shape) for x, y in said] == [
        ((model.SHARED, sound.MELS), (1, 2)),
        ((3 * model.SHARED, sound.MELS), (3, 1)),
    ]


def test_the_shortest_utterances_are_repeated():
    corpus = data.Corpus(["aaaa", "b", "ccc", "dd"], [4, 1, 3, 2])
    assert data.shortest(corpus, 0.5) == (["b", "dd", "b", "dd"], [1, 2, 1, 2])
    assert data.shortest(corpus, 0.1).texts == ["b"] * 4
    assert sorted(data.shortest(corpus, 1.0).texts) == sorted(corpus.texts)


class Killed(Exception):
    pass


@pytest.mark.exhaustive
def test_a_killed_run_continues_to_the_same_result(tmp_path, monkeypatch):
    corpora = {
        "train": data.make_corpus(LANGUAGE, "train", 12, (1, 3), seed=1),
        "valid": data.make_corpus(LANGUAGE, "test", 4, (1, 3), seed=2),
    }
    settings = {"batch_size": 4, "epochs": 3, "learning_rate": 0.01, "seed": 2}
    task = tasks.TASKS["speak"]

    def train(folder):
        keras.utils.set_random_seed(7)
        built = model.build_speaker(
            model.make_attention("monotonic", 4, 0.5), data.FIRST + len(LANGUAGE.letters), 8
        )
        saved = checkpoint.Checkpoint(folder, settings)
        training.train(
            built, task.loss, task.make_batch, corpora, LANGUAGE.letters, settings, saved, 0.5
        )
        # Noise comes after half of the epochs.
        assert built.get_layer("decoder").attention.noise == 3
        return [x for weights in built.get_weights() for x in weights.ravel()]

    whole = train(tmp_path / "whole")
    save = checkpoint.Checkpoint.save

    def save_and_die(self, model, entry):
        save(self, model, entry)
        if entry["epoch"] == 2:
            raise Killed

    monkeypatch.setattr(checkpoint.Checkpoint, "save", save_and_die)
    with pytest.raises(Killed):
        train(tmp_path / "killed")
    monkeypatch.setattr(checkpoint.Checkpoint, "save", save)
    assert train(tmp_path / "killed") == whole


@pytest.mark.slow
def test_the_whole_command(tmp_path):
    """A run that is too short to learn anything writes everything."""
    sizes = {"utterances": 8, "epochs": 1, "units": 8, "longest": 3, "beam": 2}
    options = [x for name, value in sizes.items() for x in (f"--{name}", str(value))]
    options += ["--lengths", "2", "4"]
    command.main([*options, "--output", str(tmp_path)])
    for task, wav in (("listen", "heard"), ("speak", "said")):
        summary = json.loads((tmp_path / task / "summary.json").read_text())
        assert set(summary["error"]) == {"2", "4"}
        assert {path.name for path in (tmp_path / task).iterdir()} == {
            *("checkpoint", "model.keras", "saved_model", "summary.json"),
            *(f"{wav}-{n}.wav" for n in (2, 4)),
            *(f"alignment-{n}.png" for n in (2, 4)),
        }
