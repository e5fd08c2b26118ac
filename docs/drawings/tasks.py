"""Attentions for bags, series, patients and sessions."""

import numpy as np
from canvas import LINE, Drawing, letters, softmax
from step import Step

__all__ = ["feature", "pooling", "retain", "target"]


def pooling():
    step = Step()
    step.steps("instances $h_t$", "value", letters("h", 6))
    learned = "learned\nquery $u_q$", "query"
    step.operation(r"$u_q \cdot (\tanh(W h_t)\ \circ\ \sigma(V h_t))$", learned, "score", h=36)
    step.operation("softmax over the bag")
    weights = softmax(np.array([0.3, 3.1, 0.1, 0.4, 2.4, 0.2]))
    step.numbers(r"weights $a_t$", "weights", weights, numbers=True)
    step.operation("sum of the instances by their weights", ("instances $h_t$", "value"))
    step.result("vector $s$ of the bag")
    return step


def target():
    step = Step(5)
    step.steps(r"clicked items $k_j$", "key", letters("k", 5))
    asked = "candidate $q$", "query"
    step.operation(r"network over $[q;\ k_j;\ q - k_j;\ q \circ k_j]$", asked, "score")
    weights = np.array([0.1, 0.9, 0.8, 0.05, 0.7])
    step.numbers("weights $a_j$,\nnot normalised", "weights", weights, True, 58, 1.1, True)
    step.operation("sum of the items by their weights", (r"items $k_j$", "value"))
    step.result("interest $c$ in the candidate", w=220)
    return step


def feature():
    drawing = Drawing(392)
    weights = softmax(np.array([2.2, 0.3, 1.5, 0.1]))
    xs, time = 170 + 84 * np.arange(4), np.linspace(-26, 26, 12)
    rng = np.random.default_rng(5)
    drawing.text(72, 52, "series $x_k$,\ntheir history")
    for n, x in enumerate(xs):
        drawing.rounded(x, 52, 70, 52, "#ffffff", LINE)
        drawing.axes.plot(x + time, 52 + np.cumsum(rng.normal(0, 5, 12)).clip(-20, 20), color=LINE)
        drawing.arrow((x, 80), (x, 98))
        drawing.arrow((x, 132), (x, 148))
        drawing.arrow((x, 222), (x, 238))
        drawing.box(x, 254, f"$a_{{t,{n + 1}}}\\, x_{{t,{n + 1}}}$", "context", 76)
        drawing.arrow((x, 270), (x, 290))
    drawing.box(296, 115, r"$v \cdot \tanh(W s_{t-1} + U x_k)$, then a softmax", "score", 330, 32)
    drawing.text(82, 192, "weights $a_{t,k}$\nof this step")
    drawing.bars(xs, 218, weights, "weights", 46, 34, numbers=True)
    drawing.text(82, 254, "weighted\nvalues")
    drawing.box(296, 308, "recurrent cell", w=330, h=32)
    drawing.arrow((131, 308), (24, 308), (24, 131), kind="state")
    drawing.box(72, 115, "state $s_{t-1}$", "state", 110)
    drawing.arrow((128, 115), (130, 115), kind="state")
    drawing.arrow((296, 325), (296, 346))
    drawing.box(296, 361, "encoded step $s_t$", "state", 160)
    return drawing


def retain():
    drawing = Drawing(430)
    xs = 170 + 84 * np.arange(4)
    drawing.text(72, 34, "visits, by\ntheir codes")
    drawing.cells(xs, 34, [f"$v_{n}$" for n in range(1, 5)], "value", 60, 28)
    for y, name in ((90, "recurrence $g$"), (222, "recurrence $h$")):
        drawing.text(72, y, f"{name},\nfrom the last visit")
        for n, x in enumerate(xs):
            drawing.box(x, y, "", "state", 52, 26)
            if n:
                drawing.arrow((x - 26, y), (xs[n - 1] + 26, y), kind="state")
            drawing.arrow((x, y + 14), (x, y + 30))
    for x in xs:
        drawing.arrow((x, 48), (x, 76))
    drawing.text(72, 150, "a weight $a_i$\nfor each visit")
    drawing.bars(xs, 172, softmax(np.array([0.1, 0.9, 2.4, 0.5])), "weights", 34, 34, numbers=True)
    drawing.text(72, 276, "gates $z_i$, one\nfor each feature")
    gates = np.array([[0.2, 0.9, 0.1], [0.7, 0.1, 0.2], [0.1, 0.2, 0.95], [0.5, 0.4, 0.1]])
    for x, row in zip(xs, gates, strict=True):
        drawing.grid(x - 33, 258, row[None], 22, "score")
        drawing.arrow((x, 290), (x, 314))
    drawing.box(296, 331, r"sum of $a_i\ z_i \circ v_i$", "context", 330, 32)
    drawing.arrow((296, 348), (296, 370))
    drawing.box(296, 386, r"logit $y$", "plain", 100)
    drawing.text(240, 414, "the sum is linear in the visits: each code has its share", 11.5, LINE)
    return drawing
