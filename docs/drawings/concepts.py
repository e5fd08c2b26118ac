"""The concepts: words, steps, masks and states."""

import itertools

import numpy as np
from canvas import COLOURS, LINE, Drawing, letters, softmax
from step import Step

__all__ = ["encoder_decoder", "masks", "state", "steps", "with_attention", "words"]

SOURCE = ["das", "Haus", "ist", "klein"]
TARGET = ["the", "house", "is", "small"]


def recurrent(drawing, y, xs, labels, kind, under=None, w=52):
    """The states of a recurrent network, with the words that it reads."""
    drawing.cells(xs, y, labels, kind, w, 30)
    for a, b in itertools.pairwise(xs):
        drawing.arrow((a + w / 2 + 1, y), (b - w / 2 - 2, y))
    if under:
        for x, word in zip(xs, under, strict=True):
            drawing.text(x, y - 44, word, 12)
            drawing.arrow((x, y - 34), (x, y - 16))


def encoder(drawing, xs):
    drawing.text(24, 24, "encoder", 12, LINE, ha="left")
    recurrent(drawing, 92, xs, letters("h", 4), "value", SOURCE)


def translation(drawing, y, xs, end):
    """The words that a decoder at y predicts."""
    for x, word in zip(xs, TARGET, strict=True):
        drawing.arrow((x, y + 16), (x, end))
        drawing.text(x, end + 12, word, 12)


def gather(drawing, xs, y, weights, x0, y0):
    """Arrows from the memory steps to their sum, as thick as their weights."""
    for x, weight in zip(xs, weights, strict=True):
        drawing.arrow((x, y), (x0 + (x - x0) * 0.25, y0), kind="value", width=0.7 + 3 * weight)


def encoder_decoder():
    drawing = Drawing(300)
    xs = 66 + 88 * np.arange(4)
    encoder(drawing, xs)
    drawing.arrow((xs[-1] + 27, 92), (420, 92), (420, 150), (66, 150), (66, 184))
    drawing.text(240, 140, "one vector for the whole sentence", 12)
    drawing.text(472, 202, "decoder", 12, LINE, ha="right")
    recurrent(drawing, 202, xs, letters("s", 4), "query")
    translation(drawing, 202, xs, 244)
    drawing.text(240, 282, "without attention", 11.5, LINE)
    return drawing


def with_attention():
    drawing = Drawing(372)
    xs = 66 + 88 * np.arange(4)
    weights = softmax(np.array([0.7, 3.0, 0.5, 0.3]))
    encoder(drawing, xs)
    drawing.text(472, 92, "memory", 12, COLOURS["value"][1], ha="right")
    drawing.bars(xs, 166, weights, "weights", 40, 34, 1, True)
    drawing.text(472, 150, "weights", 12, COLOURS["weights"][1], ha="right")
    gather(drawing, xs, 170, weights, 154, 206)
    drawing.box(154, 222, "context $c_2$", "context", 112)
    drawing.arrow((154, 238), (154, 260))
    drawing.text(472, 276, "decoder", 12, LINE, ha="right")
    recurrent(drawing, 276, xs, letters("s", 4), "query")
    drawing.arrow((66, 261), (66, 186), kind="query", dashed=True)
    drawing.text(57, 222, "query", 11, COLOURS["query"][1], ha="right")
    translation(drawing, 276, xs, 316)
    drawing.text(240, 353, "with attention: each step reads its own context", 11.5, LINE)
    return drawing


def words():
    step = Step(4)
    scores = np.array([0.7, 3.0, 0.5, 0.3])
    step.steps("memory:\nencoder states", "value", SOURCE, h=40)
    step.steps("keys $k_j$", "key", letters("k", 4), True)
    step.operation(
        "compare the query with each key", ("query $q$:\nthe decoder", "query"), "score", h=36
    )
    step.numbers("scores $e_j$", "score", scores, numbers=True, h=60)
    step.operation("softmax: positive, sums to one")
    step.numbers("weights $a_j$", "weights", softmax(scores), numbers=True, h=60)
    step.steps("values $v_j$", "value", letters("v", 4), True)
    step.operation(r"$a_1 v_1 + a_2 v_2 + a_3 v_3 + a_4 v_4$")
    step.result("context $c$: mostly “Haus”", w=230)
    return step


def masks():
    drawing = Drawing(388)
    rng = np.random.default_rng(1)
    scores = rng.normal(0, 1, (4, 5))
    value = np.ones((4, 5), bool) & (np.arange(5) < 3)
    query = np.ones((4, 5), bool) & (np.arange(4) < 3)[:, None]
    causal = np.arange(5) <= np.arange(4)[:, None]
    pair = np.ones((4, 5), bool)
    pair[1], pair[0, 1:3], pair[3, 0] = False, False, False
    panels = [
        ("value_mask", "padding of the memory:\nnever read", value, value),
        ("query_mask", "padding of the query:\nthe output is zero", query, query),
        ("use_causal_mask", "step i reads\nmemory steps 0 to i", causal, causal),
        ("attention_mask", "single pairs; a row with\nnothing valid is zero", pair, pair),
    ]
    for n, (name, text, kept, output) in enumerate(panels):
        x, y = 56 + 228 * (n % 2), 48 + 190 * (n // 2)
        powers = np.where(kept, np.exp(scores), 0)
        weights = powers / np.maximum(powers.sum(1, keepdims=True), 1e-9)
        drawing.text(x + 55, y - 24, name, 12.5, weight="bold")
        drawing.text(x - 10, y + 44, "query", 11, COLOURS["query"][1], rotation=90)
        drawing.text(x + 55, y - 8, "memory", 11, COLOURS["value"][1])
        drawing.grid(x, y, weights / max(weights.max(), 1e-9), 22, kept=kept)
        for i in range(4):
            zero = not output[i].any()
            drawing.arrow((x + 112, y + 11 + 22 * i), (x + 126, y + 11 + 22 * i), width=0.8)
            drawing.box(
                x + 144,
                y + 11 + 22 * i,
                "0" if zero else "$c$",
                "plain" if zero else "context",
                32,
                17,
                11,
            )
        drawing.text(x + 76, y + 110, text, 11, LINE)
    return drawing


def state():
    drawing = Drawing(316)
    drawing.box(76, 46, "initial_state\n(memory)", "state", 116, 42, 12)
    centres = 176, 368
    for n, x in enumerate(centres):
        i = n + 1
        drawing.box(x + 14, 148, f"attention, step {i}", w=140, h=40)
        drawing.box(x + 14, 76, f"query $q_{i}$", "query", 84, 28, 12)
        drawing.arrow((x + 14, 91), (x + 14, 127), kind="query")
        drawing.arrow((x - 24, 169), (x - 24, 198), kind="weights")
        drawing.arrow((x + 52, 169), (x + 52, 198), kind="context")
        drawing.box(x - 28, 213, f"weights $a_{i}$", "weights", 82, 28, 11.5)
        drawing.box(x + 56, 213, f"output $c_{i}$", "context", 76, 28, 11.5)
    drawing.arrow((76, 68), (76, 148), (119, 148), kind="state")
    drawing.arrow((261, 148), (311, 148), kind="state")
    drawing.text(286, 136, "$z_1$", 12)
    drawing.text(100, 136, "$z_0$", 12)
    drawing.arrow((453, 148), (474, 148), kind="state")
    drawing.text(463, 136, "$z_2$", 12)
    drawing.text(240, 248, r"$z_i$ = next_state($z_{i-1}$, $a_i$)", 12.5)
    drawing.text(
        240,
        284,
        "In a decoder z travels with the states of the cells:\nin training, step and searches.",
        12,
        LINE,
    )
    return drawing


def steps():
    drawing = Drawing(430)
    xs = 190 + 58 * np.arange(5)
    weights = softmax(np.array([0.2, 0.3, 2.6, 1.2, 0.1]))
    ys = 104, 178, 268, 372
    texts = "ids to vectors", "vectors in context", "one vector", "the answer"
    for y, name in zip(ys, ("embed", "encode", "attend", "predict"), strict=True):
        drawing.text(20, y - 8, name, 14, ha="left", weight="bold")
    for y, text in zip(ys, texts, strict=True):
        drawing.text(20, y + 10, text, 11.5, LINE, ha="left")
    drawing.cells(xs, 40, ["the", "plot", "never", "works", "."], "plain", 52, 28)
    drawing.cells(xs, 104, [""] * 5, "key", 40, 30)
    recurrent(drawing, 178, xs, letters("h", 5), "value", w=38)
    for x in xs:
        drawing.arrow((x, 56), (x, 86))
        drawing.arrow((x, 121), (x, 161))
    drawing.bars(xs, 252, weights, "weights", 40, 30, numbers=False)
    gather(drawing, xs, 256, weights, 306, 286)
    drawing.box(306, 302, "context $c$", "context", 120)
    drawing.arrow((306, 318), (306, 354))
    drawing.box(306, 372, "Dense, softmax: “negative”", w=210, h=34)
    drawing.text(
        240, 412, "for a sequence: one query, one context, one prediction a step", 11.5, LINE
    )
    return drawing
