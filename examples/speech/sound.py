"""Sound: WAV files, log-mel spectrograms, and back from them to sound (Griffin and Lim, 1984)."""

import math
import wave

import numpy as np
import tensorflow as tf

from examples.common.files import whole_file

RATE = 8000  # samples a second
WINDOW, HOP = 256, 100  # samples
MELS = 40
LOWEST, HIGHEST = 80.0, 3800.0  # Hz
FLOOR = 0.05  # the magnitude of a mel band that counts as silence
SCALE = -math.log(FLOOR)
ROUNDS = 40  # of Griffin and Lim's algorithm


def mel_matrix():
    return tf.signal.linear_to_mel_weight_matrix(MELS, WINDOW // 2 + 1, RATE, LOWEST, HIGHEST)


def log_mel(samples):
    """The logarithms of the magnitudes in mel bands, `(..., T, MELS)`.

    y = log(max(m, FLOOR)) / -log(FLOOR) + 1     0 is silence, 1 a magnitude m of 1
    """
    samples = tf.convert_to_tensor(samples, "float32")
    short = [[0, 0]] * (len(samples.shape) - 1) + [[0, WINDOW]]
    spectrum = tf.abs(tf.signal.stft(tf.pad(samples, short), WINDOW, HOP))
    bands = tf.linalg.matmul(spectrum, mel_matrix())
    return tf.math.log(tf.maximum(bands, FLOOR)) / SCALE + 1.0


def sound(frames):
    """Samples with about these log-mel frames, `(..., T, MELS)` to `(..., T HOP)`.

    The magnitudes come from the pseudo-inverse of the mel matrix. Their phases are those of Griffin
    and Lim: transforming there and back finds phases that belong together.
    """
    bands = tf.exp((frames - 1.0) * SCALE)
    magnitude = tf.maximum(tf.linalg.matmul(bands - FLOOR, tf.linalg.pinv(mel_matrix())), 0.0)
    magnitude = tf.cast(magnitude, "complex64")
    samples = _inverse(magnitude)

    def improve(samples):
        spectrum = tf.signal.stft(samples, WINDOW, HOP)
        phase = spectrum / tf.cast(tf.maximum(tf.abs(spectrum), 1e-8), "complex64")
        return (_inverse(magnitude * phase),)

    (samples,) = tf.while_loop(lambda _: True, improve, (samples,), maximum_iterations=ROUNDS)
    return samples


def _inverse(spectrum):
    return tf.signal.inverse_stft(
        spectrum, WINDOW, HOP, window_fn=tf.signal.inverse_stft_window_fn(HOP)
    )


def write_wav(path, samples):
    """Writes a mono WAV file of 16 bits. An earlier file is replaced when this one is complete."""
    data = np.clip(np.asarray(samples), -1, 1) * 32767
    with whole_file(path) as temporary, wave.open(str(temporary), "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", None))
        file.writeframes(data.astype("<i2").tobytes())


def read_wav(path):
    """Reads a mono WAV file of 16 bits at `RATE`: samples in [-1, 1]."""
    try:
        with wave.open(str(path), "rb") as file:
            form = file.getnchannels(), file.getsampwidth(), file.getframerate()
            data = file.readframes(file.getnframes())
    except (OSError, wave.Error, EOFError) as error:
        raise SystemExit(f"{path}: not a WAV file ({error}). Nothing was written.") from error
    if form != (1, 2, RATE):
        raise SystemExit(
            f"{path}: must be mono, 16 bits, {RATE} samples a second; it has {form[0]} channels, "
            f"{8 * form[1]} bits, {form[2]} samples a second. Convert it. Nothing was written."
        )
    return np.frombuffer(data, "<i2").astype("float32") / 32768
