"""Numbers for the words that a vocabulary lacks."""

import pytest

from keras_attention.seq2seq import ExtendedVocabulary
from tests.helpers import assert_refused

WORDS = ["[PAD]", "[UNK]", "a", "b"]
SOURCES = [["a", "x", "b", "y", "x", "z"], [], ["z", "a"]]


def test_sources_targets_and_back():
    vocabulary = ExtendedVocabulary(WORDS, 2)
    ids, extra = vocabulary.encode_sources(iter(SOURCES))
    assert ids == [[2, 4, 3, 5, 4, 1], [], [4, 2]]  # z is the third extra word of the first
    assert extra == [["x", "y"], [], ["z"]]
    targets = vocabulary.encode_targets([["y", "z", "a"], ["x"], ["z", "x"]], extra)
    assert targets == [[5, 1, 2], [1], [4, 1]]
    assert vocabulary.decode(targets, extra) == [["y", "[UNK]", "a"], ["[UNK]"], ["z", "[UNK]"]]
    # An id that the source has no word for, which a model may return.
    assert vocabulary.decode([[5, -1]], [["x"]]) == [["[UNK]", "[UNK]"]]


def test_an_extra_word_has_an_id_of_its_own_if_the_vocabulary_repeats_a_word():
    vocabulary = ExtendedVocabulary([*WORDS, "a", "c"], 1)
    ids, extra = vocabulary.encode_sources([["x", "c"]])
    assert ids == [[6, 5]]
    assert vocabulary.decode(ids, extra) == [["x", "c"]]


def test_another_unknown_token():
    vocabulary = ExtendedVocabulary(["?", "a"], 1, unknown_token=0)
    ids, extra = vocabulary.encode_sources([["x", "y"]])
    assert vocabulary.decode(ids, extra) == [["x", "?"]]


def test_bad_arguments():
    assert_refused(lambda: ExtendedVocabulary(WORDS, 0), "`max_extra`", "received 0")
    assert_refused(
        lambda: ExtendedVocabulary(WORDS, 2, 4), "`unknown_token`", "from 0 to 3", "received 4"
    )
    with pytest.raises(ValueError, match="zip"):
        ExtendedVocabulary(WORDS, 2).encode_targets([["a"]], [])
