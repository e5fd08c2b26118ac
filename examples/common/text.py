"""Words and sentences of a text inside TensorFlow, and their ids."""

import collections

import tensorflow as tf

# A sentence ends at one of these signs if white space follows. It also ends at a line break.
ENDS = [".", "!", "?", "…", "。", "！", "？"]
SPACE, SIGN = r"[\s\v\p{Z}]", r"[^\s\v\p{Z}\p{L}\p{M}\p{N}]"
LINE_BREAK = rf"{SPACE}*[\n\r\x{{2028}}\x{{2029}}]{SPACE}*"
CLOSING = ['"', "'", ")", "]", "}", "»", "”", "’"]


def tokenize(texts):
    """Splits each text into words, numbers and single signs.

    Returns:
        Ragged tokens, the byte where each token begins, and the byte after its end.
    """
    import tensorflow_text

    return tensorflow_text.regex_split_with_offsets(
        tf.strings.regex_replace(texts, r"\x00", " "),  # the split would end the text at a NUL
        delim_regex_pattern=f"{SPACE}+|{SIGN}",
        keep_delim_regex_pattern=SIGN,
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


def to_dense(ragged):
    """A padded tensor of at least one text, one sentence and one word: models need them."""
    x = ragged.to_tensor()
    more = tf.maximum(1 - tf.shape(x), 0)
    return tf.pad(x, tf.stack([tf.zeros_like(more), more], axis=1))


def split_sentences(texts, longest):
    """Splits texts into sentences of words, numbers and single signs.

    A sentence ends at a line break. It also ends at . ! ? and the like if white space follows, with
    up to three closing quotes or brackets between. A sentence of more than `longest` words
    continues as the next one: batches stay narrow, and nothing is lost.

    Args:
        texts: `(B,)` strings.
        longest: the largest number of words in a sentence.

    Returns:
        Three ragged tensors `(B, S, W)`: words, the byte where each begins, the byte after it.
    """
    import tensorflow_text

    words, begins, ends = tensorflow_text.regex_split_with_offsets(
        tf.strings.regex_replace(texts, r"\x00", " "),  # the split would end the text at a NUL
        delim_regex_pattern=f"{LINE_BREAK}|{SPACE}+|{SIGN}",
        keep_delim_regex_pattern=f"{LINE_BREAK}|{SIGN}",
    )
    rows, size = words.value_rowids(), words.nrows()
    words, begins, ends = (x.flat_values for x in (words, begins, ends))

    # Whether white space comes before each token, or another text.
    last = tf.concat([[-1], ends[:-1]], 0)[: tf.size(words)]
    other = tf.concat([[-1], rows[:-1]], 0)[: tf.size(words)] != rows
    gap = begins != last
    done = _among(words, ENDS)
    closing = _among(words, CLOSING) & ~gap
    for _ in range(3):  # closing signs in a row
        done |= closing & _shifted(done)
    done = _shifted(done)
    is_break = tf.strings.regex_full_match(words, f"{SPACE}+")
    numbers = tf.cumsum(tf.cast(other | _shifted(is_break) | (done & gap), "int64"))

    numbers, rows, words, begins, ends = (
        tf.boolean_mask(x, ~is_break) for x in (numbers, rows, words, begins, ends)
    )
    # The place of each word in its sentence tells which piece of the sentence it belongs to.
    _, index, counts = tf.unique_with_counts(numbers, tf.int64)
    total = tf.size(words, tf.int64)
    place = tf.range(total) - tf.gather(tf.cumsum(counts, exclusive=True), index)
    _, _, counts = tf.unique_with_counts(index * (total + 1) + place // longest, tf.int64)
    rows = tf.gather(rows, tf.cumsum(counts, exclusive=True))
    return [
        tf.RaggedTensor.from_value_rowids(tf.RaggedTensor.from_row_lengths(x, counts), rows, size)
        for x in (words, begins, ends)
    ]


def _shifted(flags):
    return tf.concat([[False], flags[:-1]], 0)[: tf.size(flags)]


def _among(tokens, wanted):
    return tf.reduce_any(tokens[:, None] == tf.constant(wanted), axis=1)


def edit_distances(found, wanted):
    """How many symbols of each sequence must be inserted, deleted or replaced to get the other."""
    sides = [
        tf.ragged.constant([[*row] for row in rows], "string", ragged_rank=1).to_sparse()
        for rows in (found, wanted)
    ]
    return tf.edit_distance(*sides, normalize=False).numpy().astype(int)
