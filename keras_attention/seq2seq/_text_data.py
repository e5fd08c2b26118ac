"""Data sets of texts: the ids are made on the host, in the pipeline of the data set."""

import inspect
import re
from collections.abc import Callable

from keras import tree

from keras_attention._spec import Description
from keras_attention._typing import Nested
from keras_attention.seq2seq._checks import check

# encode(source, target) -> (source, target): lists or arrays to padded ids.
Encode = Callable[[Nested, Nested], tuple[Nested, Nested]]


def encoded_data(data: Nested, encode: Encode) -> Nested:
    """Return data of `((source, target), target)` for data of texts, and everything else as it is.

    A batch is `(source, target)` or `((source, target), target)`; sample weights may follow.
    """
    if inspect.isgenerator(data):
        return (_encoded(batch, encode) for batch in data)
    specs = getattr(data, "element_spec", None)
    if not hasattr(data, "map") or not any(map(_is_text, tree.flatten(specs))):
        return data
    import tensorflow as tf

    single = [x for x in tree.flatten(specs) if _is_text(x) and x.shape.rank == 0]
    expected = "a data set of texts must yield batches"
    check("fit", not single, expected, Description(str(specs)), "Call data.batch(64).")

    def on_host(*batch):
        source, target, *weights = _split(batch)
        flat = tree.flatten((source, target))

        def run(*arrays):
            arrays = [x.numpy() for x in arrays]
            return tree.flatten(encode(*tree.pack_sequence_as((source, target), arrays)))

        ids = tf.py_function(run, flat, [tf.int32 if _is_text(x) else x.dtype for x in flat])
        for x, old in zip(ids, flat, strict=True):
            x.set_shape((old.shape[0], None) if _is_text(old) else old.shape)
        source, target = tree.pack_sequence_as((source, target), ids)
        return ((source, target), target, *weights)

    return data.map(on_host, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def _encoded(batch, encode):
    if not any(map(_is_text, tree.flatten(batch))):
        return batch
    source, target, *weights = _split(batch)
    source, target = encode(source, target)
    return ((source, target), target, *weights)


def _split(batch):
    """Return (source, target, ...) of a batch, in which the target may stand twice."""
    source, target, *weights = batch
    if isinstance(source, tuple) and len(source) == 2:
        texts = [any(map(_is_text, tree.flatten(x))) for x in (source[1], target)]
        source = source[0] if all(texts) else source
    return (source, target, *weights)


def _is_text(x):
    """Return True for a string, and for an array or a tensor of strings."""
    dtype = str(getattr(x, "dtype", ""))
    return isinstance(x, (str, bytes)) or bool(re.search(r"[Ss]tring|object|[US]\d", dtype))
