"""Pairs of texts, generated dates or files, as batches of subword ids."""

import io

import numpy as np
import tensorflow as tf

from examples.common import dates
from examples.common.batching import bucketed
from examples.translation.reading import load_pairs
from keras_attention.search import reverse_tokens

PAD, UNKNOWN, START, END = range(4)


# --- texts ---------------------------------------------------------------------------------------


def load_data(arguments):
    """The texts: {"train": (sources, targets), "valid": ..., "test": ...}."""
    if arguments.valid:
        paths = {name: getattr(arguments, name) for name in ("train", "valid", "test")}
        return {name: load_pairs(path, name == "test") for name, path in paths.items() if path}
    sizes, formats = (12_000, 500, 1_000), dates.FORMATS
    if arguments.smoke:
        sizes, formats = (3_000, 200, 200), dates.FORMATS[:2]
    sets = dates.make_pairs(sizes, seed=arguments.seed, formats=formats)
    return dict(zip(("train", "valid", "test"), sets, strict=True))


# --- subwords ------------------------------------------------------------------------------------


def learn_subwords(lines, size, kind):
    """Learns a SentencePiece model and returns its bytes; `kind` is "char" or "bpe"."""
    import sentencepiece

    model = io.BytesIO()
    lines = list(lines)
    # Every character, a space before the first word, and four tokens without a text.
    needed = len(set(" ").union(*lines)) + 4
    if kind != "char" and size < needed:
        raise SystemExit(
            f"--vocabulary must be at least {needed}, one for every character of these texts; "
            f"received {size}"
        )
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        model_type=kind,
        vocab_size=size,
        hard_vocab_limit=False,
        character_coverage=1.0,
        normalization_rule_name="identity",
        add_dummy_prefix=kind != "char",
        pad_id=PAD,
        unk_id=UNKNOWN,
        bos_id=START,
        eos_id=END,
        minloglevel=2,
    )
    return model.getvalue()


def make_tokenizers(subwords):
    """Makes the tokenizers of source and target from their two SentencePiece models."""
    import tensorflow_text

    # In a SavedModel two tokenizers without names of their own would share one vocabulary.
    return [
        tensorflow_text.SentencepieceTokenizer(model, add_eos=True, name=name)
        for model, name in zip(subwords, ("source", "target"), strict=True)
    ]


def encode(tokenizer, lines):
    return tokenizer.tokenize(tf.constant(lines)).to_list()


def drop_long(sources, targets, limit):
    """Leaves out pairs of more than `limit` tokens, to limit memory and time."""
    kept = [pair for pair in zip(sources, targets, strict=True) if is_short(pair, limit)]
    if len(kept) < len(sources):
        print(f"{len(sources) - len(kept)} training pairs of more than {limit} tokens left out")
    if not kept:
        raise SystemExit(f"no training pair has at most {limit} tokens: raise --max-tokens")
    return [s for s, _ in kept], [t for _, t in kept]


def is_short(pair, limit):
    return max(map(len, pair)) <= limit


# --- batches -------------------------------------------------------------------------------------


def make_batches(sources, targets, size, order=None, length=None):
    """Yields padded batches `((source, target), target)` of similar length, as `fit` takes them.

    Args:
        sources, targets: lists of lists of ids, with the end token.
        size: the number of pairs in a batch.
        order: a NumPy generator to shuffle with, or None to keep the pairs sorted by length.
        length: the number of tokens to pad to, or None for the longest of each batch.
    """
    lengths = [(len(t), len(s)) for s, t in zip(sources, targets, strict=True)]
    for batch in bucketed(lengths, size, order):
        source = pad([sources[i] for i in batch], length)
        target = pad([targets[i] for i in batch], length)
        yield (source, target), target


def reverse_batches(batches):
    """The same batches with targets in reverse order."""
    for (source, target), _ in batches:
        target = reverse_tokens(target, END, PAD)
        yield (source, target), target


def pad(rows, length=None):
    # Multiples of four give few different shapes, so XLA compiles few programs.
    length = -(-(length or max(map(len, rows))) // 4) * 4
    return np.array([row + [PAD] * (length - len(row)) for row in rows], "int32")


def as_dataset(make, steps):
    """A `tf.data.Dataset` of the `steps` batches that the generator function `make` yields."""
    ids = tf.TensorSpec((None, None), "int32")
    batches = tf.data.Dataset.from_generator(make, output_signature=((ids, ids), ids))
    return batches.apply(tf.data.experimental.assert_cardinality(steps)).prefetch(4)
