"""Text to ids: tokens with their bytes, a vocabulary inside TensorFlow, given word vectors."""

import collections
from typing import NamedTuple

import numpy as np
import tensorflow as tf

# Characters of a word that are looked at.
WORD_LENGTH = 16
# Words that are not in the vocabulary share this many ids, by their hash.
UNKNOWN_WORDS = 1000


def tokenize(texts):
    """Words, numbers and single signs of each text: ragged tokens, first byte and end byte."""
    import tensorflow_text

    return tensorflow_text.regex_split_with_offsets(
        texts,
        delim_regex_pattern=r"[\s\p{Z}]+|[^\s\p{Z}\p{L}\p{M}\p{N}]",
        keep_delim_regex_pattern=r"[^\s\p{Z}\p{L}\p{M}\p{N}]",
    )


class Words(tf.Module):
    """Words, in lower case, to ids inside TensorFlow, so that a SavedModel can do it.

    The empty string, padding, has the id 0. Words that are not in the vocabulary share `unknown`
    ids by their hash.

    Args:
        words: list of strings; the first has the id 1.
    """

    def __init__(self, words, unknown=1):
        super().__init__()
        self.table = _table(words, default=-1)
        self.known, self.unknown = len(words), unknown
        self.size = 1 + len(words) + unknown

    def __call__(self, tokens):
        """Tokens of any shape to int32 ids of that shape."""
        words = tf.strings.lower(tokens, encoding="utf-8")
        ids = self.table.lookup(words)
        unknown = 1 + self.known + tf.strings.to_hash_bucket_fast(words, self.unknown)
        ids = tf.where(ids < 0, unknown, ids)
        return tf.cast(tf.where(words == "", tf.zeros_like(ids), ids), "int32")


class Vocabulary(tf.Module):
    """Tokens to ids of words and of characters, inside TensorFlow.

    Words are taken in lower case, characters as they are; 0 is padding. Words that are not in the
    vocabulary share `UNKNOWN_WORDS` ids, so that most of them keep an identity.

    Args:
        words, characters: lists of strings; the first has the id 1.
    """

    def __init__(self, words, characters):
        super().__init__()
        self.words = Words(words, UNKNOWN_WORDS)
        self.characters = _table(characters, default=1 + len(characters))
        self.sizes = self.words.size, 2 + len(characters)

    def __call__(self, tokens):
        """Flat tokens `(N,)` to ids of words `(N,)` and of characters `(N, WORD_LENGTH)`."""
        characters = tf.strings.unicode_split(tokens, "UTF-8")
        characters = tf.ragged.map_flat_values(self.characters.lookup, characters)
        characters = characters.to_tensor(0, shape=(None, WORD_LENGTH))
        return self.words(tokens), tf.cast(characters, "int32")


def _table(keys, default):
    # TensorFlow takes no empty table; no token is the empty string.
    keys = [*keys, ""]
    numbers = tf.range(1, len(keys) + 1, dtype="int64")
    pairs = tf.lookup.KeyValueTensorInitializer(tf.constant(keys, "string"), numbers)
    return tf.lookup.StaticHashTable(pairs, default)


def count_tokens(texts):
    """How often each word, in lower case, and each character occurs: two Counters of strings."""
    words, characters = collections.Counter(), collections.Counter()
    for part in _parts(texts):
        tokens = tokenize(part)[0].flat_values
        words.update(tf.strings.lower(tokens, encoding="utf-8").numpy().tolist())
        characters.update(tf.strings.unicode_split(tokens, "UTF-8").flat_values.numpy().tolist())
    return [collections.Counter({k.decode(): n for k, n in c.items()}) for c in (words, characters)]


def learn_vocabulary(texts, size, vectors=()):
    """The `size` most frequent words that occur twice, those with a vector, and all characters.

    Returns a `Vocabulary` and the list of its words.
    """
    words, characters = count_tokens(texts)
    words = [word for word, count in words.most_common(size) if count > 1]
    words += sorted(set(vectors) - set(words))
    characters = [character for character, _ in characters.most_common()]
    return Vocabulary(words, characters), words


class Encoded(NamedTuple):
    """Tokens of many texts in one row; those of text n are from splits[n] to splits[n + 1].

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
        """The texts of these numbers only, in their order."""
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
    for part in _parts(texts):
        tokens, starts, ends = tokenize(part)
        words, characters = vocabulary(tokens.flat_values)
        flat = (words, characters, starts.flat_values, ends.flat_values, tokens.row_lengths())
        parts.append([x.numpy() for x in flat])
    *columns, lengths = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Encoded(*columns, np.concatenate([[0], np.cumsum(lengths)]))


def _parts(texts, size=1000):
    for start in range(0, max(len(texts), 1), size):
        yield tf.constant(texts[start : start + size], "string")


def read_vectors(path, wanted):
    """A GloVe text file: a dictionary of the words in `wanted` to `(d,)`."""
    found, width = {}, None
    try:
        with open(path, encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                width = width or len(line.split()) - 1
                # From the right: some files have words with spaces in them.
                word, *numbers = line.rstrip("\n").rsplit(" ", max(width, 1))
                try:
                    vector = np.array(numbers, "float32")
                except ValueError:
                    vector = np.array([np.nan])
                if len(vector) != width or width < 2 or not np.isfinite(vector).all():
                    raise SystemExit(
                        f"{path}, line {number}: expected a word and {max(width, 2)} finite "
                        f"numbers, single spaces between, found {line[:60]!r}. Nothing was written."
                    )
                if word in wanted:
                    found[word] = vector
    except OSError as error:
        raise SystemExit(f"{path}: {error.strerror}. Nothing was written.") from error
    except UnicodeDecodeError as error:
        raise SystemExit(f"{path}: not UTF-8 ({error}). Nothing was written.") from error
    if not found:
        raise SystemExit(f"{path}: holds none of the words of the training data.")
    return found


def first_vectors(vocabulary_words, found, sizes, seed):
    """Given vectors, and random ones of the same spread for words without."""
    given = np.stack(list(found.values()))
    vectors = np.random.default_rng(seed).normal(given.mean(), given.std(), (sizes, given.shape[1]))
    for n, word in enumerate(vocabulary_words, 1):
        if word in found:
            vectors[n] = found[word]
    return vectors.astype("float32")
