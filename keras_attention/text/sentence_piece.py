"""A SentencePiece model."""

import base64
import os
from collections.abc import Iterable, Sequence
from typing import Self

import keras

from keras_attention._spec import Description, raise_value_error
from keras_attention._typing import Config, TextFunctions
from keras_attention.text._tensorflow import sentence_piece_functions
from keras_attention.text.tokenizer import END, PADDING, START, Tokenizer, library, read_file

__all__ = ["SentencePiece"]


@keras.saving.register_keras_serializable(package="keras_attention")
class SentencePiece(Tokenizer):
    """Split texts into the pieces of a SentencePiece model (Kudo and Richardson, 2018).

    The padding is 0. Unless this is the padding of the model too, the ids are those of the model
    plus one. A start or an end that the model lacks comes after its last piece.

    It needs sentencepiece, and a SavedModel needs tensorflow-text, which runs the same model. The
    bytes of the model are stored in the `.keras` file.

    Args:
        model: the path of a `.model` file, or its bytes.

    Raises:
        ValueError: the bytes are not a SentencePiece model.
        ModuleNotFoundError: sentencepiece is not installed.

    Example:
        >>> import io, sentencepiece
        >>> from keras_attention.text import SentencePiece
        >>> texts, model = ["a red boat", "a blue boat"], io.BytesIO()
        >>> sentencepiece.SentencePieceTrainer.train(
        ...     sentence_iterator=iter(texts), model_writer=model, vocab_size=15, minloglevel=2
        ... )
        >>> tokenizer = SentencePiece(model.getvalue())
        >>> tokenizer.decode(tokenizer.encode("a blue red boat"))
        'a blue red boat'

    Reference: https://arxiv.org/abs/1808.06226.
    """

    def __init__(self, model: str | os.PathLike[str] | bytes) -> None:
        module = library("sentencepiece")
        self._model = read_file("SentencePiece", "model", model)
        try:
            # No bytes make a processor without a model.
            self._processor = module.SentencePieceProcessor(model_proto=self._model or b"none")
        except RuntimeError:
            expected = "`model` must be a SentencePiece model, the file that ends in .model"
            received = Description(f"{len(self._model)} bytes that are none")
            raise_value_error("SentencePiece", expected, received)
        self._shift, size = int(self._processor.pad_id() != 0), self._processor.get_piece_size()
        tokens = [PADDING] * self._shift + [self._processor.id_to_piece(n) for n in range(size)]
        self.unknown_id = self._processor.unk_id() + self._shift
        special = (START, self._processor.bos_id()), (END, self._processor.eos_id())
        ids = []
        for token, n in special:
            ids.append(len(tokens) if n < 0 else n + self._shift)
            tokens += [token] * (n < 0)
        self.start_id, self.end_id = ids
        self.set_tokens(tokens)

    def pieces(self, text: str) -> list[str]:
        return self._processor.encode(text, out_type=str)

    def join(self, pieces: Sequence[str]) -> str:
        return self._processor.decode_pieces(list(pieces))

    def encode(self, text: str) -> list[int]:
        return [n + self._shift for n in self._processor.encode(text)]

    def decode(self, ids: Iterable[int]) -> str:
        return self._processor.decode([n - self._shift for n in self.without_special(ids)])

    def tensorflow_functions(self) -> TextFunctions:
        """Return the functions of tensorflow-text; see `Tokenizer`."""
        return sentence_piece_functions(self, self._model, self._shift)

    def get_config(self) -> Config:
        return {"model": base64.b64encode(self._model).decode()}

    @classmethod
    def from_config(cls, config: Config) -> Self:
        try:
            model = base64.b64decode(config["model"], validate=True)
        except (TypeError, ValueError):
            model = b""  # which the constructor refuses
        return cls(model)
