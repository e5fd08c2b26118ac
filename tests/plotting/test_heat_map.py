"""The map of attention weights: it shows what was given, and cuts nothing off."""

import functools

import numpy as np
import pytest
from matplotlib.figure import Figure

from keras_attention.plotting import Document, Hops, plot_attention, plot_document, plot_hops
from tests.helpers import assert_refused, refusals
from tests.plotting.figures import (
    ODD,
    assert_labels_are_apart,
    assert_nothing_is_cut_off,
    weights_of,
)


@pytest.mark.parametrize("rows", [1, 80])
@pytest.mark.parametrize("columns", [1, 5, 200])
@pytest.mark.parametrize("kind", ["letters", "words", "odd"])
@pytest.mark.each_value
def test_labels_can_be_read(rows, columns, kind):
    make = {
        "letters": lambda n: "abc"[n % 3],
        "words": lambda n: "Donaudampfschifffahrtsgesellschaft"[: 1 + n % 34],
        "odd": lambda n: ODD[n % len(ODD)],
    }[kind]
    source, target = ([make(n) for n in range(size)] for size in (columns, rows))
    weights = weights_of(rows, columns)
    figure = plot_attention(weights, source, target, title="What? " * 30)
    assert_nothing_is_cut_off(figure)
    for axes in figure.axes[:-1]:
        assert_labels_are_apart(axes.get_xticklabels(), "x")
        assert_labels_are_apart(axes.get_yticklabels(), "y")
        assert min(x.get_size() for x in axes.get_xticklabels()) >= 6.5
    drawn = np.concatenate([axes.images[0].get_array() for axes in figure.axes[:-1]], 1)
    np.testing.assert_allclose(np.ma.filled(drawn, 0)[:, :columns], weights, rtol=1e-6)


def test_the_map_without_a_target():
    figure = plot_attention([0.25, 0.75], ["a", "b"], marked=[1])
    axes = figure.axes[0]
    assert axes.images[0].get_array().tolist() == [[0.25, 0.75]]
    assert axes.images[0].get_clim() == (0, 0.75)
    assert plot_attention([0.2], ["a"], largest=1).axes[0].images[0].get_clim() == (0, 1)
    assert [x.get_fontweight() for x in axes.get_xticklabels()] == ["normal", "bold"]


def two(**options):
    return lambda: plot_attention([0.5, 0.5], ["a", "b"], **options)


def six(weights):
    return lambda: plot_attention(weights, ["a", "b", "c"], ["x", "y"])


test_mistakes = refusals(
    (two(per_line=0), "per_line` must be a positive integer, at most 1048576; received 0"),
    (two(largest=np.inf), "`largest` must be a number above 0; received inf"),
    (two(largest="a"), "`largest` must be a number above 0; received 'a'"),
    (two(marked=[0.5]), "`marked` must ", " the 2 source tokens, from 0; received [0.5]"),
    (six(weights_of(3, 2)), "(2, 3); received (3, 2)."),
    (six(weights_of(5, 7)), "cut padding off"),
    (six(weights_of(1, 2, 3)), "Pass one sample"),
    (six([[-0.5, 0, 0], [0, 0, 0]]), "finite and not negative; received values from -0.5 to 0"),
    (lambda: plot_attention(weights_of(3, 4), list("abcd")),
     "where `target` is None, here (4,); received (3, 4)"),
)  # fmt: skip


@pytest.mark.parametrize("name", ["plot_attention", "plot_document", "plot_hops"])
def test_pictures_inside_axes_and_in_notebooks(name):
    weights = [[0.9, 0.1], [0.2, 0.8]]
    letter = Document([["a", "b"]], [weights[0]], [1])
    draw = {
        "plot_attention": functools.partial(plot_attention, weights, ["a", "b"], ["c", "d"]),
        "plot_document": functools.partial(plot_document, letter),
        "plot_hops": functools.partial(plot_hops, Hops(["a", "b"], weights, "c", "d")),
    }[name]
    alone = draw()
    assert alone._repr_png_().startswith(b"\x89PNG")
    figure = Figure()
    ax = figure.subplots(1, 2)[1]
    assert draw(ax=ax) is figure
    (picture,) = ax.images
    assert np.asarray(picture.get_array()).std() > 10  # something is drawn
    ratio = np.divide(*picture.get_array().shape[:2])
    assert ratio == pytest.approx(alone.get_figheight() / alone.get_figwidth(), rel=0.02)
    assert_refused(lambda: draw(ax=3), "`ax` must be the axes of a matplotlib figure")
