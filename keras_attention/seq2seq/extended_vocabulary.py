"""Ids for words that a vocabulary lacks."""

from collections.abc import Iterable, Sequence

from keras_attention._spec import check_int

__all__ = ["ExtendedVocabulary"]


class ExtendedVocabulary:
    """Turn words into the ids that `PointerGenerator` reads and returns, and back.

    The id of a word of the vocabulary is its index. Other words of a source, its extra
    words, have ids from the size of the vocabulary on, in the order in which they appear. Each
    sample has its own. Words beyond `max_extra`, and words of a target that its source lacks, have
    the id of the unknown token.

    Args:
        words: the vocabulary, special tokens included: the word of id 0, of id 1, and so on.
        max_extra: the largest number of extra words of a sample, as in `PointerGenerator`.
        unknown_token: the id of all other words.

    Raises:
        ValueError: `max_extra` is not a positive integer, or `unknown_token` is not an id.

    Example:
        >>> from keras_attention.seq2seq import ExtendedVocabulary
        >>> vocabulary = ExtendedVocabulary(["[PAD]", "[UNK]", "the", "cat"], max_extra=2)
        >>> ids, extra = vocabulary.encode_sources([["the", "ocelot", "saw", "the", "ocelot"]])
        >>> ids, extra
        ([[2, 4, 5, 2, 4]], [['ocelot', 'saw']])
        >>> vocabulary.encode_targets([["the", "ocelot", "ran"]], extra)
        [[2, 4, 1]]
        >>> vocabulary.decode([[2, 4, 1]], extra)
        [['the', 'ocelot', '[UNK]']]
    """

    def __init__(self, words: Sequence[str], max_extra: int, unknown_token: int = 1) -> None:
        self.vocabulary: list[str] = list(words)
        self.max_extra: int = check_int("ExtendedVocabulary", "max_extra", max_extra)
        last = len(self.vocabulary) - 1
        self.unknown_token: int = check_int(
            "ExtendedVocabulary", "unknown_token", unknown_token, 0, last
        )
        self._ids = {word: n for n, word in enumerate(self.vocabulary)}

    def encode_sources(
        self, samples: Iterable[Sequence[str]]
    ) -> tuple[list[list[int]], list[list[str]]]:
        """Return the ids of the words of every sample, and the extra words of every sample."""
        samples = list(samples)
        extra = [
            [word for word in dict.fromkeys(sample) if word not in self._ids][: self.max_extra]
            for sample in samples
        ]
        return self.encode_targets(samples, extra), extra

    def encode_targets(
        self, samples: Iterable[Sequence[str]], extra: Iterable[Sequence[str]]
    ) -> list[list[int]]:
        """Return the ids of the words of every sample, with the extra words of its source."""
        encoded = []
        for sample, more in zip(samples, extra, strict=True):
            ids = {word: len(self.vocabulary) + n for n, word in enumerate(more)} | self._ids
            encoded.append([ids.get(word, self.unknown_token) for word in sample])
        return encoded

    def decode(
        self, samples: Iterable[Sequence[int]], extra: Iterable[Sequence[str]]
    ) -> list[list[str]]:
        """Return the words of the ids of every sample, with the extra words of its source."""
        decoded = []
        for sample, more in zip(samples, extra, strict=True):
            words = [*self.vocabulary, *more]
            unknown = words[self.unknown_token]
            decoded.append([words[n] if 0 <= n < len(words) else unknown for n in sample])
        return decoded
