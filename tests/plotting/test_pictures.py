"""Maps of weights, hops and bags show what was given, and cut nothing off."""

import functools

import numpy as np
import pytest
from keras import ops
from matplotlib.figure import Figure

from keras_attention import plotting
from keras_attention.plotting import (
    Document,
    Hops,
    plot_attention,
    plot_attention_image,
    plot_bag,
    plot_bag_map,
    plot_hops,
)
from keras_attention.plotting.hops import MOST_SENTENCES, _most_read
from tests.helpers import assert_refused, refusals
from tests.plotting import figures


@pytest.mark.parametrize("rows", [1, 80])
@pytest.mark.parametrize("columns", [1, 5, 200])
@pytest.mark.parametrize("kind", ["letters", "words", "odd"])
@pytest.mark.each_value
def test_labels_can_be_read(rows, columns, kind):
    make = {
        "letters": lambda n: "abc"[n % 3],
        "words": lambda n: "Donaudampfschifffahrtsgesellschaft"[: 1 + n % 34],
        "odd": lambda n: figures.ODD[n % len(figures.ODD)],
    }[kind]
    source, target = ([make(n) for n in range(size)] for size in (columns, rows))
    weights = figures.weights_of(rows, columns)
    figure = plot_attention(weights, source, target, title="What? " * 30)
    figures.assert_nothing_is_cut_off(figure)
    for axes in figure.axes[:-1]:
        figures.assert_labels_are_apart(axes.get_xticklabels(), "x")
        figures.assert_labels_are_apart(axes.get_yticklabels(), "y")
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


test_mistakes_in_maps = refusals(
    (two(per_line=0), "per_line` must be a positive integer, at most 1048576; received 0"),
    (two(largest=np.inf), "`largest` must be a number above 0; received inf"),
    (two(largest="a"), "`largest` must be a number above 0; received 'a'"),
    (two(marked=[0.5]), "`marked` must ", " the 2 source tokens, from 0; received [0.5]"),
    (six(figures.weights_of(3, 2)), "(2, 3); received (3, 2)."),
    (six(figures.weights_of(5, 7)), "cut padding off"),
    (six(figures.weights_of(1, 2, 3)), "Pass one sample"),
    (six([[-0.5, 0, 0], [0, 0, 0]]), "finite and not negative; received values from -0.5 to 0"),
    (lambda: plot_attention(figures.weights_of(3, 4), list("abcd")),
     "where `target` is None, here (4,); received (3, 4)"),
)  # fmt: skip


@pytest.mark.parametrize("name", ["plot_attention", "plot_document", "plot_hops"])
def test_pictures_inside_axes_and_in_notebooks(name):
    weights = [[0.9, 0.1], [0.2, 0.8]]
    letter = Document([["a", "b"]], [weights[0]], [1])
    draw = {
        "plot_attention": functools.partial(plot_attention, weights, ["a", "b"], ["c", "d"]),
        "plot_document": functools.partial(plotting.plot_document, letter),
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


test_hops_that_do_not_fit = refusals(
    (lambda: plot_hops(hops(3, weights=np.ones((2, 2)))),
     "(hops, memories), here (None, 3); received (2, 2)"),
    (lambda: plot_hops(hops(3, facts=(1, 3, -1))), "the 3 memories, from 0; received (1, 3, -1)"),
    (plot_hops, "one or more `Hops"),
    (lambda: plot_hops(["a"]), "received (['a'],)"),
)  # fmt: skip


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
    figures.assert_nothing_is_cut_off(figure)
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


BAGS = {"odd text": figures.ODD * 3, "one": ["one"], "empty": [], "no images": np.zeros((0, 4, 4))}
BAGS |= {"many images": np.zeros((17, 4, 4)), "colours": np.zeros((5, 9, 2, 3))}


@pytest.mark.parametrize("instances", BAGS.values(), ids=BAGS)
def test_nothing_is_cut_off(instances):
    count = len(instances)
    weights = figures.weights_of(count) if count else []
    figure = plot_bag(weights, instances, title=figures.ODD[0])
    figures.assert_nothing_is_cut_off(figure)
    if not isinstance(instances, list):
        assert len(titles_of(figure)) == min(12, count)


INDICES = "indices, or a mask, of the 1 instances, from 0"
test_mistakes_in_bags = refusals(
    *((lambda given=given: plot_bag(*given), "plot_bag", *words) for given, *words in (
        (([0.5, 0.5], ["a"]), "`weights` must be an array of shape (instances,), here (1,)"),
        (([1.0], "a"), "`instances` must be a list of strings", "Split the string."),
        (([1.0], np.zeros((1, 5))), "`instances` must be images", "(1, 5)", "Make a string"),
        (([1.0], np.zeros((1, 5, 5, 1))), "(1, 5, 5, 1)", "images[..., 0]"),
    )),
    (lambda: plot_bag([1.0], ["a"], most=0), "`most` must be a positive integer"),
    *((lambda x=x: plot_bag([1.0], ["a"], marked=x), INDICES) for x in ([1], [True, False])),
)  # fmt: skip


def test_a_map_shows_each_instance_at_its_place():
    weights, corners = [0.1, 0.6, 0.1, 0.2], [[0, 0], [256, 0], [0, 256], [512, 512]]
    image = np.zeros((30, 20))
    figure = plot_bag_map(weights, corners, image=image, scale=32, title="$1$")
    axes, (squares,) = figure.axes[0], figure.axes[0].collections
    assert squares.get_array().tolist() == sorted(weights)
    corner_of_largest = squares.get_paths()[-1].vertices[0]
    assert corner_of_largest.tolist() == [8, 0]
    assert np.ptp(squares.get_paths()[0].vertices, axis=0).tolist() == [8, 8]
    assert (axes.get_xlim(), axes.get_ylim()) == ((0, 24), (30, 0))
    figures.assert_nothing_is_cut_off(figure)
    ranks = plot_bag_map(weights, corners, ranks=True).axes[0].collections[0]
    np.testing.assert_allclose(ranks.get_array(), [1 / 6, 1 / 6, 2 / 3, 1])
    for points, side in (([[5, 5]], 1), ([[0, 0], [3, 5], [9, 2]], 15**0.5)):
        squares = plot_bag_map(np.ones(len(points)), points).axes[0].collections[0]
        assert np.ptp(squares.get_paths()[0].vertices[:, 0]) == pytest.approx(side)


test_mistakes_in_maps = refusals(
    (lambda: plot_bag_map([1.0], [[0, 0, 0]]), "`coordinates`", "(instances, 2)", "(1, 3)"),
    (lambda: plot_bag_map([1.0, 0.5], [[0, 0]]), "`coordinates`", "(2, 2)", "(1, 2)"),
    (lambda: plot_bag_map([1.0], [[0, np.nan]]), "`coordinates` must be finite"),
    (lambda: plot_bag_map([1.0], [[0, 0]], image=np.zeros(3)), "`image` must be (height", "(3,)"),
    (lambda: plot_bag_map([1.0], [[0, 0]], size=0), "`size`"),
)


def test_a_mask_marks_as_indices_do():
    def colours(marked):
        axes = plot_bag([0.1, 0.7, 0.2], ["a", "b", "c"], marked=marked).axes[0]
        return [bar.get_facecolor() for bar in axes.patches]

    mask = [True, False, True]
    for same in (np.array(mask), ops.convert_to_tensor(mask), ops.convert_to_tensor([0, 2])):
        assert colours(same) == colours([0, 2]) != colours([0, 1])


CELLS = figures.weights_of(3, 6).reshape(3, 2, 3)


@pytest.mark.parametrize("channels", [(), (1,), (3,)])
def test_a_token_keeps_the_colours_of_what_it_looked_at(channels):
    """A cell is 4 x 4 pixels. Weights between the centres of cells are interpolated."""
    image = np.zeros((8, 12, *channels), "uint8")
    figure = plot_attention_image(CELLS, image, figures.ODD[:3])
    figures.assert_nothing_is_cut_off(figure)
    for axes, one in zip(figure.axes, CELLS, strict=True):
        drawn = np.asarray(axes.images[0].get_array(), "float64")
        assert drawn.shape == (8, 12, 3)
        (cross,) = axes.lines
        assert cross.get_xdata() == pytest.approx(4 * (one.sum(0) @ [0, 1, 2]) / one.sum() + 1.5)
        assert cross.get_ydata() == pytest.approx(4 * (one.sum(1) @ [0, 1]) / one.sum() + 1.5)
        for y in range(8):
            for x in range(12):
                row, column = np.clip((y - 1.5) / 4, 0, 1), np.clip((x - 1.5) / 4, 0, 2)
                low = min(int(column), 1)
                upper, lower = (
                    r[low] + (column - low) * (r[low + 1] - r[low]) for r in (one[0], one[1])
                )
                share = (upper + row * (lower - upper)) / one.max()
                assert drawn[y, x] == pytest.approx(255 * 0.8 * (1 - share), abs=1)


def test_panels_of_wide_and_of_many_images():
    for shape, count in (((12, 400), 3), ((40, 10), 30), ((1, 1), 1)):
        weights = figures.weights_of(count, 2).reshape(count, 1, 2)
        figure = plot_attention_image(weights, figures.weights_of(*shape), ["a"] * count)
        figures.assert_nothing_is_cut_off(figure)
        assert figure.get_size_inches()[0] <= 9.1
    alone = plot_attention_image(weights, np.ones((2, 2)), ["a"], per_line=2)
    assert len(alone.axes) == 2
    axes = Figure().subplots()
    assert plot_attention_image(weights, np.ones((2, 2)), ["a"], ax=axes) is axes.figure


def over(image, weights=CELLS, **options):
    return lambda: plot_attention_image(weights, image, ["a", "b", "c"], **options)


test_mistakes_in_images = refusals(
    (over(np.ones((2, 3, 4))), "`image` must be", "(rows, columns, 1 or 3)", "(2, 3, 4)"),
    (over(np.full((2, 3), np.nan)), "finite"),
    (over(np.ones((2, 3)), CELLS[:2]), "(tokens, rows, columns), here (3, None, None)"),
    (over(np.ones((2, 3)), per_line=0), "`per_line` must be a positive integer"),
    (lambda: plot_attention_image(CELLS[:0], np.ones((2, 3)), []), "at least one token"),
)  # fmt: skip
