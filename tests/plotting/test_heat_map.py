"""Pictures of attention: what is drawn is what was given, and nothing is cut off."""

import html.parser
import itertools

import keras
import matplotlib.image
import numpy as np
import pytest
import tensorflow as tf

from keras_attention import (
    AttentionPooling,
    AttentionRNN,
    BahdanauAttention,
    BiDAFAttentionFlow,
    HierarchicalAttention,
    MemoryNetwork,
)
from keras_attention.plotting import (
    AttentionMapCallback,
    Hops,
    attention_weights,
    highlight,
    plot_attention,
    plot_hops,
)
from keras_attention.plotting._text import drawable, shorten
from keras_attention.plotting.hops import MOST_SENTENCES, _most_read

ODD = ["$x_1$ costs 5$", "北京很好", "\u202eabc", "<b>" * 60, "שלום", "", "\x00\t\ud800", "مرحبا"]


def weights_of(*sizes):
    x = np.random.default_rng(1).random(sizes)
    return x / x.sum(-1, keepdims=True)


def drawn_boxes(figure):
    """The boxes of all texts, in pixels."""
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    texts = [*figure.texts]
    for axes in figure.axes:
        if not axes.axison:
            texts += axes.texts
            continue
        texts += [*axes.texts, axes.title, *axes.get_xticklabels(), *axes.get_yticklabels()]
        texts += [axes.xaxis.label, axes.yaxis.label]
    return [(x.get_text(), x.get_window_extent(renderer)) for x in texts if x.get_text()]


def assert_nothing_is_cut_off(figure):
    boxes = drawn_boxes(figure)
    wide, high = figure.canvas.get_width_height()
    for text, box in boxes:
        assert box.x0 >= 0, text
        assert box.y0 >= 0, text
        assert box.x1 <= wide, text
        assert box.y1 <= high, text


def assert_labels_are_apart(labels, axis):
    """Along the axis, no label touches the next."""
    boxes = [x.get_window_extent() for x in labels if x.get_text()]
    sides = sorted(((b.x0, b.x1) if axis == "x" else (b.y0, b.y1)) for b in boxes)
    for (_, end), (begin, _) in itertools.pairwise(sides):
        assert end <= begin + 1


@pytest.mark.parametrize("rows", [1, 5, 80])
@pytest.mark.parametrize("columns", [1, 5, 80, 200])
@pytest.mark.parametrize("kind", ["letters", "words", "odd"])
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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"per_line": 0}, "per_line` must be a positive integer, at most 1048576; received 0"),
        ({"per_line": "a"}, "per_line` must be a positive integer, at most 1048576; received 'a'"),
        ({"largest": np.inf}, "largest must be a positive number or None; received inf"),
        ({"largest": "a"}, "largest must be a positive number"),
        ({"marked": 1}, "marked: a list of numbers of source tokens; received 1"),
        ({"marked": [0.5]}, r"\[0.5\] are no numbers of the 2 source tokens"),
    ],
)
def test_options_that_make_no_sense(options, message):
    with pytest.raises(ValueError, match=message):
        plot_attention([0.5, 0.5], ["a", "b"], **options)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (weights_of(3, 2), r"\(2, 3\); received \(3, 2\)\.$"),
        (weights_of(5, 7), r"Cut padding off: weights\[:2, :3\]"),
        (weights_of(1, 2, 3), r"Give those of one sample: weights\[0\]"),
        ([[np.nan, 0, 0], [0, 0, 0]], "finite and not negative"),
        ([[-0.5, 0, 0], [0, 0, 0]], "finite and not negative; received numbers from -0.5 to 0"),
    ],
)
def test_weights_that_do_not_fit(weights, message):
    with pytest.raises(ValueError, match=message):
        plot_attention(weights, ["a", "b", "c"], ["x", "y"])


def test_marks_outside():
    with pytest.raises(ValueError, match=r"\[3\] are no numbers of the 3 source tokens"):
        plot_attention(weights_of(3), ["a", "b", "c"], marked=[3])


@pytest.mark.parametrize(
    ("text", "room", "expected"),
    [
        ("abc  def", 7, "abc def"),
        ("abcdefgh", 7, "abcde …"),
        ("", 3, ""),
        (" ", 3, "␣"),
        # Marks take no room, and stay with their letter.
        ("e\u0301" * 7, 7, "e\u0301" * 7),
        ("e\u0301" * 8, 7, "e\u0301" * 5 + " …"),
    ],
)
def test_text_is_shortened(text, room, expected):
    assert shorten(text, room) == expected


def test_signs_that_cannot_be_drawn():
    first, control, hieroglyph, half = drawable("a\x00\U00014400\ud800")
    assert (first, hieroglyph) == ("a", "□")
    assert control in "␀□"
    assert half in "\ufffd□"
    assert drawable(b"caf\xc3\xa9") == "café"
    # A mark on a sign that no font has goes with it.
    assert drawable("\U00014400\u0301e\u0301") == "□e\u0301"


def test_words_of_all_scripts_are_drawn_by_the_fonts_that_are_installed():
    """Warnings of missing signs would be errors."""
    words = [
        "नमस्ते",
        "ไทย",
        "தமிழ்",
        "한국어",
        "北京很好",
        "مرحبا",
        "שלום",
        "👍",
        "\U0001f1e9",
        "e\u0301",
    ]
    plot_attention([[1 / len(words)] * len(words)], words, ["x"]).canvas.draw()
    plot_hops(Hops(words, [[0.1] * len(words)], "北京", "தமிழ்")).canvas.draw()


def test_fonts_that_are_not_known():
    """STIX comes with matplotlib and has signs that the first of the known fonts has not."""
    import matplotlib.font_manager as manager

    codes = [
        set(manager.get_font(manager.findfont(name)).get_charmap())
        for name in ("STIXGeneral", "DejaVu Sans")
    ]
    words = [chr(code) for code in sorted(codes[0] - codes[1]) if chr(code).isprintable()][:5]
    assert len(words) == 5
    assert drawable("".join(words)) == "".join(words)
    plot_attention([[0.2] * 5], words, ["x"]).canvas.draw()  # a missing sign would be a warning


def installed(signs):
    import matplotlib.font_manager as manager

    return any(
        all(ord(sign) in manager.get_font(path).get_charmap() for sign in signs)
        for path in manager.findSystemFonts()
    )


def test_chinese_is_drawn_where_a_font_has_it():
    if not installed("北京"):
        pytest.skip("no font with Chinese signs is installed: apt-get install fonts-noto-cjk")
    assert drawable("北京") == "北京"
    label = plot_attention([1], ["北京"]).axes[0].get_xticklabels()[0]
    other = plot_attention([1], ["京北"]).axes[0].get_xticklabels()[0]
    pictures = [pixels_of(x) for x in (label, other)]
    assert pictures[0].tobytes() != pictures[1].tobytes()


def pixels_of(label):
    figure = label.get_figure()
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba())


@pytest.mark.parametrize("draw", ["map", "hops"])
def test_hebrew_is_drawn_from_the_right(draw):
    """As its letters in the other order are, forced to be drawn from the left."""

    def picture(word):
        if draw == "map":
            figure = plot_attention([[1]], ["x"], [word])
        else:
            figure = plot_hops(Hops([word], [[1]]))
        figure.canvas.draw()
        return np.asarray(figure.canvas.buffer_rgba()).astype(int)

    word = "שלום"
    right = picture(word)
    assert np.abs(right - picture("\u202d" + word[::-1])).max() < 8
    assert np.abs(right - picture("\u202d" + word)).max() > 100


# --- hops ----------------------------------------------------------------------------------------


def hops(count, top=(), **changes):
    weights = np.full((2, count), 0.001)
    for number in top:
        weights[1, number] = 0.4
    return Hops([f"Sentence {n}." for n in range(count)], weights, "What?", "a")._replace(**changes)


def test_of_a_long_story_the_sentences_that_were_read():
    assert _most_read(hops(3)) == [0, 1, 2]
    assert _most_read(hops(0)) == []
    # Gaps are marked.
    assert _most_read(hops(40, top=[39, 20])) == [*range(10), None, 20, None, 39]
    assert _most_read(hops(40)) == [*range(MOST_SENTENCES), None]


def test_many_hops():
    figure = plot_hops(hops(3, weights=np.full((20, 3), 0.5)), hops(3))
    assert_nothing_is_cut_off(figure)
    headers = [x for x in figure.axes[0].texts if x.get_text().startswith("hop ")]
    assert len(headers) == 20
    assert_labels_are_apart(headers, "x")


def test_hops_of_any_text():
    samples = [
        hops(3, top=[1], facts=(1,), expected="a"),
        hops(0, weights=np.zeros((2, 0))),
        hops(8, memories=ODD, question="$" * 90, answer="a" * 90, expected="北" * 90),
        hops(3, weights=-np.ones((3, 5))),
    ]
    figure = plot_hops(*samples)
    assert_nothing_is_cut_off(figure)
    texts = [text for text, _ in drawn_boxes(figure)]
    assert "• Sentence 1." in texts
    assert "0.40" in texts
    assert "-1.00" in texts


def test_answers_in_bytes():
    (axes,) = plot_hops(Hops(["a"], [[1.0]], b"q?", b"park", expected="park")).axes
    assert [x.get_text() for x in axes.texts[:2]] == ["park", "q?"]
    assert axes.texts[0].get_color() == "#1b6e3c"


def test_long_memories_end_before_the_weights():
    letters = ["W" * 99, "i" * 99, "北" * 99, "word " * 40]
    figure = plot_hops(hops(4, memories=letters, facts=(0, 2), question="W" * 99, answer="W" * 20))
    figure.canvas.draw()
    (axes,) = figure.axes
    cells = min(patch.get_window_extent().x0 for patch in axes.patches)
    answer, question, *texts = axes.texts
    assert question.get_window_extent().x1 < answer.get_window_extent().x0
    ends = [x.get_window_extent().x1 for x in texts if "…" in x.get_text()]
    assert len(ends) == 4
    assert max(ends) < cells
    # Of the narrow letters there are as many as of others; of those as many as there is room for.
    assert sorted(ends)[1] > 0.7 * cells


def test_hops_that_do_not_fit():
    with pytest.raises(
        ValueError, match=r"here \(K, 3\) or wider, of one hop at least; received \(2, 2\)"
    ):
        plot_hops(hops(3, weights=np.ones((2, 2))))
    with pytest.raises(ValueError, match=r"of one hop at least; received \(0, 3\)"):
        plot_hops(hops(3, weights=np.ones((0, 3))))
    with pytest.raises(ValueError, match=r"\[3, -1\] are no numbers of the 3 memories"):
        plot_hops(hops(3, facts=(1, 3, -1)))
    with pytest.raises(ValueError, match="at least one"):
        plot_hops()
    with pytest.raises(ValueError, match="received list"):
        plot_hops(["a"])


# --- highlighted text ----------------------------------------------------------------------------


class Marks(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.text, self.marks, self.tags = "", [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag == "mark":
            self.marks.append((float(dict(attributes)["title"]), dict(attributes)["style"]))

    def handle_data(self, data):
        self.text += data


def read(page):
    marks = Marks()
    marks.feed(page)
    return marks


def test_highlighted_text_is_escaped():
    tokens = ["<script>alert(1)</script>", "&amp;", '" onclick="x', "\x00", "שלום"]
    page = highlight(tokens, [0.1, 0.2, 0.3, 0.4, 0.0])
    marks = read(page)
    assert marks.tags == ["p", *["mark"] * 5]
    assert marks.text == " ".join(tokens).replace("\x00", "␀")
    assert [weight for weight, _ in marks.marks] == [0.1, 0.2, 0.3, 0.4, 0]
    # The strongest is the largest.
    assert "/ 1.000" in marks.marks[3][1]
    assert "/ 0.250" in marks.marks[0][1]
    assert page._repr_html_() == page


def test_highlighted_bytes():
    assert (
        read(highlight(np.array([b"caf\xc3\xa9", b"\xff"], object), [1, 0])).text == "café \ufffd"
    )


def test_gaps_of_highlighted_text():
    assert read(highlight(["a", ",", "b"], [0, 0, 0], ["", "", "\n"])).text == "a,\nb"
    assert read(highlight([], [])).text == ""
    assert read(highlight(iter("ab"), [0, 0])).text == "a b"
    with pytest.raises(ValueError, match=r"joiner: a string, or one before each token; .*None"):
        highlight(["a"], [0], None)
    with pytest.raises(ValueError, match="one before each token, here 3; received 2"):
        highlight(["a", "b", "c"], [0, 0, 0], ["", ""])
    with pytest.raises(ValueError, match=r"here \(2,\); received \(3,\)\. Cut padding off"):
        highlight(["a", "b"], [0, 0, 0])


# --- weights of models ---------------------------------------------------------------------------


def translator():
    source, target = keras.Input((None,), dtype="int32"), keras.Input((None,), dtype="int32")
    memory = keras.layers.Embedding(11, 5, mask_zero=True, name="memory")(source)
    query = keras.layers.Embedding(11, 5, name="query")(target)
    context = BahdanauAttention(7, name="attention")(query, memory)
    return keras.Model([source, target], keras.layers.Dense(11)(context))


def test_weights_of_a_functional_model():
    model = translator()
    inputs = [np.array([[3, 4, 0]]), np.array([[5, 6]])]
    before = model(inputs)
    found = attention_weights(model, inputs)
    assert list(found) == ["attention"]
    layer = model.get_layer("attention")
    memory = model.get_layer("memory")(inputs[0])
    query = model.get_layer("query")(inputs[1])
    _, expected = layer(query, memory, return_attention_scores=True)
    np.testing.assert_allclose(found["attention"], expected, rtol=1e-6)
    assert found["attention"][0, :, 2].tolist() == [0, 0]
    # The model is as it was.
    np.testing.assert_array_equal(model(inputs), before)
    assert "call" not in vars(layer)


def test_weights_of_other_layers():
    words = keras.Input((4, 5, 3))
    pooled = HierarchicalAttention(7, name="hierarchy")(words)
    inner = keras.Model(words, pooled, name="inner")
    flow_in = keras.Input((6, 3))
    flow = BiDAFAttentionFlow(name="flow")(flow_in, flow_in)
    decoded = AttentionRNN(keras.layers.GRUCell(3), BahdanauAttention(5), name="decoder")(
        flow_in, flow_in
    )
    model = keras.Model([words, flow_in], [inner(words), flow, decoded])
    found = attention_weights(model, [np.ones((2, 4, 5, 3)), np.ones((2, 6, 3))])
    shapes = keras.tree.map_structure(lambda x: x.shape, found)
    assert [x.shape for x in found["hierarchy"]] == [(2, 4, 5), (2, 4)]
    assert [x.shape for x in found["flow"]] == [(2, 6, 6), (2, 6)]
    assert found["decoder"].shape == (2, 6, 6), shapes


def test_weights_of_a_memory_network_and_of_a_layer_called_twice():
    story, question = keras.Input((3, 4), dtype="int32"), keras.Input((4,), dtype="int32")
    network = MemoryNetwork(9, 5, hops=2, name="network")
    model = keras.Model([story, question], network(story, question))
    ids = np.ones((2, 3, 4), "int32")
    assert attention_weights(model, [ids, ids[:, 0]])["network"].shape == (2, 2, 3)
    x = keras.Input((3, 4))
    attention = keras.layers.Attention(name="twice")
    model = keras.Model(x, attention([attention([x, x]), x]))
    found = attention_weights(model, np.ones((2, 3, 4)))
    assert [weights.shape for weights in found["twice"]] == [(2, 3, 3)] * 2


class Block(keras.layers.Layer):
    """A layer of one's own with attention in a list."""

    def __init__(self, **options):
        super().__init__(**options)
        self.parts = [keras.layers.Dense(4), keras.layers.Attention(name="inner")]

    def call(self, x):
        dense, attention = self.parts
        return attention([dense(x), x])


class Own(keras.Model):
    def __init__(self):
        super().__init__()
        self.block, self.pooling = Block(), AttentionPooling(5, name="pooling")

    def call(self, x):
        return self.pooling(self.block(x))


def test_weights_of_models_of_ones_own():
    found = attention_weights(Own(), np.ones((2, 3, 4)))
    assert {name: x.shape for name, x in found.items()} == {"inner": (2, 3, 3), "pooling": (2, 3)}
    sequential = keras.Sequential([Block(), AttentionPooling(5, name="last")])
    assert set(attention_weights(sequential, np.ones((2, 3, 4)))) == {"inner", "last"}


def test_a_layer_of_two_models_and_two_of_one_name():
    x = keras.Input((3, 4))
    shared = AttentionPooling(5, name="pooling")
    inner = keras.Model(x, shared(x), name="inner")
    other = keras.Model(x, AttentionPooling(7, name="pooling")(x), name="other")
    model = keras.Model(x, [shared(x), inner(x), other(x)])
    found = attention_weights(model, np.ones((2, 3, 4)))
    assert [weights.shape for weights in found["pooling"]] == [(2, 3)] * 2
    assert found["pooling_2"].shape == (2, 3)
    assert "call" not in vars(shared)


def test_a_model_that_is_compiled_by_itself():
    class Compiled(Own):
        def __init__(self):
            super().__init__()
            self.run = tf.function(super().call)

        def call(self, x):
            return self.run(x)

    model = Compiled()
    with pytest.raises(
        ValueError, match=r"\(inner, pooling\) gave numbers.*not in a function that is compiled"
    ):
        attention_weights(model, np.ones((2, 3, 4), "float32"))
    model(np.ones((2, 3, 4), "float32"))
    assert "call" not in vars(model.pooling)


def test_a_model_without_attention():
    x = keras.Input((3,))
    model = keras.Model(x, keras.layers.Dense(2, name="dense")(x), name="plain")
    with pytest.raises(ValueError, match=r"plain: no layer .* layers: .*dense"):
        attention_weights(model, np.ones((1, 3)))


# --- TensorBoard ---------------------------------------------------------------------------------


def events(folder):
    """All images of a run: `{(tag, step): pixels}`."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    found = {}
    for file in folder.iterdir():
        for event in EventFileLoader(str(file)).Load():
            for value in event.summary.value:
                png = value.tensor.string_val[2]
                found[value.tag, event.step] = tf.io.decode_png(png).numpy()
    return found


def test_maps_in_tensorboard(tmp_path):
    model = translator()
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    inputs = [np.array([[3, 4, 0], [7, 8, 9]]), np.array([[5, 6], [1, 2]])]
    callback = AttentionMapCallback(
        tmp_path,
        inputs,
        sources=[["das", "Haus"], ["a", "b", "c"]],
        targets=[["the", "house"], ["x", "y"]],
        every=2,
    )
    model.fit(inputs, inputs[1], epochs=4, verbose=0, callbacks=[callback])
    found = events(tmp_path)
    assert set(found) == {(f"attention/{n}", step) for n in (0, 1) for step in (1, 3)}
    weights = attention_weights(model, inputs)["attention"][0, :, :2]
    figure = plot_attention(weights, ["das", "Haus"], ["the", "house"])
    figure.savefig(tmp_path / "map.png")
    expected = matplotlib.image.imread(tmp_path / "map.png") * 255
    np.testing.assert_allclose(found["attention/0", 3], expected, atol=1.5)


def test_a_training_that_diverges_goes_on(tmp_path):
    model = translator()
    model.compile("sgd", lambda _, x: keras.ops.sum(x) * float("nan"))
    inputs = [np.array([[3, 4]]), np.array([[5, 6]])]
    callback = AttentionMapCallback(tmp_path, inputs, [["a", "b"]], [["c", "d"]])
    with pytest.warns(RuntimeWarning, match="no map after epoch 1: weights must be finite"):
        model.fit(inputs, inputs[1], epochs=1, verbose=0, callbacks=[callback])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layer": "missing"}, "one of attention; received 'missing'"),
        ({"sources": [["a"]], "targets": [["b"]]}, "each of the 2 samples .* received 1"),
        ({"sources": [list("abcd")] * 2}, r"here \(2, 4\); received \(2, 3\)"),
        ({"targets": None}, r"expected weights \(samples, source\); received \(2, 2, 3\)"),
    ],
)
def test_maps_that_cannot_be_drawn_stop_before_training(options, message, tmp_path):
    model = translator()
    model.compile("sgd", "mse")
    inputs = [np.array([[3, 4, 0], [7, 8, 9]]), np.array([[5, 6], [1, 2]])]
    given = {"sources": [["a", "b"]] * 2, "targets": [["c", "d"]] * 2, **options}
    callback = AttentionMapCallback(tmp_path, inputs, **given)
    begun = []
    first = keras.callbacks.LambdaCallback(on_epoch_begin=lambda *_: begun.append(1))
    with pytest.raises(ValueError, match=message):
        model.fit(inputs, np.zeros((2, 2, 11)), verbose=0, callbacks=[callback, first])
    assert not begun


def test_bad_arguments_of_the_callback(tmp_path):
    with pytest.raises(ValueError, match="each of the 1 sources; received 2"):
        AttentionMapCallback(tmp_path, [], [["a"]], [["b"], ["c"]])
    with pytest.raises(ValueError, match="positive integer, at most 1048576; received 0"):
        AttentionMapCallback(tmp_path, [], [["a"]], every=0)
    with pytest.raises(ValueError, match="layer: the name of a layer, or None; received 0"):
        AttentionMapCallback(tmp_path, [], [["a"]], layer=0)
    with pytest.raises(ValueError, match="log_dir: a folder; received None"):
        AttentionMapCallback(None, [], [["a"]])


SOURCE, TARGET, WEIGHTS = ["das", "Haus"], ["the", "house"], [[0.9, 0.1], [0.2, 0.8]]
ONE_STRING = r"must be a list of tokens; received the string 'das Haus'\. Write .*\.split\(\)\."
MISTAKES = {
    "source in one string": (lambda: plot_attention(WEIGHTS, "das Haus", TARGET), ONE_STRING),
    "target in one string": (lambda: plot_attention(WEIGHTS, SOURCE, "das Haus"), ONE_STRING),
    "bytes in one string": (
        lambda: plot_attention(WEIGHTS, b"das Haus", TARGET),
        r"source must be a list of tokens; received the string b'das Haus'",
    ),
    "tokens in one string": (lambda: highlight("das Haus", [0.9, 0.1]), ONE_STRING),
    "memories in one string": (
        lambda: plot_hops(Hops("das Haus", WEIGHTS)),
        r"memories must be a list of strings; received the string 'das Haus'",
    ),
    "sources in one string": (
        lambda: AttentionMapCallback("logs", [], "das Haus"),
        r"sources must be a list of lists of tokens; received 'das Haus'",
    ),
    "sources of one sample": (
        lambda: AttentionMapCallback("logs", [], SOURCE),
        r"sources\[0\] must be a list of tokens; received the string 'das'",
    ),
    "targets of one sample": (
        lambda: AttentionMapCallback("logs", [], [SOURCE] * 2, TARGET),
        r"targets\[0\] must be a list of tokens; received the string 'the'",
    ),
    "swapped weights and source": (
        lambda: plot_attention(SOURCE, WEIGHTS),
        r"weights must be numbers; received \['das', 'Haus'\]",
    ),
    "swapped weights and tokens": (
        lambda: highlight([0.9, 0.1], SOURCE),
        r"weights must be numbers; received \['das', 'Haus'\]",
    ),
    "no weights": (
        lambda: plot_attention(None, SOURCE, TARGET),
        "weights must be numbers; received None",
    ),
    "rows of several lengths": (
        lambda: plot_attention([[1.0], [0.5, 0.5]], SOURCE, TARGET),
        r"weights must be numbers; received \[\[1.0\], ",
    ),
    "symbolic weights": (
        lambda: plot_attention(keras.Input((2,)), SOURCE, TARGET),
        "weights must be numbers; received <KerasTensor",
    ),
    "outputs and weights": (
        lambda: plot_attention((np.ones((1, 2, 5)), np.array([WEIGHTS])), SOURCE, TARGET),
        r"weights must be numbers; received a tuple of 2 .* Pass the second of \(output, weights\)",
    ),
    "a flag as largest": (
        lambda: plot_attention(WEIGHTS, SOURCE, TARGET, largest=True),
        "largest must be a positive number or None; received True",
    ),
    "a list of hops": (
        lambda: plot_hops([Hops(SOURCE, WEIGHTS)]),
        r"received list\. Write plot_hops\(\*samples\)",
    ),
    "one fact": (
        lambda: plot_hops(Hops(SOURCE, WEIGHTS, facts=0)),
        "facts: a list of numbers of memories; received 0",
    ),
    "facts in words": (
        lambda: plot_hops(Hops(SOURCE, WEIGHTS, facts=["das"])),
        r"facts: \['das'\] are no numbers of the 2 memories",
    ),
    "weights of a layer": (
        lambda: attention_weights(AttentionPooling(5), np.ones((2, 4, 3))),
        r"attention_pooling.* Call the layer with return_attention_scores=True",
    ),
    "weights of no model": (
        lambda: attention_weights(np.ones((2, 4, 3)), translator()),
        r"model must be a keras.Model; received ndarray\. Call attention_weights\(model, inputs\)",
    ),
    "weights of a class": (
        lambda: attention_weights(keras.Model, np.ones((2, 4, 3))),
        "model must be a keras.Model; received the class Model",
    ),
}


@pytest.mark.parametrize(("call", "message"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes(call, message):
    with pytest.raises(ValueError, match=message):
        call()
