"""The picture of the hops of a memory network."""

import numpy as np

from keras_attention.plotting import Hops, plot_hops
from keras_attention.plotting.hops import MOST_SENTENCES, _most_read
from tests.helpers import refusals
from tests.plotting import figures


def hops(count, top=(), **changes):
    weights = np.full((2, count), 0.001)
    for number in top:
        weights[1, number] = 0.4
    return Hops([f"Sentence {n}." for n in range(count)], weights, "What?", "a")._replace(**changes)


def test_a_long_story_shows_the_sentences_read_most():
    assert _most_read(hops(3)) == [0, 1, 2]
    assert _most_read(hops(0)) == []
    # Gaps are marked.
    assert _most_read(hops(40, top=[39, 20])) == [*range(10), None, 20, None, 39]
    assert _most_read(hops(40)) == [*range(MOST_SENTENCES), None]


def test_hops_of_any_number_and_text():
    many = plot_hops(hops(3, weights=np.full((20, 3), 0.5)), hops(3))
    figures.assert_nothing_is_cut_off(many)
    headers = [x for x in many.axes[0].texts if x.get_text().startswith("hop ")]
    assert len(headers) == 20
    figures.assert_labels_are_apart(headers, "x")
    samples = [
        hops(3, top=[1], facts=(1,), expected="a"),
        hops(0, weights=np.zeros((2, 0))),
        hops(8, memories=figures.ODD, question="$" * 90, answer="a" * 90, expected="北" * 90),
        hops(3, weights=-np.ones((3, 5))),
    ]
    figure = plot_hops(*samples)
    figures.assert_nothing_is_cut_off(figure)
    texts = [text for text, _ in figures.drawn_boxes(figure)]
    assert {"• Sentence 1.", "0.40", "-1.00"} <= {*texts}
    (axes,) = plot_hops(Hops(["a"], [[1.0]], b"q?", b"park", expected="park")).axes
    assert [x.get_text() for x in axes.texts[:2]] == ["park", "q?"]
    assert axes.texts[0].get_color() == "#1b6e3c"


def test_long_memories_end_before_the_weights():
    letters = ["W" * 99, "i" * 99, "北" * 99, "word " * 40]
    (axes,) = plot_hops(hops(4, memories=letters, question="W" * 99, answer="W" * 20)).axes
    axes.figure.canvas.draw()
    cells = min(patch.get_window_extent().x0 for patch in axes.patches)
    answer, question, *texts = axes.texts
    assert question.get_window_extent().x1 < answer.get_window_extent().x0
    ends = [x.get_window_extent().x1 for x in texts if "…" in x.get_text()]
    assert len(ends) == 4
    assert max(ends) < cells
    # Two of the four texts use most of the room.
    assert sorted(ends)[1] > 0.7 * cells


test_hops_that_do_not_fit = refusals(
    (lambda: plot_hops(hops(3, weights=np.ones((2, 2)))),
     "(hops, memories), here (None, 3); received (2, 2)"),
    (lambda: plot_hops(hops(3, facts=(1, 3, -1))), "the 3 memories, from 0; received (1, 3, -1)"),
    (plot_hops, "one or more `Hops"),
    (lambda: plot_hops(["a"]), "received (['a'],)"),
)  # fmt: skip
