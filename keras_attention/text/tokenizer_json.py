"""A tokenizer of Hugging Face's library."""

import os
from collections.abc import Sequence
from typing import Self

import keras

from keras_attention._spec import Description, raise_value_error
from keras_attention._typing import Config
from keras_attention.text.tokenizer import END, PADDING, START, Tokenizer, library, read_file

__all__ = ["TokenizerJSON"]

# How tokens are called, by their roles.
NAMES: dict[str, tuple[str, ...]] = {
    "padding": (PADDING, "<pad>", "<|padding|>"),
    "unknown": ("[UNK]", "<unk>"),
    "start": (START, "<s>", "[CLS]", "[BOS]", "<bos>", "<|startoftext|>"),
    "end": (END, "</s>", "[SEP]", "[EOS]", "<eos>", "<|endoftext|>"),
}


@keras.saving.register_keras_serializable(package="keras_attention")
class TokenizerJSON(Tokenizer):
    """Split texts as a `tokenizer.json` says, the file of Hugging Face's library tokenizers.

    Its truncation, its padding and its template are not used, and a text that spells a special
    token is text. The padding is 0: unless the file has its padding there too, the ids are those of
    the file plus one. A start or an end that the file lacks comes after its last token.

    It needs tokenizers. The file is stored in the `.keras` file. It has no equal in TensorFlow, so
    a SavedModel takes and returns ids.

    Args:
        file: the path of a `tokenizer.json`, or its bytes.
        start, end, unknown: the tokens with these roles. By default the first that exists of the
            usual ones, such as "[START]", "<s>" and "[CLS]".

    Raises:
        ValueError: the bytes are not such a file, or it lacks a token that is given.
        ModuleNotFoundError: tokenizers is not installed.

    Example:
        >>> import tokenizers
        >>> from keras_attention.text import TokenizerJSON
        >>> vocabulary = {"[PAD]": 0, "[UNK]": 1, "the": 2, "cat": 3}
        >>> words = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
        >>> words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
        >>> tokenizer = TokenizerJSON(words.to_str().encode())
        >>> tokenizer.encode("the ocelot"), tokenizer.decode([2, 3, tokenizer.end_id])
        ([2, 1], 'the cat')
    """

    def __init__(
        self,
        file: str | os.PathLike[str] | bytes,
        *,
        start: str | None = None,
        end: str | None = None,
        unknown: str | None = None,
    ) -> None:
        module = library("tokenizers")
        self._file = read_file("TokenizerJSON", "file", file)
        try:
            self._tokenizer = module.Tokenizer.from_str(self._file.decode())
        except Exception as error:  # the library raises no other
            expected = "`file` must be a tokenizer.json of the library tokenizers"
            received = Description(f"{len(self._file)} bytes that are none ({error!s:.80})")
            raise_value_error("TokenizerJSON", expected, received)
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._tokenizer.encode_special_tokens = True
        self._roles = {"start": start, "end": end, "unknown": unknown}
        vocabulary = self._tokenizer.get_vocab(with_added_tokens=True)
        padding = self._find("padding", None, vocabulary)
        self._shift = int(padding != 0)
        tokens = [""] * (max(vocabulary.values(), default=-1) + 1)
        for token, n in vocabulary.items():
            tokens[n] = token
        tokens = [PADDING] * self._shift + tokens
        ids = {}
        for role, token in self._roles.items():
            n = self._find(role, token, vocabulary)
            if n is None and role != "unknown":
                n = len(tokens) - self._shift
                tokens.append(NAMES[role][0])
            ids[role] = None if n is None else n + self._shift
        self.start_id, self.end_id, self.unknown_id = ids.values()
        self.set_tokens(tokens)

    @staticmethod
    def _find(role, token, vocabulary):
        """Return the id of a token by its role."""
        if token is not None and token not in vocabulary:
            raise_value_error("TokenizerJSON", f"`{role}` must be a token of the file", token)
        names = NAMES[role] if token is None else (token,)
        return next((vocabulary[x] for x in names if x in vocabulary), None)

    def _encode(self, text):
        return self._tokenizer.encode(text, add_special_tokens=False)

    def pieces(self, text: str) -> list[str]:
        found = self._encode(text)
        unknown = None if self.unknown_id is None else self.unknown_id - self._shift
        triples = zip(found.ids, found.tokens, found.offsets, strict=True)
        return [text[slice(*at)] if n == unknown else token for n, token, at in triples]

    def join(self, pieces: Sequence[str]) -> str:
        decoder = self._tokenizer.decoder
        return " ".join(pieces) if decoder is None else decoder.decode(list(pieces))

    def encode(self, text: str) -> list[int]:
        return [n + self._shift for n in self._encode(text).ids]

    def get_config(self) -> Config:
        return {"file": self._file.decode(), **self._roles}

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(**{**config, "file": str(config["file"]).encode()})
