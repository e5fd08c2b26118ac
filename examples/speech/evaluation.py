"""How many letters of longer and longer texts are right, with sounds and pictures."""

from functools import partial

import matplotlib.figure
import numpy as np
import tensorflow as tf

from examples.common.files import save_figure
from examples.common.text import edit_distances
from examples.common.training import pad
from examples.speech.data import decode, encode, listened, make_corpus
from examples.speech.model import SHARED, Speaker
from examples.speech.sound import MELS, sound, write_wav

QUIET = 0.25  # times the loudest magnitude
FAR = 20  # frames, as long as the longest pause between digits
MOST_LABELS = 60


def evaluate(task, model, language, arguments, output, listener=None):
    """Judges a model, and writes sounds and pictures. Returns the error rates."""
    judge = judge_listener if task == "listen" else partial(judge_speaker, listener=listener)
    judged = {length: judge(model, language, arguments, length) for length in arguments.lengths}
    for length in arguments.lengths[:2]:
        _, frames, *picture = judged[length][1]
        name = "heard" if task == "listen" else "said"
        write_wav(output / f"{name}-{length}.wav", sound(frames))
        draw(output / f"alignment-{length}.png", language.unit, *picture)
    return {length: rates for length, (rates, _) in judged.items()}


def listen(model, frames, letters, length, beam):
    """Listens to utterances of about `length` letters: the text and the alignment of each."""
    frames, valid = listened(frames)
    found = model.generate((frames, valid), max_length=2 * length, beam_width=beam)
    texts = [decode(ids, letters) for ids in found.tokens]
    rows = zip(found.weights, found.lengths, valid.sum(axis=1), strict=True)
    return list(zip(texts, [w[:n, :m] for w, n, m in rows], strict=True))


def speak(speaker, texts, letters):
    """Speaks texts of about one length: frames `(T, MELS)` and the alignment of each."""
    signature = [tf.TensorSpec((None, None), "int32")]
    run = tf.function(speaker, input_signature=signature, autograph=False)
    found = run(tf.constant(pad([encode(text, letters) for text in texts])))
    frames = found.outputs.numpy().reshape(len(texts), -1, MELS)
    rows = zip(frames, found.weights.numpy(), found.lengths.numpy(), texts, strict=True)
    return [(x[: n * SHARED], w[:n, : len(text)]) for x, w, n, text in rows]


def judge_listener(model, language, arguments, length):
    """The error rate of what is heard, and an example: text, frames, weights, rows, title."""
    texts, frames = _corpus(language, length)
    heard = listen(model, frames, language.letters, length, arguments.beam)
    rate = error_rate([text for text, _ in heard], texts)
    print(f"{length} {language.unit}: {rate:.1%} heard wrong", flush=True)
    # The last row belongs to the end of the text, which has no sound.
    rows = [silence_around(x, w[:-1]) for x, (_, w) in zip(frames, heard, strict=True)]
    far = np.concatenate(rows)
    share, far = np.mean(far > FAR) if far.size else 0.0, far[far > FAR]
    if share > 0.05:
        lie = f"of the {language.unit} have their largest weights in silence"
        far = f"{np.median(far):.0f} frames away from any sound (the median)"
        print(f"  Remark: {share:.0%} {lie}, {far}. The encoder has", end=" ")
        print("carried the sound there: do not read weights as places of sounds.", flush=True)
    text, weights = heard[0]
    return rate, (texts[0], frames[0], weights, [*text, "end"], f"{texts[0]}, heard as {text}")


def silence_around(frames, weights):
    """How many frames the largest weight of each row is away from the nearest sound.

    `frames` are log-mel, `(T, MELS)`, and `weights` `(rows, T / SHARED)`.
    """
    loud = np.max(frames, axis=1) > QUIET * np.max(frames)
    (sounds,) = np.nonzero([loud[n : n + SHARED].any() for n in range(0, len(frames), SHARED)])
    read = weights.argmax(axis=1)
    return SHARED * np.abs(read[:, None] - sounds).min(axis=1, initial=weights.shape[1])


def judge_speaker(model, language, arguments, length, listener):
    """Error rates of what is said, by the decoder of the language and a listener; an example."""
    texts, real = _corpus(language, length)
    said = speak(Speaker(model, arguments.most_steps * length), texts, language.letters)
    frames, rates = [x for x, _ in said], {}
    if hasattr(language, "understand"):
        rates["decoder"] = error_rate([language.understand(x) for x in frames], texts)
    for name, sounds in (("listener", frames), ("listener, real", real)):
        if listener is not None:
            heard = listen(listener, sounds, language.letters, length, arguments.beam)
            rates[name] = error_rate([text for text, _ in heard], texts)
    shown = ", ".join(f"{rate:.1%} ({name})" for name, rate in rates.items())
    print(f"{length} {language.unit}: understood wrong: {shown}", flush=True)
    return rates, (texts[0], frames[0], said[0][1].T, [*texts[0]], f"says {texts[0]}")


def _corpus(language, length):
    """About 1,000 letters, in two texts at least."""
    return make_corpus(language, "test", max(2, 1000 // length), (length, length), seed=length)


def error_rate(texts, wanted):
    """Edit distances as a share of the letters that were wanted."""
    return float(edit_distances(texts, wanted).sum() / sum(map(len, wanted)))


def draw(path, unit, weights, labels, title):
    """Draws the weights `(letters, T / SHARED)` over time."""
    figure = matplotlib.figure.Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(weights, aspect="auto", cmap="Blues", interpolation="nearest", vmin=0)
    figure.colorbar(image, label="weight")
    axes.set(title=title, xlabel=f"groups of {SHARED} frames", ylabel=unit)
    if len(labels) <= MOST_LABELS:
        axes.set(yticks=range(len(labels)), yticklabels=labels)
    save_figure(path, figure)
