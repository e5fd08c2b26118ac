"""Ids of words and of their characters, and texts encoded with them."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from examples.common.tokens import Words, count_tokens, in_parts, make_table, tokenize

# The model looks at this many characters of a word.
WORD_LENGTH = 16
# Words outside the vocabulary share this many ids by their hash.
UNKNOWN_WORDS = 1000


class Vocabulary(tf.Module):
    """Turns tokens into ids of words and of characters, inside TensorFlow.

    Words are taken in lower case, characters as they are; 0 is padding. Words outside the
    vocabulary share `UNKNOWN_WORDS` ids, so that most of them stay distinct.

    Args:
        words, characters: lists of strings; the first has the id 1.
    """

    def __init__(self, words, characters):
        super().__init__()
        self.words = Words(words, UNKNOWN_WORDS)
        self.characters = make_table(characters, default=1 + len(characters))
        self.sizes = self.words.size, 2 + len(characters)

    def __call__(self, tokens):
        """Flat tokens `(N,)` to ids of words `(N,)` and of characters `(N, WORD_LENGTH)`."""
        characters = tf.strings.unicode_split(tokens, "UTF-8")
        characters = tf.ragged.map_flat_values(self.characters.lookup, characters)
        characters = characters.to_tensor(0, shape=(None, WORD_LENGTH))
        return self.words(tokens), tf.cast(characters, "int32")


def learn_vocabulary(texts, size, vectors=()):
    """Learns a vocabulary: the `size` most frequent words that occur twice, and all characters.

    Words with a vector are added.

    Returns:
        A `Vocabulary` and the list of its words.
    """
    words, characters = count_tokens(texts)
    words = [word for word, count in words.most_common(size) if count > 1]
    words += sorted(set(vectors) - set(words))
    characters = [character for character, _ in characters.most_common()]
    return Vocabulary(words, characters), words


class Encoded(NamedTuple):
    """Tokens of many texts in one row; text n is from splits[n] to splits[n + 1].

    words, starts, ends: `(N,)`, ids and byte offsets. characters: `(N, WORD_LENGTH)`.
    """

    words: np.ndarray
    characters: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    splits: np.ndarray

    @property
    def lengths(self):
        return np.diff(self.splits)

    def tokens(self, n):
        return slice(self.splits[n], self.splits[n + 1])

    def select(self, index):
        """The texts with these numbers, in their order."""
        lengths = self.lengths[index]
        splits = np.concatenate([[0], np.cumsum(lengths)])
        tokens = np.arange(splits[-1]) + np.repeat(self.splits[index] - splits[:-1], lengths)
        columns = (self.words, self.characters, self.starts, self.ends)
        return Encoded(*(column[tokens] for column in columns), splits)

    def padded(self, index, multiple):
        """Ids of words `(B, T)` and of characters `(B, T, WORD_LENGTH)` of some of the texts.

        T is a multiple of `multiple`.
        """
        lengths = self.splits[index + 1] - self.splits[index]
        shape = len(index), -(-lengths.max(initial=1) // multiple) * multiple
        words = np.zeros(shape, "int32")
        characters = np.zeros((*shape, WORD_LENGTH), "int32")
        for row, (n, length) in enumerate(zip(index, lengths, strict=True)):
            words[row, :length] = self.words[self.tokens(n)]
            characters[row, :length] = self.characters[self.tokens(n)]
        return words, characters


def encode(texts, vocabulary):
    parts = []
    for part in in_parts(texts):
        tokens, starts, ends = tokenize(part)
        words, characters = vocabulary(tokens.flat_values)
        flat = (words, characters, starts.flat_values, ends.flat_values, tokens.row_lengths())
        parts.append([x.numpy() for x in flat])
    *columns, lengths = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Encoded(*columns, np.concatenate([[0], np.cumsum(lengths)]))
