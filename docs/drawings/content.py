"""Attentions that compare a query with keys, and the models of one query."""

import numpy as np
from canvas import COLOURS, LINE, Drawing, letters, softmax
from matplotlib.patches import Rectangle
from step import Step

__all__ = ["bahdanau", "bidaf", "hierarchical", "luong", "memory"]


def positive(scores):
    """Scores with the smallest at a little above zero, to be drawn as bars."""
    return scores - np.min(scores) + 0.3


def bahdanau():
    step = Step()
    scores = np.array([0.2, 1.1, 2.9, 1.5, 0.3, -0.2])
    step.keys()
    step.operation(r"$v \cdot \tanh(W s_{i-1} + U h_j)$", (r"query $s_{i-1}$", "query"), "score")
    step.numbers(r"scores $e_{ij}$", "score", positive(scores))
    step.softmax(softmax(scores))
    step.read()
    return step


def luong():
    step = Step(9)
    scores = np.array([0.2, 1.0, 0.4, 1.2, 2.2, 2.5, 1.0, 0.1, 0.8])
    inside = (np.arange(9) >= 3) & (np.arange(9) <= 7)
    weights = np.where(inside, np.exp(scores), 0)
    weights /= weights.sum()
    gaussian = weights * np.exp(-((np.arange(9) - 5.3) ** 2) / 2)
    step.keys()
    step.operation("dot, general, concat or location", (r"query $s_i$", "query"), "score")
    step.numbers(r"scores $e_{ij}$", "score", positive(scores))
    step.operation("softmax inside the window\nlocal: $2D+1$ positions around $p_i$", h=44)
    step.weights(weights, 0.5, numbers=False)
    step.operation(r"local-p: $\times\ \exp(-(j - p_i)^2 / 2\sigma^2)$")
    step.numbers(r"weights read", "weights", gaussian, largest=0.5)
    step.read()
    step.result(r"with units: $\tanh(W_c\,[c_i; s_i])$", w=250)
    return step


def bidaf():
    drawing = Drawing(440)
    rng = np.random.default_rng(3)
    scores = rng.normal(0, 1, (6, 4))
    scores[2, 1] = scores[4, 3] = 3.2
    rows = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    best = softmax(scores.max(1))
    at = np.arange(6) * 22
    drawing.box(62, 34, "passage $h_t$", "key", 96)
    drawing.box(196, 34, "question $u_j$", "query", 108)
    drawing.text(240, 68, r"similarity $S_{tj} = w \cdot [h_t; u_j; h_t \circ u_j]$")
    shaded = (scores - scores.min()) / np.ptp(scores)
    for i, y in enumerate(at):
        drawing.box(62, 101 + y, f"$h_{i + 1}$", "key", 34, 19, 11)
    for j in range(4):
        drawing.text(130 + 22 * j + 11, 231, f"$u_{j + 1}$", 11)
    drawing.grid(130, 90, shaded, kind="score")
    drawing.arrow((224, 156), (286, 156))
    drawing.text(255, 144, "softmax", 12)
    drawing.text(255, 169, "of rows", 12)
    drawing.grid(292, 90, rows / rows.max(), kind="weights")
    drawing.text(336, 231, "weights $a_{tj}$", 11.5)
    for i, y in enumerate(at):
        width = 62 * best[i] / best.max()
        fill, stroke = COLOURS["weights"]
        drawing.axes.add_patch(
            Rectangle((398, 92 + y), width, 18, fc=fill, ec=stroke, lw=1, zorder=2)
        )
    drawing.axes.plot([398, 398], [90, 222], color=COLOURS["weights"][1], lw=1)
    drawing.text(428, 231, "weights $b_t$", 11.5)
    drawing.arrow((336, 244), (336, 266), (190, 266), (130, 284))
    drawing.arrow((428, 244), (428, 284), kind="plain")
    drawing.box(120, 302, r"$\tilde{u}_t$ = sum of $a_{tj} u_j$", "context", 170, 34)
    drawing.box(372, 302, r"$\tilde{h}$ = sum of $b_t h_t$", "context", 170, 34)
    drawing.text(120, 332, "what the question says\nabout this word", 11, LINE, va="top")
    drawing.text(372, 332, "the words that matter\nto the question", 11, LINE, va="top")
    drawing.arrow((200, 320), (222, 374))
    drawing.arrow((290, 320), (258, 374))
    drawing.box(
        240,
        394,
        r"$G_t = [h_t;\ \tilde{u}_t;\ h_t \circ \tilde{u}_t;\ h_t \circ \tilde{h}]$",
        w=300,
        h=38,
    )
    return drawing


def hierarchical():
    drawing = Drawing(470)
    sentences = [[0.6, 2.4, 0.2], [0.3, 0.4, 0.6], [2.2, 0.9, 0.1]]
    drawing.text(240, 22, "words of three sentences", 12, LINE)
    for s, scores in enumerate(sentences):
        centre = 84 + 156 * s
        xs = centre + np.array([-44, 0, 44])
        drawing.cells(xs, 48, [f"$x_{{{s + 1}{t}}}$" for t in (1, 2, 3)], "value", 38, 26, 11)
        drawing.arrow((centre, 64), (centre, 80))
        drawing.box(centre, 95, "word encoder", w=130, h=26, size=12)
        drawing.arrow((centre, 110), (centre, 124))
        drawing.bars(xs, 166, softmax(np.array(scores)), "weights", 38)
        drawing.arrow((centre, 170), (centre, 188))
        drawing.box(centre, 203, f"sentence $s_{s + 1}$", "context", 110, 28, 12)
        drawing.arrow((centre, 219), (centre, 236))
    drawing.box(240, 252, "sentence encoder", w=440, h=28, size=12)
    weights = softmax(np.array([1.2, 0.1, 2.3]))
    centres = 84 + 156 * np.arange(3)
    for x in centres:
        drawing.arrow((x, 268), (x, 284))
    drawing.bars(centres, 330, weights, "weights", 42, 34, numbers=False)
    for x in centres:
        drawing.arrow((x, 334), (240 + (x - 240) * 0.35, 370))
    drawing.box(240, 388, "vector of the document", "context", 200, 32)
    drawing.text(
        240,
        432,
        r"weights: softmax of $u \cdot \tanh(W h + b)$, with a learned"
        "\nquery $u$ for words and another for sentences",
        11.5,
        LINE,
    )
    return drawing


def memory():
    drawing = Drawing(488)
    xs = 170 + 62 * np.arange(5)
    drawing.text(84, 34, "story", 12, LINE)
    drawing.cells(xs, 34, [f"$x_{i}$" for i in range(1, 6)], "plain", 50, 26)
    drawing.box(62, 96, "question $q$", w=100)
    drawing.arrow((62, 112), (62, 138))
    drawing.text(72, 124, "$B$", 11, ha="left")
    hops = [np.array([0.2, 0.3, 0.2, 2.6, 0.1]), np.array([0.2, 2.7, 0.4, 0.2, 0.1])]
    for hop, scores in enumerate(hops):
        top = 66 + 160 * hop
        drawing.text(452, top + 10, f"hop {hop + 1}", 12, LINE, ha="right")
        drawing.cells(xs, top + 36, letters("m", 5), "key", 50, 26)
        drawing.box(62, top + 88, f"$u_{hop + 1}$", "query", 60)
        drawing.arrow((93, top + 88), (138, top + 88), kind="query")
        drawing.bars(xs, top + 108, softmax(scores), "weights", 42, 30, largest=0.9)
        drawing.text(452, top + 62, r"$p = \mathrm{softmax}(u \cdot m_i)$", 11, ha="right")
        drawing.cells(xs, top + 128, letters("c", 5), "value", 50, 26)
        drawing.arrow((142, top + 128), (112, top + 128), (112, top + 154), (74, top + 154))
        drawing.rounded(62, top + 154, 20, 20, "white", LINE, 10, 3)
        drawing.text(62, top + 154, "+", 14)
        drawing.arrow((62, top + 104), (62, top + 143), kind="query")
        drawing.text(122, top + 154, r"sum of $p_i c_i$", 11.5, ha="left")
        drawing.arrow((62, top + 165), (62, top + (186 if hop else 231)), kind="query")
    drawing.box(62, 429, "$u_3$", "query", 60)
    drawing.arrow((93, 429), (166, 429))
    drawing.box(250, 429, r"answer: softmax($W u_3$)", "context", 166)
    drawing.text(240, 465, "the second hop reads what the first one asks for", 11.5, LINE)
    return drawing
