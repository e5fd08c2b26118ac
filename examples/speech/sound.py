"""Sound: WAV files, log-mel spectrograms, and back from them to sound (Griffin and Lim, 1984)."""

import math

import tensorflow as tf

from examples.common.files import refuse, whole_file

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

    The algorithm of Griffin and Lim finds phases that belong together.
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
    window = tf.signal.inverse_stft_window_fn(HOP)
    return tf.signal.inverse_stft(spectrum, WINDOW, HOP, window_fn=window)


def write_wav(path, samples):
    """Writes a mono WAV file of 16 bits."""
    samples = tf.cast(samples, "float32")
    with whole_file(path) as temporary:
        temporary.write_bytes(tf.audio.encode_wav(samples[:, None], RATE).numpy())


def read_wav(path):
    """Reads a mono WAV file of 16 bits at `RATE`: samples in [-1, 1]."""
    try:
        samples, rate = tf.audio.decode_wav(path.read_bytes())
    # TensorFlow quotes bytes of the file in its error, which may be no UTF-8: a ValueError.
    except (OSError, ValueError, tf.errors.OpError):
        refuse(path, "not a WAV file of 16 bits")
    if samples.shape[1] != 1 or rate != RATE:
        found = f"it has {samples.shape[1]} channels, {rate} samples a second. Convert it"
        refuse(path, f"must be mono, {RATE} samples a second; {found}")
    return samples[:, 0].numpy()
