"""Characters as readers count them."""

import functools
import itertools
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Any

import keras

from keras_attention._spec import Description, check_choice, raise_value_error
from keras_attention._typing import Config, TextFunctions
from keras_attention.text._tensorflow import character_functions
from keras_attention.text.tokenizer import Tokenizer

__all__ = ["Characters"]

JOINER = "\N{ZERO WIDTH JOINER}"
# What continues a character, beside marks: vowels and finals of Hangul, skin tones, tags.
EXTENDING = range(0x1160, 0x1200), range(0xD7B0, 0xD7FC), range(0x1F3FB, 0x1F400)
EXTENDING += range(0x200C, 0x200E), range(0xE0020, 0xE0080)
MOST_MARKS = 5  # of one character, for a SavedModel
LONGEST_DECOMPOSITION = 4  # code points of NFD for one code point


@keras.saving.register_keras_serializable(package="keras_attention")
class Characters(Tokenizer):
    """Split texts into characters: a letter and its accents, a Hangul syllable, a joined emoji.

    Texts are normalised (Unicode NFC), so that both spellings of é are one character. A character
    is a code point with the marks after it, and with what a zero width joiner joins to it. This is
    the grapheme cluster of Unicode, but that a flag and a line break "\\r\\n" are two characters.
    Python's tables define it, so no further library is needed, and a SavedModel does the same.

    A character that the vocabulary lacks is the unknown token. An empty text has no character.

    Args:
        texts: the texts to learn the vocabulary from.
        max_tokens: the largest number of tokens, four special ones included; None keeps all.
        normalization: "NFC"; "NFKC", which also makes ﬁ of ligatures two letters; or "NFD", with
            which every code point is a character, so é is two, and a Hangul syllable three.

    Raises:
        ValueError: an argument is out of range; see `Tokenizer`.

    Example:
        >>> from keras_attention.text import Characters
        >>> characters = Characters(["café", "cafe"])
        >>> characters.encode("cafe\\u0301s"), characters.decode([4, 5, 6, 7, 3, 0])
        ([4, 5, 6, 7, 1], 'café')
        >>> characters.vocabulary_size
        9
    """

    def __init__(
        self, texts: Iterable[str], *, max_tokens: int | None = None, normalization: str = "NFC"
    ) -> None:
        forms = "NFC", "NFKC", "NFD"
        self.normalization: Any = check_choice("Characters", "normalization", normalization, forms)
        super().__init__(texts, max_tokens=max_tokens)

    def pieces(self, text: str) -> list[str]:
        text = unicodedata.normalize(self.normalization, text)
        if text.isascii() or self.normalization == "NFD":
            return list(text)
        return _character().findall(text)

    def get_config(self) -> Config:
        return {**super().get_config(), "normalization": self.normalization}

    def tensorflow_functions(self) -> TextFunctions:
        """Return operations of `tf.strings`, which do the same; see `Tokenizer`."""
        if self.normalization != "NFC":
            return super().tensorflow_functions()
        ids = {x: n for token, n in self._ids.items() for x in _spellings(token)}
        return character_functions(self, ids, _extending_edges(), ord(JOINER))


@functools.cache
def _extending_edges() -> list[int]:
    """Return where code points begin and cease to extend a character, by turns."""
    others = {*itertools.chain(*EXTENDING)}
    extends = (
        n in others or unicodedata.category(chr(n))[0] == "M" for n in range(sys.maxunicode + 1)
    )
    runs = [(key, len([*run])) for key, run in itertools.groupby(extends)]
    return [*itertools.accumulate(length for _, length in runs)][:-1]


@functools.cache
def _character() -> re.Pattern[str]:
    """Return the expression of one character."""
    edges = _extending_edges()
    ranges = zip(edges[::2], edges[1::2], strict=True)
    extending = "".join(f"{chr(first)}-{chr(end - 1)}" for first, end in ranges)
    return re.compile(f".[{extending}]*(?:(?<={JOINER}).[{extending}]*)*", re.DOTALL)


@functools.cache
def _by_decomposition() -> dict[str, list[str]]:
    """Return the code points that decompose, by what they decompose into."""
    found = {}
    for code in range(sys.maxunicode + 1):
        if (whole := unicodedata.normalize("NFD", chr(code))) != chr(code):
            found.setdefault(whole, []).append(chr(code))
    return found


def _spellings(character: str) -> set[str]:
    """Return all strings whose NFC is this character of NFC."""
    whole, found = unicodedata.normalize("NFD", character), set()
    runs = [
        [key, "".join(x)]
        for key, x in itertools.groupby(whole, lambda x: unicodedata.combining(x) > 0)
    ]
    if any(marks and len(run) > MOST_MARKS for marks, run in runs):
        expected = f"{character!r} has too many spellings for a table, more than {MOST_MARKS} marks"
        remedy = "Remove its marks, or export ids: export_generate(..., text=False)."
        raise_value_error("export_generate", expected, Description(""), remedy)
    # Marks may have another order, if this does not change their meaning.
    orders = ([*itertools.permutations(run)] if marks else [run] for marks, run in runs)
    for order in itertools.product(*orders):
        found.update(_composed("".join(itertools.chain(*order))))
    return {x for x in found if unicodedata.normalize("NFC", x) == character}


def _composed(whole: str) -> Iterator[str]:
    """Yield all strings whose code points decompose into these, in this order."""
    if not whole:
        yield ""
    for end in range(1, min(len(whole), LONGEST_DECOMPOSITION) + 1):
        first = [*_by_decomposition().get(whole[:end], ()), *[whole[0]] * (end == 1)]
        for rest in _composed(whole[end:]) if first else ():
            yield from (x + rest for x in first)
