"""The picture of a bag."""

import numpy as np
import pytest
from keras import ops

from keras_attention.plotting import plot_bag
from tests.helpers import refusals
from tests.plotting.figures import ODD, assert_nothing_is_cut_off, weights_of

RED = "#b3261e"


def titles_of(figure):
    return [axes.get_title() for axes in figure.axes if axes.get_title()]


def test_images_with_the_largest_weights_come_first_with_colours_of_any_kind():
    images = np.arange(5 * 7 * 3).reshape(5, 7, 3)
    figure = plot_bag([0.1, 0.4, 0.0, 0.3, 0.2], images, most=3, marked=[3], title="bag $1$")
    assert titles_of(figure) == ["1: 40.0%", "3: 30.0%", "4: 20.0%"]
    assert [axes.title.get_color() == RED for axes in figure.axes[:3]] == [False, True, False]
    for axes, n, length in zip(figure.axes, (1, 3, 4), (3, 2.25, 1.5), strict=False):
        (picture,), (bar,) = axes.images, axes.lines
        np.testing.assert_array_equal(picture.get_array(), images[n])
        assert np.ptp(bar.get_xdata()) == pytest.approx(length)
    assert_nothing_is_cut_off(figure)
    images = np.arange(4 * 7 * 3).reshape(1, 4, 7, 3)
    images[0, 0, 0] = 255
    (picture,) = plot_bag([1.0], images.astype("float32")).axes[0].images
    np.testing.assert_allclose(picture.get_array(), images[0] / 255, atol=1e-6)


def test_rows_of_a_table_are_bars():
    figure = plot_bag([0.1, 0.5, 0.0, 0.4], ["a", b"b", "c", "d"], most=2, marked={1})
    (axes,) = figure.axes
    assert [x.get_text() for x in axes.get_yticklabels()] == ["1: b", "3: d"]
    assert [x.get_width() for x in axes.patches] == [1, 0.8]
    assert [x.get_text() for x in axes.texts] == ["50.0%", "40.0%"]
    zeros = plot_bag(np.zeros(3), ["a", "b", "c"]).axes[0]
    assert [x.get_width() for x in zeros.patches] == [0, 0, 0]


@pytest.mark.parametrize(
    "instances",
    [ODD * 3, np.zeros((17, 4, 4)), np.zeros((5, 9, 2, 3)), ["one"], [], np.zeros((0, 4, 4))],
    ids=["odd text", "many images", "colours", "one", "empty", "no images"],
)
def test_nothing_is_cut_off(instances):
    count = len(instances)
    weights = weights_of(count) if count else []
    figure = plot_bag(weights, instances, title=ODD[0])
    assert_nothing_is_cut_off(figure)
    if not isinstance(instances, list):
        assert len(titles_of(figure)) == min(12, count)


INDICES = "indices, or a mask, of the 1 instances, from 0"
test_mistakes = refusals(
    *((lambda given=given: plot_bag(*given), "plot_bag", *words) for given, *words in (
        (([0.5, 0.5], ["a"]), "`weights` must be an array of shape (instances,), here (1,)"),
        (([1.0], "a"), "`instances` must be a list of strings", "Split the string."),
        (([1.0], np.zeros((1, 5))), "`instances` must be images", "(1, 5)", "Make a string"),
        (([1.0], np.zeros((1, 5, 5, 1))), "(1, 5, 5, 1)", "images[..., 0]"),
    )),
    (lambda: plot_bag([1.0], ["a"], most=0), "`most` must be a positive integer"),
    *((lambda x=x: plot_bag([1.0], ["a"], marked=x), INDICES) for x in ([1], [True, False])),
)  # fmt: skip


def test_a_mask_marks_as_indices_do():
    def colours(marked):
        axes = plot_bag([0.1, 0.7, 0.2], ["a", "b", "c"], marked=marked).axes[0]
        return [bar.get_facecolor() for bar in axes.patches]

    mask = [True, False, True]
    for same in (np.array(mask), ops.convert_to_tensor(mask), ops.convert_to_tensor([0, 2])):
        assert colours(same) == colours([0, 2]) != colours([0, 1])
