"""Words of a text with their positions, and word ids inside TensorFlow."""

import collections

import tensorflow as tf


def tokenize(texts):
    """Splits each text into words, numbers and single signs.

    Returns:
        Ragged tokens, the byte where each token begins, and the byte after its end.
    """
    import tensorflow_text

    return tensorflow_text.regex_split_with_offsets(
        texts,
        delim_regex_pattern=r"[\s\p{Z}]+|[^\s\p{Z}\p{L}\p{M}\p{N}]",
        keep_delim_regex_pattern=r"[^\s\p{Z}\p{L}\p{M}\p{N}]",
    )


class Words(tf.Module):
    """Turns words into ids inside TensorFlow, so that a SavedModel can do it. Case is ignored.

    The empty string is padding and has the id 0. Words outside the vocabulary share `unknown` ids
    by their hash.

    Args:
        words: a list of strings; the first has the id 1.
        unknown: the number of ids for unknown words.
    """

    def __init__(self, words, unknown=1):
        super().__init__()
        self.table = make_table(words, default=-1)
        self.known, self.unknown = len(words), unknown
        self.size = 1 + len(words) + unknown

    def __call__(self, tokens):
        """Turns tokens of any shape into int32 ids of the same shape."""
        words = tf.strings.lower(tokens, encoding="utf-8")
        ids = self.table.lookup(words)
        unknown = 1 + self.known + tf.strings.to_hash_bucket_fast(words, self.unknown)
        ids = tf.where(ids < 0, unknown, ids)
        return tf.cast(tf.where(words == "", tf.zeros_like(ids), ids), "int32")


def make_table(keys, default):
    """A table from strings to their numbers, counted from 1."""
    # TensorFlow accepts no empty table, and no token is the empty string.
    keys = [*keys, ""]
    numbers = tf.range(1, len(keys) + 1, dtype="int64")
    pairs = tf.lookup.KeyValueTensorInitializer(tf.constant(keys, "string"), numbers)
    return tf.lookup.StaticHashTable(pairs, default)


def count_tokens(texts):
    """Counts lower-case words and characters. Returns two Counters of strings."""
    words, characters = collections.Counter(), collections.Counter()
    for part in in_parts(texts):
        tokens = tokenize(part)[0].flat_values
        words.update(tf.strings.lower(tokens, encoding="utf-8").numpy().tolist())
        characters.update(tf.strings.unicode_split(tokens, "UTF-8").flat_values.numpy().tolist())
    return [collections.Counter({k.decode(): n for k, n in c.items()}) for c in (words, characters)]


def in_parts(texts, size=1000):
    """Yields the texts as string tensors of at most `size`, to limit the memory."""
    for start in range(0, max(len(texts), 1), size):
        yield tf.constant(texts[start : start + size], "string")
