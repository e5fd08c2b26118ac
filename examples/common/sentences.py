"""Splits texts into sentences of words, inside TensorFlow."""

import tensorflow as tf

# A sentence ends at one of these signs if white space follows. It also ends at a line break.
ENDS = [".", "!", "?", "…", "。", "！", "？"]
SPACE, SIGN = r"[\s\v\p{Z}]", r"[^\s\v\p{Z}\p{L}\p{M}\p{N}]"
LINE_BREAK = rf"{SPACE}*[\n\r\x{{2028}}\x{{2029}}]{SPACE}*"
CLOSING = ['"', "'", ")", "]", "}", "»", "”", "’"]


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
