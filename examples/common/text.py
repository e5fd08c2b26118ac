"""Words and sentences of a text, and their ids."""

import zlib

import regex
import tensorflow as tf

# A word or number, or a single sign.
TOKEN = regex.compile(r"[\p{L}\p{M}\p{N}]+|[^\s\p{Z}\p{L}\p{M}\p{N}]")
LINE_BREAK = regex.compile("[\n\r\u2028\u2029]")
# A sentence ends at one of these signs if white space follows. It also ends at a line break.
ENDS = {*".!?…。！？"}
CLOSING = {*"\"')]}»”’"}


def tokenize(text):
    """Splits a text into words, numbers and single signs: matches with `start()` and `end()`."""
    return list(TOKEN.finditer(text))


def split_sentences(text, longest):
    """Splits a text into sentences, lists of what `tokenize` returns.

    A sentence ends at a line break, and at . ! ? and the like before white space, with up to three
    closing quotes or brackets between. After `longest` words it continues as the next one.
    """
    sentences, last, ended = [], 0, 0
    for token in tokenize(text):
        gap = text[last : token.start()]
        if not sentences or LINE_BREAK.search(gap) or (gap and ended):
            sentences.append([])
        sentences[-1].append(token)
        closes = token[0] in CLOSING and not gap
        ended = 4 if token[0] in ENDS else max(ended - 1, 0) * closes
        last = token.end()
    return [s[n : n + longest] for s in sentences for n in range(0, len(s), longest)]


class Words:
    """The ids of words, from 1 on; 0 is left for padding. Other words share `unknown` ids by their
    hash.
    """

    def __init__(self, words, unknown=1):
        self.ids = {word: n for n, word in enumerate(words, 1)}
        self.unknown, self.size = unknown, 1 + len(self.ids) + unknown

    def __call__(self, word):
        word = word.lower()
        if word in self.ids:
            return self.ids[word]
        return self.size - self.unknown + zlib.crc32(word.encode()) % self.unknown


def edit_distances(found, wanted):
    """How many symbols of each sequence must be inserted, deleted or replaced to get the other."""
    sides = [
        tf.ragged.constant([[*row] for row in rows], "string", ragged_rank=1).to_sparse()
        for rows in (found, wanted)
    ]
    return tf.edit_distance(*sides, normalize=False).numpy().astype(int)
