"""Words and sentences, and their ids."""

import pytest

from examples.common.text import Words, edit_distances, split_sentences


def sentences_of(text, longest=100):
    return [" ".join(token[0] for token in x) for x in split_sentences(text, longest)]


SHE = ['She [ so ( he said " no ! " ) ] : left']


@pytest.mark.parametrize(("text", "expected"), [
    ("No! Why? So… Yes... Ok?! End", ["No !", "Why ?", "So …", "Yes . . .", "Ok ? !", "End"]),
    ("U.S.A is it, at 3.5 or a.b", ["U . S . A is it , at 3 . 5 or a . b"]),
    ('("No.") She [so (he said "no!")]: left', ['( " No . " )', *SHE]),
    ('It is. "Now" it is', ["It is .", '" Now " it is']),
    ("one\ntwo\r\nthree\n\n \r\n four", ["one", "two", "three", "four"]),
    ("one\rtwo\u2028three \u2029 four\vfive\ffive", ["one", "two", "three", "four five five"]),
    ("北京很好。 我爱北京！\u3000为什么？ 好", ["北京很好 。", "我爱北京 ！", "为什么 ？", "好"]),
    ("naïve e\u0301tude 👍🏽", ["naïve e\u0301tude 👍 🏽"]),
    (" \n\t\u00a0\u3000\r\n", []),
])  # fmt: skip
def test_sentences(text, expected):
    assert sentences_of(text) == expected


def test_a_long_sentence_goes_on_as_the_next():
    assert sentences_of("a b c d e. f g", 2) == ["a b", "c d", "e .", "f g"]


def test_words_and_letters_that_differ():
    few, many = Words(["the", "é", "cat"]), Words(["the"], 50)
    assert [few(x) for x in ("THE", "É", "dog", "Cat", "a")] == [1, 2, 4, 3, 4]
    assert few.size == 5
    ids = [many(x) for x in "abcdefghA"]
    assert 2 <= min(ids) <= max(ids) < many.size == 52
    assert len(set(ids)) > 3
    assert ids[0] == ids[-1]
    found = ["abc", "", "abc", "", "xabd", "kitten", "ab", ""]
    wanted = ["abc", "abc", "", "", "abcd", "sitting", "ba", ""]
    assert edit_distances(found, wanted).tolist() == [0, 3, 3, 0, 2, 3, 2, 0]
    assert edit_distances([("tʃ", "a")], [("t", "ʃ", "a")]).tolist() == [2]
