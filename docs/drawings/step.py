"""Drawings of one step of an attention, row by row."""

import numpy as np
from canvas import LINE, WIDTH, Drawing, letters


class Step(Drawing):
    """What one step computes, from top to bottom, with a column for every memory step."""

    LEFT = 76  # the centre of the names
    FIRST, LAST = 165, 470  # where the columns are

    def __init__(self, columns=6):
        super().__init__(900)
        edges = np.linspace(self.FIRST, self.LAST, columns + 1)
        self.xs = (edges[:-1] + edges[1:]) / 2
        self.column = edges[1] - edges[0]
        self.middle = (self.FIRST + self.LAST) / 2
        self.y = 16  # where the next row begins
        self.rows = 0

    def name(self, y, text, kind, h=34):
        self.box(self.LEFT, y, text, kind, w=128, h=h, size=12)

    def space(self, arrows=True, kind="plain", length=16):
        """The gap above a row, with an arrow in every column."""
        if self.rows:
            for x in self.xs if arrows else ():
                self.arrow((x, self.y + 2), (x, self.y + length - 1), kind=kind, width=0.9)
            self.y += length if arrows else 8
        self.rows += 1

    def steps(self, name, kind, labels, arrows=False, h=34):
        """A vector for each memory step."""
        self.space(arrows)
        y = self.y + h / 2
        self.name(y, name, kind, h)
        self.cells(self.xs, y, labels, kind, w=self.column - 8)
        self.y += h

    def numbers(self, name, kind, values, arrows=True, h=52, largest=None, numbers=False):
        """A number for each memory step."""
        self.space(arrows)
        self.name(self.y + h / 2, name, kind, 40)
        tall = h - (20 if numbers else 4)
        wide = min(26, self.column * 0.66)
        self.bars(self.xs, self.y + h - 2, values, kind, tall, wide, largest, numbers)
        self.y += h

    def operation(self, text, left=None, kind="plain", arrows=True, h=30, size=12.5):
        """What joins the columns; `left` names a tensor that all columns share."""
        self.space(arrows)
        y = self.y + h / 2
        self.box(self.middle, y, text, kind, self.LAST - self.FIRST, h, size)
        if left:
            text, left_kind = left
            self.name(y, text, left_kind, max(h, 34))
            self.arrow((141, y), (self.FIRST - 1, y), kind=left_kind)
        self.y += h

    def result(self, text, kind="context", w=200, h=30):
        self.space(False)
        self.y += 8
        self.arrow((self.middle, self.y - 15), (self.middle, self.y - 1))
        self.box(self.middle, self.y + h / 2, text, kind, w, h)
        self.y += h

    def note(self, text):
        self.y += 8
        self.text(WIDTH / 2, self.y + 8, text, 11.5, LINE)
        self.y += 18

    def keys(self):
        """A memory whose states are keys and values at once."""
        self.steps(r"keys = values $h_j$", "key", letters("h", len(self.xs)))

    def last_weights(self, weights, largest=1):
        """The state of an attention that remembers its last weights."""
        name = "state: the last\nweights $a_{i-1}$"
        self.numbers(name, "state", weights, False, largest=largest)

    def weights(self, weights, largest=None, numbers=True, h=52):
        self.numbers(r"weights $a_{ij}$", "weights", weights, True, h, largest, numbers)

    def softmax(self, weights, largest=None, numbers=True):
        self.operation("softmax over the memory")
        self.weights(weights, largest, numbers)

    def read(self, values=True):
        """The context; `values` names what is summed."""
        text = r"sum of the values by their weights"
        self.operation(text, (r"values $h_j$", "value") if values else None)
        self.result(r"context $c_i$")

    def save(self, name):
        self.resize(self.y + 16)
        super().save(name)
