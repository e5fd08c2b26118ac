"""The base of all tokenizers."""

import abc
import collections
import importlib
import itertools
import os
import pathlib
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any, Self

from keras_attention._spec import Description, check_int, raise_value_error
from keras_attention._typing import Config, TextFunctions

__all__ = ["Tokenizer"]

# The first tokens, of the ids 0 to 3.
PADDING, UNKNOWN, START, END = SPECIAL = "[PAD]", "\N{REPLACEMENT CHARACTER}", "[START]", "[END]"
UNKNOWN_ID = 1


class Tokenizer(abc.ABC):
    """Split texts into pieces, and number them.

    A subclass defines `pieces`, and often `join`. Register it with
    `keras.saving.register_keras_serializable`, so that a model can be saved with it. The ids 0 to 3
    are the padding, the unknown token, the start and the end; then come the pieces of the texts,
    the most frequent first. The model itself ends every source and every target with the end token.

    Args:
        texts: the texts to learn the vocabulary from.
        max_tokens: the largest number of tokens, special ones included; None keeps all pieces.

    Attributes:
        tokens: a list of strings, the token of every id. Pictures show them.
        padding_id: 0. unknown_id: the id of a piece that the vocabulary lacks, None if there is
            none. start_id, end_id: the ids that begin and end a target.

    Raises:
        ValueError: there is no text, or `texts` is one string; a text is not a string, or holds a
            lone surrogate.

    Example:
        Words with white space between them:

        >>> import keras
        >>> from keras_attention.text import Tokenizer
        >>> @keras.saving.register_keras_serializable(package="my_package")
        ... class Words(Tokenizer):
        ...     def pieces(self, text):
        ...         return text.lower().split()
        ...     def join(self, pieces):
        ...         return " ".join(pieces)
        >>> words = Words(["the cat", "the dog"])
        >>> words.tokens[4:], words.encode("The bird"), words.decode([4, 5])
        (['the', 'cat', 'dog'], [4, 1], 'the cat')
    """

    padding_id: int = 0
    unknown_id: int | None = UNKNOWN_ID
    start_id: int = 2
    end_id: int = 3
    tokens: list[str]

    def __init__(self, texts: Iterable[str], *, max_tokens: int | None = None) -> None:
        name = type(self).__name__
        if isinstance(texts, (str, bytes)):
            expected = "`texts` must be a list of texts"
            raise_value_error(name, expected, texts, "Write [text] for one text.")
        pieces = (self.pieces(check_text(name, "texts", n, x)) for n, x in enumerate(texts))
        counts = collections.Counter(itertools.chain.from_iterable(pieces))
        if not counts:
            raise_value_error(name, "`texts` must hold at least one piece of text", texts)
        for token in SPECIAL:
            counts.pop(token, None)
        most = None if max_tokens is None else check_int(name, "max_tokens", max_tokens, 5) - 4
        self.set_tokens([*SPECIAL, *(piece for piece, _ in counts.most_common(most))])

    def set_tokens(self, tokens: Sequence[str]) -> None:
        """Set the token of every id."""
        self.tokens = list(tokens)
        # A text that spells a special token is text.
        self._ids = {token: n for n, token in enumerate(self.tokens) if token not in SPECIAL}

    @property
    def vocabulary_size(self) -> int:
        """The number of ids: the size of an embedding and of a head."""
        return len(self.tokens)

    @abc.abstractmethod
    def pieces(self, text: str) -> list[str]:
        """Split a text into strings, one for each id of `encode`, also where it is unknown."""

    def join(self, pieces: Sequence[str]) -> str:
        """Make a text of pieces."""
        return "".join(pieces)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without the start and the end."""
        return [self._ids.get(piece, UNKNOWN_ID) for piece in self.pieces(text)]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids. The padding, the start and the end are left out."""
        return self.join([self.tokens[n] for n in self.without_special(ids)])

    def without_special(self, ids: Iterable[int]) -> list[int]:
        """Return the ids that are neither the padding nor the start nor the end."""
        special = self.padding_id, self.start_id, self.end_id
        return [int(n) for n in ids if n not in special]

    def labels(self, ids: Iterable[int], extra: Iterable[str] = ()) -> list[str]:
        """Return the token of every id. The words of `extra` have the ids after the vocabulary."""
        tokens = [*self.tokens, *extra] if extra else self.tokens
        unknown = "" if self.unknown_id is None else self.tokens[self.unknown_id]
        return [tokens[n] if 0 <= n < len(tokens) else unknown for n in ids]

    def tensorflow_functions(self) -> TextFunctions:
        """Return what `export_generate` writes into a SavedModel.

        Returns:
            `(tokenize, detokenize, tracked)`: from strings `(B,)` to ids `(B, T)`, with the end
            token and padded; from ids `(N, L)` and lengths `(N,)` to strings `(N,)`; and the tables
            that both use.

        Raises:
            ValueError: nothing in TensorFlow does exactly the same.
        """
        expected = f"{type(self).__name__} has no equal in TensorFlow"
        remedy = "Export ids, export_generate(..., text=False), and call the tokenizer outside."
        raise_value_error("export_generate", expected, Description(""), remedy)

    def get_config(self) -> Config:
        """Return the constructor arguments: as texts, the pieces themselves.

        They must be their own pieces. Otherwise override this method.
        """
        pieces = self.tokens[len(SPECIAL) :]
        if any(self.pieces(piece) != [piece] for piece in pieces):
            expected = "each token must be a text of one piece, itself, so that it can be saved"
            raise_value_error(type(self).__name__, expected, pieces, "Override get_config().")
        return {"texts": pieces}

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """Make a tokenizer of `get_config()`."""
        return cls(**config)

    def __eq__(self, other: Any) -> bool:
        return type(self) is type(other) and self.get_config() == other.get_config()

    __hash__ = object.__hash__


def check_text(where: str, name: str, n: int, text: object) -> str:
    """Return text `n` of an argument as a string. Bytes are decoded."""
    item = f"`{name}[{n}]`"
    try:
        if isinstance(text, bytes):
            return text.decode()
        if isinstance(text, str):
            text.encode()
            return str(text)
    except UnicodeError as error:
        expected = f"{item} must be valid Unicode"
        remedy = 'Read the file again with errors="replace", or remove the lone surrogates.'
        received = Description(f"{text!r:.80}, where position {error.args[2]} is not")
        raise_value_error(where, expected, received, remedy)
    received = Description(f"{text!r:.80} of type {type(text).__name__}")
    raise_value_error(where, f"{item} must be a string", received)


def read_file(where: str, name: str, file: object) -> bytes:
    """Return the bytes of a file, which may be given instead of its path."""
    if isinstance(file, bytes):
        return file
    if not isinstance(file, (str, os.PathLike)):
        raise_value_error(where, f"`{name}` must be a path, or the bytes of the file", file)
    return pathlib.Path(file).read_bytes()


def library(name: str) -> ModuleType:
    """Import a library that only some tokenizers need."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        remedy = f'pip install {name}, or pip install "keras-attention-layers[text]"'
        raise ModuleNotFoundError(f"This tokenizer needs {name}: {remedy}.", name=name) from None
