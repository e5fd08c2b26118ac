"""The picture of the hops of a memory network."""

import numpy as np
import pytest

from keras_attention.plotting import Hops, plot_hops
from keras_attention.plotting.hops import GREEN, MOST_MEMORIES, RED
from tests.plotting.figures import ODD, assert_nothing_is_cut_off, drawn_boxes


def hops(count, top=(), **changes):
    weights = np.full((2, count), 0.001)
    for number in top:
        weights[1, number] = 0.4
    return Hops([f"Sentence {n}." for n in range(count)], weights, "What?", "a")._replace(**changes)


def memories_of(axes):
    return [int(x.get_text()[9:-1]) for x in axes.get_yticklabels()]


def test_a_long_story_shows_the_memories_of_largest_weight():
    short, none, long = plot_hops(hops(3), hops(0), hops(40, top=[39, 20])).axes[:3]
    assert memories_of(short) == [0, 1, 2]
    assert memories_of(none) == []
    assert memories_of(long) == [*range(MOST_MEMORIES - 2), 20, 39]


def test_many_hops():
    figure = plot_hops(hops(3, weights=np.full((20, 3), 0.5)), hops(3))
    assert_nothing_is_cut_off(figure)
    assert len(figure.axes[0].get_xticklabels()) == 20


def test_hops_of_any_text():
    samples = [
        hops(3, top=[1], facts=(1,), expected="a"),
        hops(0, weights=np.zeros((2, 0))),
        hops(8, memories=ODD, question="$" * 90, answer="a" * 90, expected="北" * 90),
        hops(3, weights=-np.ones((3, 5))),
    ]
    figure = plot_hops(*samples)
    assert_nothing_is_cut_off(figure)
    labels = figure.axes[0].get_yticklabels()
    assert [x.get_fontweight() for x in labels] == ["normal", "bold", "normal"]
    texts = [text for text, _ in drawn_boxes(figure)]
    assert {"Sentence 1.", "0.40", "-1.00"} <= set(texts)


def test_answers_in_bytes():
    right, wrong = Hops(["a"], [[1.0]], b"q?", b"park", expected="park"), hops(1, expected="b")
    first, second = plot_hops(right, wrong).axes
    assert first.get_title(loc="left") == "q?"
    assert first.get_xlabel() == "park"
    assert first.xaxis.label.get_color() == GREEN
    assert second.get_xlabel() == "a (right: b)"
    assert second.xaxis.label.get_color() == RED


def test_hops_that_do_not_fit():
    with pytest.raises(
        ValueError, match=r"\(hops, memories\), here \(None, 3\); received \(2, 2\)"
    ):
        plot_hops(hops(3, weights=np.ones((2, 2))))
    with pytest.raises(ValueError, match=r"here \(None, 3\); received \(0, 3\)"):
        plot_hops(hops(3, weights=np.ones((0, 3))))
    with pytest.raises(ValueError, match=r"the 3 memories, from 0; received \(1, 3, -1\)"):
        plot_hops(hops(3, facts=(1, 3, -1)))
    with pytest.raises(ValueError, match="one or more `Hops"):
        plot_hops()
    with pytest.raises(ValueError, match=r"received \(\[\'a\'\],\)"):
        plot_hops(["a"])
