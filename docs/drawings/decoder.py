"""Attention inside a decoder, and the heads that read its weights."""

import numpy as np
from canvas import COLOURS, LINE, Drawing, letters, softmax
from step import Step

__all__ = [
    *("attention_after", "attention_before", "hard", "heads", "pointer", "recurrence"),
    *("residual_cells", "sources"),
]


def attention(drawing, x, y, w):
    """Score, weights and context, one below the other."""
    drawing.box(x, y, "score", "score", w)
    drawing.arrow((x, y + 16), (x, y + 38))
    drawing.box(x, y + 54, "softmax: weights $a_i$", "weights", w)
    drawing.arrow((x, y + 70), (x, y + 92))
    drawing.box(x, y + 108, "context $c_i$", "context", w)


def attention_before():
    drawing = Drawing(420)
    xs = 246 + 56 * np.arange(4)
    middle = 330
    drawing.box(70, 34, "memory", "value", 100)
    drawing.cells(xs, 34, letters("h", 4), "value", 46)
    drawing.arrow((middle, 50), (middle, 76))
    attention(drawing, middle, 92, 220)
    drawing.arrow((middle, 216), (middle, 262))
    drawing.box(70, 92, "state $s_{i-1}$", "query", 100)
    drawing.arrow((121, 92), (219, 92), kind="query")
    drawing.text(170, 81, "query", 11.5, COLOURS["query"][1])
    drawing.arrow((70, 108), (70, 272), (219, 272), kind="query")
    drawing.box(110, 310, "input $x_i$", w=100)
    drawing.arrow((161, 310), (190, 310), (190, 290), (219, 290))
    drawing.box(middle, 281, "cell: GRU, LSTM, ...", w=220, h=36)
    drawing.text(middle + 8, 240, "an input of the cell", 11.5, LINE, ha="left")
    drawing.arrow((middle, 300), (middle, 328))
    drawing.box(middle, 344, "output $s_i$", "query", 220)
    drawing.text(240, 388, 'query="previous" (Bahdanau): attention before the cell', 12, LINE)
    return drawing


def attention_after():
    drawing = Drawing(456)
    xs = 270 + 52 * np.arange(4)
    middle = 348
    drawing.box(58, 34, "input $x_i$", w=92)
    drawing.box(166, 34, r"fed $\tilde{h}_{i-1}$", "context", 92, dashed=True)
    drawing.cells(xs, 34, letters("h", 4), "value", 44)
    drawing.text(348, 60, "memory", 11.5, COLOURS["value"][1])
    drawing.arrow((70, 50), (96, 100))
    drawing.arrow((160, 50), (128, 100), dashed=True, kind="context")
    drawing.box(112, 118, "cell", w=140, h=34)
    drawing.box(40, 70, "$s_{i-1}$", "query", 50, 24, 12)
    drawing.arrow((40, 83), (56, 100), kind="query")
    drawing.arrow((112, 136), (112, 158))
    drawing.box(112, 174, "output $s_i$", "query", 140)
    drawing.arrow((183, 174), (252, 174), kind="query")
    drawing.text(217, 163, "query", 11.5, COLOURS["query"][1])
    drawing.arrow((middle, 70), (middle, 157))
    attention(drawing, middle, 174, 190)
    drawing.arrow((middle, 298), (middle, 334))
    drawing.arrow((112, 190), (112, 352), (206, 352), kind="query")
    drawing.box(318, 352, r"$\tilde{h}_i = \tanh(W_c\,[c_i; s_i])$", "context", 222, 34)
    drawing.arrow((430, 352), (464, 352), dashed=True, kind="context")
    drawing.text(466, 382, "input feeding: to the next step", 11.5, LINE, ha="right")
    drawing.text(240, 424, 'query="current" (Luong): attention after the cell', 12, LINE)
    return drawing


def residual_cells():
    drawing = Drawing(190)
    y = 96
    drawing.text(26, y, "$x$", 13)
    for n, x in enumerate((96, 236, 376)):
        drawing.box(x, y, f"cell {n + 1}", w=66, h=34)
        drawing.arrow((x - 56, y), (x - 34, y))
        drawing.text(x + 62, y, "+" if n else "", 15)
        drawing.arrow((x, 48), (x, 78), kind="state")
        drawing.arrow((x, 114), (x, 146), kind="state")
        drawing.text(x, 38, "state", 11.5, COLOURS["state"][1])
        drawing.text(x, 158, "next state", 11.5, COLOURS["state"][1])
        if n:
            drawing.rounded(x + 62, y, 20, 20, "white", LINE, 10, 3)
            drawing.arrow((x + 34, y), (x + 51, y))
            drawing.arrow((x - 46, y), (x - 46, 66), (x + 62, 66), (x + 62, 85), kind="context")
    drawing.arrow((130, y), (180, y), head=False)
    drawing.arrow((308, y), (322, y), head=False)
    drawing.arrow((448, y), (472, y))
    return drawing


def hard():
    step = Step(4)
    words = np.array([[0.8, 0.1, 0.1], [0.1, 0.7, 0.2], [0.05, 0.1, 0.85], [0.3, 0.4, 0.3]])
    weights = np.array([0.07, 0.8, 0.1, 0.03])
    step.steps("memory $h_j$", "value", letters("h", 4))
    step.operation("what the model says if it reads $j$", (r"output $s_i$", "query"))
    step.space()
    step.name(step.y + 26, "$p(y\\,|\\,h_j, s_i)$\ntokens A B C", "score", 40)
    for x, row in zip(step.xs, words, strict=True):
        step.bars(x + np.array([-18, 0, 18]), step.y + 50, row, "score", 44, 15, 1)
    step.y += 52
    step.weights(weights, h=58)
    step.operation(r"sum over $j$ of $a_{ij}\ p(y\,|\,h_j, s_i)$")
    step.space(False)
    step.y += 12
    xs = step.middle + np.array([-40, 0, 40])
    step.arrow((step.middle, step.y - 18), (step.middle, step.y - 4))
    step.bars(xs, step.y + 58, weights @ words, "context", 44, 28, 1, True)
    step.cells(xs, step.y + 74, "ABC", "plain", 28, 22)
    step.name(step.y + 34, "$p(y)$", "context")
    step.y += 86
    return step


def pointer():
    drawing = Drawing(478)
    words = ["the", "sat", "[UNK]", "ocelot"]
    xs = 196 + 72 * np.arange(4)
    generate, copy, gate = np.array([0.3, 0.25, 0.45, 0]), np.array([0.1, 0.15, 0, 0.75]), 0.35
    drawing.box(76, 42, "output $s_i$", "query", 128)
    drawing.box(76, 92, "context $c_i$", "context", 128)
    drawing.arrow((141, 42), (200, 42), kind="query")
    drawing.arrow((141, 92), (172, 92), (172, 52), (200, 52), kind="context")
    drawing.box(325, 46, "two Dense layers, softmax", w=248)
    drawing.arrow((304, 62), (304, 78))
    drawing.bars(xs, 138, generate, "score", 44, 34, 0.8, True)
    drawing.text(462, 92, "$P_{vocabulary}$", 12, ha="right")
    drawing.box(76, 170, "input $x_i$", "plain", 128)
    drawing.arrow((141, 170), (198, 170))
    drawing.box(
        325, 170, r"gate $g = \sigma(w \cdot [s_i; c_i; x_i] + b)$" f" = {gate}", "state", 250
    )
    drawing.box(76, 222, "weights $a_{ij}$\nsource words", "weights", 128, 42)
    drawing.bars(xs, 266, copy, "weights", 44, 34, 0.8, True)
    drawing.arrow((141, 222), (168, 222), kind="weights")
    drawing.text(462, 216, "$P_{copy}$", 12, ha="right")
    drawing.arrow((304, 272), (304, 292))
    drawing.box(304, 308, r"$P = g\,P_{vocabulary} + (1 - g)\,P_{copy}$", w=290, h=32)
    drawing.arrow((304, 326), (304, 342))
    drawing.bars(xs, 408, gate * generate + (1 - gate) * copy, "context", 50, 34, 0.8, True)
    drawing.cells(xs, 428, words, "plain", 66, 26)
    drawing.box(76, 386, "$P(y)$", "context", 128)
    drawing.text(304, 456, "the vocabulary lacks “ocelot”; the source has it", 11.5, LINE)
    return drawing


def recurrence():
    """The passes of a recurrence: forward, backward, and the weights after the loop."""
    drawing = Drawing(372)
    xs = 128 + 86 * np.arange(4)
    drawing.text(46, 52, "forward", 12, LINE)
    drawing.text(46, 134, "stored", 12, LINE)
    drawing.text(46, 216, "backward", 12, LINE)
    for n, x in enumerate(xs, 1):
        drawing.box(x, 52, f"$h_{n - 1} W$", "query", 62)
        drawing.arrow((x, 68), (x, 118))
        drawing.box(x, 134, f"$h_{n - 1}$", "value", 62)
        drawing.box(x, 216, f"$g_{n}$", "weights", 62)
        drawing.arrow((x, 150), (x, 200))
        if n < len(xs):
            drawing.arrow((x + 32, 52), (x + 54, 52), kind="query")
            drawing.arrow((x + 54, 216), (x + 32, 216), kind="weights")
    drawing.rounded(xs.mean(), 134, 340, 46, "none", COLOURS["value"][1], dashed=True)
    drawing.rounded(xs.mean(), 216, 340, 46, "none", COLOURS["weights"][1], dashed=True)
    middle = xs.mean()
    drawing.arrow(
        (xs[-1] + 42, 134),
        (xs[-1] + 66, 134),
        (xs[-1] + 66, 300),
        (middle + 142, 300),
        kind="value",
    )
    drawing.arrow((middle, 240), (middle, 282), kind="weights")
    drawing.box(middle, 300, r"gradient of $W = \sum_t h_{t-1}^\top g_t$", "context", 282, 34)
    drawing.text(240, 346, "after the loop: one large product in place of T small ones", 12, LINE)
    return drawing


def heads():
    drawing = Drawing(330)
    drawing.box(70, 34, "query $q_i$", "query", 100)
    memory = 246 + 56 * np.arange(4)
    drawing.cells(memory, 34, letters("h", 4), "value", 46)
    drawing.text(176, 34, "memory", 11.5, COLOURS["value"][1])
    scores = np.array([[2, 0, 0, -1], [-1, 0, 2, 1], [0, 1.5, 0, 1]])
    for n, (x, row) in enumerate(zip((94, 240, 386), scores, strict=True), 1):
        drawing.arrow((330, 50), (330, 62), (x + 16, 62), (x + 16, 90), kind="value")
        drawing.arrow((70, 50), (70, 74), (x - 16, 74), (x - 16, 90), kind="query")
        drawing.box(x, 106, f"head {n}", "score", 116)
        drawing.arrow((x, 122), (x, 140))
        drawing.bars(
            x + 28 * np.array([-1.5, -0.5, 0.5, 1.5]), 186, softmax(row), "weights", 40, 18
        )
        drawing.arrow((x, 190), (x, 208))
        drawing.box(x, 224, f"$c_{{{n},i}}$", "context", 76)
        drawing.arrow((x, 240), (x, 262))
    drawing.box(240, 279, r"$o_i = O\,[c_{1,i};\ c_{2,i};\ c_{3,i}]$", "context", 408, 32)
    drawing.text(240, 312, "each head reads its own part of the features", 11.5, LINE)
    return drawing


def sources():
    drawing = Drawing(352)
    drawing.box(240, 34, "query $q_i$", "query", 96)
    scores = np.array([0.0, 2, 1, -1]), np.array([2.0, 0])
    for n, (x, row) in enumerate(zip((118, 362), scores, strict=True), 1):
        xs = x + 48 * (np.arange(len(row)) - (len(row) - 1) / 2)
        drawing.cells(xs, 92, [f"$h^{n}_{j}$" for j in range(1, len(row) + 1)], "value", 40)
        drawing.text(x, 66, f"memory {n}", 11.5, COLOURS["value"][1])
        drawing.arrow((x, 106), (x, 130), kind="value")
        side = 76 if n == 1 else -76
        drawing.arrow((240, 50), (240, 146), (x + side, 146), kind="query")
        drawing.box(x, 146, f"attention {n}", "score", 150)
        drawing.arrow((x, 162), (x, 180))
        drawing.bars(xs, 232, softmax(row), "weights", 46, 26)
        drawing.arrow((x, 236), (x, 252))
        drawing.box(x, 268, f"$c_{{{n},i}}$", "context", 90)
        drawing.arrow((x, 284), (x, 304))
    drawing.box(240, 320, r"$o_i = [c_{1,i};\ c_{2,i}]$", "context", 400, 32)
    return drawing
