"""Attentions that remember where they looked."""

import numpy as np
from canvas import softmax
from step import Step

__all__ = [
    "coverage",
    "dynamic_convolution",
    "forward",
    "gmm",
    "location_sensitive",
    "monotonic",
]


def location_sensitive():
    step = Step()
    past = np.array([0.05, 0.75, 0.2, 0, 0, 0])
    filtered = np.convolve(past, [0.25, 0.5, 0.25], "same")
    step.numbers("state $z_{i-1}$:\nsum of past weights", "state", past, False)
    step.operation("convolution over positions")
    step.numbers("features $f_{ij}$\nof the location", "state", filtered, largest=0.75)
    step.keys()
    step.operation(
        r"$v \cdot \tanh(W s_i + V h_j + U f_{ij} + b)$", (r"query $s_i$", "query"), "score"
    )
    scores = np.array([0.1, 0.5, 2.1, 0.9, 0.2, 0.1])
    step.softmax(softmax(scores))
    step.read(values=False)
    step.note("next state: $z_i = z_{i-1} + a_i$")
    return step


def coverage():
    step = Step()
    past = np.array([0.9, 0.85, 0.2, 0.05, 0, 0])
    content = np.array([0.3, 2.6, 0.8, 2.2, 0.4, 0.2])
    weights = softmax(content - 3 * past)
    step.numbers("coverage $z_{ij}$:\nsum of past weights", "state", past, False, largest=1)
    step.keys()
    step.operation(
        r"$v \cdot \tanh(W s_i + V h_j + w\,z_{ij} + b)$", (r"query $s_i$", "query"), "score"
    )
    step.softmax(weights, 1)
    step.operation(r"$\min(a_{ij}, z_{ij})$", arrows=True)
    step.numbers("loss: what is\nread twice", "score", np.minimum(weights, past), largest=1)
    step.note("context: sum of $a_{ij} h_j$;  next state: $z_i + a_i$")
    return step


def monotonic_rows(p, last):
    reach, stop = np.zeros(len(p)), np.zeros(len(p))
    for j in range(len(p)):
        reach[j] = last[j] + ((1 - p[j - 1]) * reach[j - 1] if j else 0)
        stop[j] = p[j] * reach[j]
    return reach, stop


def monotonic():
    step = Step()
    last = np.array([0, 0.9, 0.1, 0, 0, 0])
    p = np.array([0.05, 0.1, 0.15, 0.9, 0.7, 0.3])
    reach, stop = monotonic_rows(p, last)
    step.last_weights(last)
    step.keys()
    step.operation("sigmoid of an additive score", (r"query $s_i$", "query"), "score")
    step.numbers("$p_{ij}$: stop at $j$,\nonce it is reached", "score", p, largest=1)
    step.operation("walk to the right; at each $j$ stop or move on")
    step.numbers("$t_{ij}$: reaches $j$", "plain", reach, largest=1)
    step.operation(r"$a_{ij} = p_{ij}\, t_{ij}$")
    step.weights(stop, 1)
    step.read(values=False)
    step.note("next state: $a_i$")
    return step


def forward():
    step = Step()
    last = np.array([0.05, 0.75, 0.2, 0, 0, 0])
    moved = last + np.roll(last, 1)
    y = softmax(np.array([0.3, 0.6, 1.9, 0.4, 2.2, 0.2]))
    weights = moved * y / (moved * y).sum()
    step.last_weights(last)
    step.operation("stay, or move one step on")
    step.numbers("$m_{ij} = a_{i-1,j}$\n$+\\ a_{i-1,j-1}$", "state", moved, largest=1)
    step.operation("additive score, softmax", (r"query $s_i$", "query"), "score", arrows=False)
    step.numbers(r"$y_{ij}$: content", "score", y, largest=0.5)
    step.operation(r"$m_{ij}\, y_{ij}$, divided by their sum")
    step.weights(weights, 1)
    step.read()
    step.note("next state: $a_i$.  $h_5$ fits the query best, but is too far away.")
    return step


def gmm():
    step = Step(12)
    at = np.arange(12)

    def bump(centre, width, weight=1.0):
        return weight * np.exp(-((at - centre) ** 2) / (2 * width**2)) / width / np.sqrt(2 * np.pi)

    step.numbers("state: centres\n$\\mu_{i-1,k}$", "state", bump(3, 1.1, 0.6), False, largest=0.4)
    step.operation(
        r"$w, d, \sigma$ = network of the query;  $\mu_i = \mu_{i-1} + d$",
        (r"query $s_i$", "query"),
        size=12,
    )
    step.numbers("Gaussian 1", "score", bump(5, 1.1, 0.6), largest=0.4)
    step.numbers("Gaussian 2", "score", bump(6.5, 1.6, 0.4), False, largest=0.4)
    step.operation("sum over the Gaussians")
    weights = bump(5, 1.1, 0.6) + bump(6.5, 1.6, 0.4)
    step.weights(weights, 0.4, numbers=False)
    step.read()
    step.note("next state: $\\mu_i$.  No score compares the keys.")
    return step


def dynamic_convolution():
    step = Step(9)
    last = np.array([0.02, 0.1, 0.7, 0.18, 0, 0, 0, 0, 0])
    prior = np.convolve(last, [0.62, 0.2, 0.1, 0.05, 0.03])[:9]
    weights = softmax(np.log(np.maximum(prior, 1e-6)) + np.array([0, 0, 0.3, 2, 1, 0, 0, 0, 0]))
    query = r"query $s_i$", "query"
    step.last_weights(last, 0.75)
    step.operation("convolve with the prior, which moves forward")
    step.numbers("prior $p_{ij}$: moves\nof 0 to $L-1$ steps", "state", prior, largest=0.75)
    step.operation("static filters of $a_{i-1}$,\nand filters from the query", query, h=44)
    step.operation(r"$v \cdot \tanh(U f_{ij} + T g_{ij} + b)\ +\ \log p_{ij}$", kind="score")
    step.softmax(weights, 0.75, numbers=False)
    step.read()
    step.note("next state: $a_i$.  No score compares the keys.")
    return step
