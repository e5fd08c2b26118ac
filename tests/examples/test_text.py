"""Words and sentences, and their ids."""

import itertools
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples.common.text import CLOSING, ENDS, Words, edit_distances, split_sentences, tokenize


def sentences_of(text, longest=100):
    return [" ".join(token[0] for token in x) for x in split_sentences(text, longest)]


SHE = ['She [ so ( he said " no ! " ) ] : left']


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("No! Why? So… Yes... Ok?! End", ["No !", "Why ?", "So …", "Yes . . .", "Ok ? !", "End"]),
        ("U.S.A is it, at 3.5 or a.b", ["U . S . A is it , at 3 . 5 or a . b"]),
        ('("No.") She [so (he said "no!")]: left', ['( " No . " )', *SHE]),
        ('It is. "Now" it is', ["It is .", '" Now " it is']),
        ("one\ntwo\r\nthree\n\n \r\n four", ["one", "two", "three", "four"]),
        ("one\rtwo\u2028three \u2029 four\vfive\ffive", ["one", "two", "three", "four five five"]),
        (
            "北京很好。 我爱北京！\u3000为什么？ 好",
            ["北京很好 。", "我爱北京 ！", "为什么 ？", "好"],
        ),
        ("naïve e\u0301tude 👍🏽", ["naïve e\u0301tude 👍 🏽"]),
        ("", []),
        (" \n\t\u00a0\u3000\r\n", []),
    ],
)
def test_sentences(text, expected):
    assert sentences_of(text) == expected


SIGNS = st.sampled_from([*"ab7.!?…。\"')]»”«, \n\r\t\v\u00a0\u3000\u2028é北א", "\r\n", ". "])
TEXT = st.lists(SIGNS | st.characters(codec="utf-8"), max_size=30).map("".join)


@given(TEXT, st.integers(1, 5))
@settings(deadline=None, max_examples=50, derandomize=True)
def test_sentences_of_any_text(text, longest):
    whole = split_sentences(text, 10**6)
    last, before = 0, None
    for part, token in [(x, token) for x in whole for token in x]:
        gap = text[last : token.start()]
        assert all(x.isspace() or unicodedata.category(x)[0] == "Z" for x in gap)
        breaks = set(gap) & set("\n\r\u2028\u2029")
        starts = token is part[0]
        assert starts or not breaks
        assert not starts or before is None or breaks or (gap and before in {*ENDS, *CLOSING})
        last, before = token.end(), token[0]
    pieces = [s[n : n + longest] for s in whole for n in range(0, len(s), longest)]
    assert sentences_of(text, longest) == [" ".join(x[0] for x in piece) for piece in pieces]
    assert [x.span() for x in itertools.chain(*whole)] == [x.span() for x in tokenize(text)]


def test_words():
    few, many = Words(["the", "é", "cat"]), Words(["the"], 50)
    assert [few(x) for x in ("THE", "É", "dog", "Cat", "a")] == [1, 2, 4, 3, 4]
    assert few.size == 5
    ids = [many(x) for x in "abcdefghA"]
    assert 2 <= min(ids) <= max(ids) < many.size == 52
    assert len(set(ids)) > 3
    assert ids[0] == ids[-1]


def test_letters_that_differ():
    found = ["abc", "", "abc", "", "xabd", "kitten", "ab", ""]
    wanted = ["abc", "abc", "", "", "abcd", "sitting", "ba", ""]
    assert edit_distances(found, wanted).tolist() == [0, 3, 3, 0, 2, 3, 2, 0]
    assert edit_distances([("tʃ", "a")], [("t", "ʃ", "a")]).tolist() == [2]
