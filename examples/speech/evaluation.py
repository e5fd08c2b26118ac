"""How many letters of longer and longer texts are right."""

import numpy as np

from examples.speech.data import make_corpus
from examples.speech.listening import Listener, listen
from examples.speech.speaking import Speaker, error_rate, speak

STEPS = 8  # the most steps of the speaker for a letter of the tones


def judge_listener(model, language, lengths, arguments):
    """The error rate of the letters that are heard, and an example, for each length."""
    found = {}
    for length in lengths:
        corpus = make_corpus(language, "test", _count(length), (length, length), seed=length)
        listener = Listener(model, arguments.beam, int(1.3 * length) + 5)
        heard = listen(listener, corpus.frames, language.letters)
        rate = error_rate([text for text, _ in heard], corpus.texts)
        found[length] = rate, (corpus.frames[0], corpus.texts[0], *heard[0])
        print(f"{length} letters: {rate:.1%} of the letters heard wrong", flush=True)
    return found


def judge_speaker(model, listener, language, lengths, arguments):
    """Error rates of what is said, by the listener and by the language, for each length."""
    found = {}
    for length in lengths:
        rng = np.random.default_rng(length)
        texts = [language.make_text(rng, length) for _ in range(_count(length))]
        said = speak(Speaker(model, arguments.most_steps * length + 20), texts, language.letters)
        frames = [x for x, _ in said]
        rates = {}
        if hasattr(language, "understand"):
            rates["decoder"] = error_rate([language.understand(x) for x in frames], texts)
        if listener is not None:
            search = Listener(listener, arguments.beam, int(1.3 * length) + 5)
            heard = [text for text, _ in listen(search, frames, language.letters)]
            rates["listener"] = error_rate(heard, texts)
        found[length] = rates, (texts[0], *said[0])
        shown = ", ".join(f"{rate:.1%} by the {name}" for name, rate in rates.items())
        print(f"{length} letters: letters understood wrong: {shown}", flush=True)
    return found


def _count(length):
    """Fewer texts where they are long: about 800 letters, at least two texts."""
    return max(2, 800 // length)
