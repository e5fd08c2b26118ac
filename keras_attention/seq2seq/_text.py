"""Texts of a model: their ids, and the texts of its ids."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_attention._spec import Description, raise_value_error
from keras_attention._typing import Nested
from keras_attention.search import SearchResult
from keras_attention.seq2seq._batches import pad_lists
from keras_attention.seq2seq._checks import check
from keras_attention.seq2seq.extended_vocabulary import ExtendedVocabulary
from keras_attention.text import Tokenizer
from keras_attention.text.tokenizer import check_text

TOKENIZERS = "source_text", "target_text"
SPECIAL = {"start_token": "start_id", "end_token": "end_id", "pad_token": "padding_id"}


class TextResult(NamedTuple):
    """What a model with a `target_text` generates: a `SearchResult`, and its texts.

    Sizes: B samples, K outputs of each, if there are several; L tokens, Tk memory steps.

    Attributes:
        tokens, lengths, scores, weights, log_probs: see `SearchResult`.
        texts: B strings, or B lists of K strings. An output that does not exist is "".
        source_tokens: B lists of strings, the tokens of every source; None for a source of another
            kind than texts and ids.
        target_tokens: B lists of strings, or B lists of K lists, the end token included.

    Example:
        >>> import keras
        >>> from keras_attention import AttentionRNN, LuongAttention, RecurrentEncoder, Seq2Seq
        >>> from keras_attention.text import Characters
        >>> letters = Characters(["abc"])
        >>> embedding = keras.layers.Embedding(letters.vocabulary_size, 3)
        >>> encoder = keras.layers.GRU(3, return_sequences=True, return_state=True)
        >>> model = Seq2Seq(
        ...     RecurrentEncoder(embedding, encoder),
        ...     AttentionRNN(keras.layers.GRUCell(3), LuongAttention("dot")),
        ...     target_embedding=embedding,
        ...     head=keras.layers.Dense(letters.vocabulary_size),
        ...     source_text=letters,
        ...     target_text=letters,
        ... )
        >>> result = model.generate(["ab", "cabb"], max_length=5)
        >>> len(result.texts), result.source_tokens[0]
        (2, ['a', 'b', '[END]'])
        >>> weights, source, target = result.alignment(1)
        >>> weights.shape == (len(target), len(source))
        True
    """

    tokens: np.ndarray
    lengths: np.ndarray
    scores: np.ndarray
    weights: Nested
    log_probs: np.ndarray
    texts: list[Any]
    source_tokens: list[list[str]] | None
    target_tokens: list[Any]

    def alignment(self, *index: int) -> tuple[np.ndarray, list[str], list[str]]:
        """Return `(weights, source tokens, target tokens)` of one output, without padding.

        `plot_attention(*result.alignment(0))` draws the first one, and `attention_page` takes the
        same. With several outputs for a source, pass the number of the source and of the output.
        """
        expected = "`alignment` needs the weights of one memory, with a step for each source token"
        sources = self.source_tokens or []
        array = isinstance(self.weights, np.ndarray) and sources
        check("TextResult", array, expected, self.weights)
        source, target = sources[index[0]], self.target_tokens
        for n in index:
            target = target[n]
        weights = self.weights[index][: len(target), : len(source)]
        check("TextResult", weights.shape == (len(target), len(source)), expected, self.weights)
        return weights, source, target


class _Ids(NamedTuple):
    source: Nested
    target: Nested
    extra: list[list[str]] | None  # the words of every source that a head may copy


def special_tokens(
    source: Tokenizer | None, target: Tokenizer | None, *given: int | None
) -> tuple[int, int, int]:
    """Return the start, the end and the padding, which the tokenizers know."""
    for name, tokenizer in zip(TOKENIZERS, (source, target), strict=True):
        right = tokenizer is None or isinstance(tokenizer, Tokenizer)
        expected = f"`{name}` must be a keras_attention.text.Tokenizer or None"
        check("Seq2Seq", right, expected, tokenizer, "Characters(texts) is one.")
    tokens = []
    for (token, attribute), x in zip(SPECIAL.items(), given, strict=True):
        owners = (source, target) if token == "pad_token" else (target,)
        for own in [getattr(owner, attribute) for owner in owners if owner is not None]:
            expected = f"`{token}` must be {own}, that of the tokenizer"
            check("Seq2Seq", x in (None, own), expected, x, "Leave it out.")
            x = own
        tokens.append(0 if x is None and token == "pad_token" else x)
    return tuple(tokens)


def check_vocabularies(model: keras.Model, *sizes: int | None) -> None:
    """Check that embeddings of these sizes hold every token, and that a head can copy words."""
    texts = model.source_text, model.target_text
    for name, tokenizer, size in zip(TOKENIZERS, texts, sizes, strict=True):
        if tokenizer is not None and size is not None:
            expected = f"the embedding must have a row for every token of `{name}`, "
            expected += str(tokenizer.vocabulary_size)
            remedy = f"Use keras.layers.Embedding({name}.vocabulary_size, features)."
            check("Seq2Seq", size >= tokenizer.vocabulary_size, expected, size, remedy)
    if hasattr(model.head, "max_extra") and any(texts):
        own = [x and (x.vocabulary_size, x.unknown_id, x.tokens) for x in texts]
        wanted = model.head.vocabulary_size, model.head.unknown_token
        expected = (
            "a head that copies needs one tokenizer as `source_text` and `target_text`, with "
        )
        expected += f"its vocabulary_size and unknown_token, {wanted}"
        received = [x and x[:2] for x in own]
        check("Seq2Seq", own[0] == own[1] and received[0] == wanted, expected, received)


def texts_of(where: str, name: str, x: Nested) -> list[str] | None:
    """Return texts, in a list or an array, as a list of strings, and None for anything else."""
    if isinstance(x, (str, bytes)):
        expected = f"the {name} must be a list of strings"
        raise_value_error(where, expected, x, "Write [text] for one text.")
    if "string" in str(getattr(x, "dtype", "")) and hasattr(x, "numpy"):
        x = x.numpy()  # a tensor of TensorFlow
    if isinstance(x, np.ndarray) or hasattr(x, "to_numpy"):
        x = np.asarray(x)
        if x.dtype.kind in "UST" and (x.ndim != 1 or not x.size):
            expected = f"an array of strings must have one axis, here the {name}, and not be empty"
            raise_value_error(where, expected, Description(f"the shape {x.shape}"))
        x = x.tolist() if x.dtype.kind in "USOT" and x.ndim == 1 else None
    if isinstance(x, (list, tuple)) and any(isinstance(one, (str, bytes)) for one in x):
        return [check_text(where, name, n, one) for n, one in enumerate(x)]
    return None


def to_ids(
    model: keras.Model,
    source: Nested,
    target: Nested = None,
    prefix: bool = False,
    multiple: int = 1,
) -> _Ids:
    """Return ids for texts. Lists of ids are padded, and everything else stays as it is.

    Args:
        prefix: whether the target is a prefix, which does not end.
        multiple: texts are padded to a multiple of this.
    """
    copies, extra = getattr(model._members()[0].head, "max_extra", 0), []

    def encode(x, name):
        texts = texts_of(model.name, name, x)
        if texts is None:
            return None
        tokenizer = getattr(model, f"{name}_text")
        expected = f"the {name} holds strings, which need `{name}_text`, a tokenizer"
        remedy = f"Make the model with {name}_text=keras_attention.text.Characters(texts)."
        check(model.name, tokenizer is not None, expected, x, remedy)
        if copies:
            words = ExtendedVocabulary(tokenizer.tokens, copies, tokenizer.unknown_id)
            pieces = [*map(tokenizer.pieces, texts)]
            extra[:] = extra or words.encode_sources(pieces)[1]
            check(model.name, len(extra) == len(texts), "every source needs one target", len(texts))
            rows = words.encode_targets(pieces, extra)
        else:
            rows = map(tokenizer.encode, texts)
        end = [] if name == "target" and prefix else [tokenizer.end_id]
        rows = [np.asarray([*row, *end], "int32") for row in rows]
        width = -(-max(map(len, rows)) // multiple) * multiple
        return keras.utils.pad_sequences(rows, width, padding="post", value=fills[name])

    fills = {"source": model.pad_token, "target": -1 if prefix else model.pad_token}
    pair = zip(fills.items(), (source, target), strict=True)
    ids = {n: pad_lists(x, fill, functools.partial(encode, name=n)) for (n, fill), x in pair}
    return _Ids(**ids, extra=extra or None)


def with_texts(model: keras.Model, result: SearchResult, ids: _Ids) -> TextResult:
    """Add the texts and the tokens to a result of arrays."""
    tokenizer, source = model.target_text, None
    extra = ids.extra or [()] * len(result.tokens)
    if model.source_text is not None and getattr(ids.source, "ndim", 0) == 2:
        source = [
            model.source_text.labels([n for n in row if n != model.pad_token], more)
            for row, more in zip(ids.source.tolist(), extra, strict=True)
        ]
    count = result.lengths[0].size  # of outputs for a source
    tokens = result.tokens.reshape(-1, result.tokens.shape[-1])
    rows = [row[:n].tolist() for row, n in zip(tokens, result.lengths.flat, strict=True)]
    extra = [more for more in extra for _ in range(count)]
    labels = [tokenizer.labels(row, more) for row, more in zip(rows, extra, strict=True)]
    if ids.extra:
        kept = zip(map(tokenizer.without_special, rows), extra, strict=True)
        texts = [tokenizer.join(tokenizer.labels(row, more)) for row, more in kept]
    else:
        texts = [*map(tokenizer.decode, rows)]
    if result.lengths.ndim == 2:
        texts, labels = (
            [x[n : n + count] for n in range(0, len(x), count)] for x in (texts, labels)
        )
    return TextResult(*result, texts, source, labels)
