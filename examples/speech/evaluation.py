"""How many letters of longer and longer texts are right."""

import numpy as np

from examples.speech.data import make_corpus
from examples.speech.listening import Listener, listen
from examples.speech.speaking import Speaker, speak


def judge_listener(model, language, lengths, beam):
    """The error rate of the letters that are heard, and an example, for each length."""
    found = {}
    for length in lengths:
        corpus = _corpus(language, length)
        heard = listen(Listener(model, beam, 2 * length), corpus.frames, language.letters)
        rate = error_rate([text for text, _ in heard], corpus.texts)
        found[length] = rate, (corpus.frames[0], corpus.texts[0], *heard[0])
        print(f"{length} letters: {rate:.1%} heard wrong", flush=True)
    return found


def judge_speaker(model, listener, language, arguments):
    """Error rates of what is said, and an example, for each length.

    "decoder" is the error that the decoder of the language finds, "listener" that of a trained
    listener, and "listener, real" the listener's error for the sound of the language itself.
    """
    found = {}
    for length in arguments.lengths:
        corpus = _corpus(language, length)
        texts = corpus.texts
        said = speak(Speaker(model, arguments.most_steps * length), texts, language.letters)
        frames = [x for x, _ in said]
        rates = {}
        if hasattr(language, "understand"):
            rates["decoder"] = error_rate([language.understand(x) for x in frames], texts)
        if listener is not None:
            search = Listener(listener, arguments.beam, 2 * length)
            for name, sounds in (("listener", frames), ("listener, real", corpus.frames)):
                heard = [text for text, _ in listen(search, sounds, language.letters)]
                rates[name] = error_rate(heard, texts)
        found[length] = rates, (texts[0], *said[0])
        shown = ", ".join(f"{rate:.1%} ({name})" for name, rate in rates.items())
        print(f"{length} letters: understood wrong: {shown}", flush=True)
    return found


def _corpus(language, length):
    """About 1,000 letters, in two texts at least."""
    return make_corpus(language, "test", max(2, 1000 // length), (length, length), seed=length)


def error_rate(texts, wanted):
    """Edit distances as a share of the letters that were wanted."""
    pairs = zip(texts, wanted, strict=True)
    return sum(edit_distance(*pair) for pair in pairs) / sum(map(len, wanted))


def edit_distance(text, wanted):
    """How many letters must be inserted, deleted or replaced."""
    costs = np.arange(len(wanted) + 1)
    for row, letter in enumerate(text, 1):
        before, costs = costs, np.empty_like(costs)
        costs[0] = row
        for n, other in enumerate(wanted, 1):
            costs[n] = min(before[n] + 1, costs[n - 1] + 1, before[n - 1] + (letter != other))
    return int(costs[-1])
