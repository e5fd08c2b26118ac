"""Tokenizers in operations of TensorFlow, for a SavedModel."""

from collections.abc import Mapping
from typing import Any

from keras_attention._typing import TextFunctions
from keras_attention.text.tokenizer import Tokenizer, library


def character_functions(
    tokenizer: Tokenizer, ids: Mapping[str, int], edges: list[int], joiner: int
) -> TextFunctions:
    """Return the functions of `Characters`; see `Tokenizer.tensorflow_functions`.

    Args:
        ids: the id of every spelling of every character.
        edges: the code points at which those that extend a character begin and cease, by turns.
        joiner: the code point that joins the next one to a character.
    """
    import tensorflow as tf

    ragged: Any = tf.RaggedTensor
    keys, values = tf.constant([*ids], tf.string), tf.constant([*ids.values()], tf.int32)
    items = tf.lookup.KeyValueTensorInitializer(keys, values)
    table = tf.lookup.StaticHashTable(items, tokenizer.unknown_id)
    special = tokenizer.padding_id, tokenizer.start_id, tokenizer.end_id
    tokens = ["" if n in special else x for n, x in enumerate(tokenizer.tokens)]

    def tokenize(texts):
        codes = tf.strings.unicode_decode(texts, "UTF-8")
        rows, flat = codes.value_rowids(), codes.values
        before = tf.concat([[0], flat[:-1]], 0)
        extends = (tf.searchsorted(edges, flat, side="right") % 2 == 1) | (before == joiner)
        begins = ~extends | (rows != tf.concat([[-1], rows[:-1]], 0))
        characters = ragged.from_value_rowids(flat, tf.cumsum(tf.cast(begins, tf.int64)))
        # The rows are counted from 1, so the first is empty.
        found = table.lookup(tf.strings.unicode_encode(characters, "UTF-8")[1:])
        found = ragged.from_value_rowids(found, tf.boolean_mask(rows, begins), nrows=codes.nrows())
        return _ended(found, tokenizer)

    def detokenize(ids, lengths):
        return tf.strings.reduce_join(tf.gather(tokens, ids), axis=-1)

    return tokenize, detokenize, [table]


def sentence_piece_functions(tokenizer: Tokenizer, model: bytes, shift: int) -> TextFunctions:
    """Return the functions of `SentencePiece`, whose ids are those of its model plus `shift`."""
    import tensorflow as tf

    # In a SavedModel two tokenizers without names of their own would share one vocabulary.
    name = f"sentence_piece_{id(tokenizer)}"
    twin = library("tensorflow_text").SentencepieceTokenizer(model, name=name)
    special = [tokenizer.padding_id, tokenizer.start_id, tokenizer.end_id]

    def tokenize(texts):
        return _ended(twin.tokenize(texts) + shift, tokenizer)

    def detokenize(ids, lengths):
        kept = tf.reduce_all(ids[..., None] != tf.constant(special, ids.dtype), -1)
        return twin.detokenize(tf.ragged.boolean_mask(ids - shift, kept))

    return tokenize, detokenize, [twin]


def _ended(ragged, tokenizer):
    """Return ids `(B, T)` with the end token, padded."""
    import tensorflow as tf

    ends = tf.fill((ragged.nrows(), 1), tf.constant(tokenizer.end_id, ragged.dtype))
    return tf.concat([ragged, ends], axis=1).to_tensor(tokenizer.padding_id)
