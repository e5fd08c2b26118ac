"""The equations of the heads as loops, in NumPy."""

import itertools

import numpy as np


def softmax(x):
    shares = np.exp(x - x.max())
    return shares / shares.sum()


def readout(output, inputs, weights, activation="tanh"):
    """The logits of one step, or the hidden layer without weights for logits."""
    kernel, bias, *last = weights
    hidden = np.concatenate([output, inputs]) @ kernel + bias
    if activation == "maxout":
        hidden = np.array([max(hidden[2 * n], hidden[2 * n + 1]) for n in range(len(hidden) // 2)])
    elif activation is not None:
        hidden = getattr(np, activation)(hidden)
    return hidden @ last[0] + last[1] if last else hidden


def pointer_generator(output, context, inputs, attention, source, weights, extra):
    """The probabilities of one step."""
    by_name = dict(weights)
    both = np.concatenate([output, context])
    hidden = both @ by_name["hidden/kernel"] + by_name["hidden/bias"]
    generated = softmax(hidden @ by_name["logits/kernel"] + by_name["logits/bias"])
    gate = np.concatenate([both, inputs]) @ by_name["gate/kernel"] + by_name["gate/bias"]
    gate = 1 / (1 + np.exp(-gate[0]))
    found = np.concatenate([gate * generated, np.zeros(extra)])
    for word, share in zip(source, attention, strict=True):
        found[word] += (1 - gate) * share
    return found


def emissions(outputs, memory, weights):
    """p(v | h_j, s_i) of one sample, `(T, Tk, V)`."""
    state_kernel, bias, memory_kernel, kernel, output_bias = weights
    found = np.zeros((len(outputs), len(memory), len(output_bias)))
    for i, j in np.ndindex(found.shape[:2]):
        hidden = np.tanh(outputs[i] @ state_kernel + memory[j] @ memory_kernel + bias)
        found[i, j] = softmax(hidden @ kernel + output_bias)
    return found


def hard_attention(outputs, attention, memory, words, weights, monotonic):
    """log p(v | y[<i]) of one sample, `(T, V)`, from sums over all paths through its positions."""
    emitted = emissions(outputs, memory, weights)
    steps, length, size = emitted.shape
    joint = np.zeros((steps, size))  # p(y[<i], v)
    for i in range(steps):
        for path in itertools.product(range(length), repeat=i + 1):
            product, last = 1.0, 0
            for n, j in enumerate(path):
                product *= attention[n, j]
                if monotonic:
                    product = product / attention[n, last:].sum() if j >= last else 0.0
                    last = j
                if n < i:
                    product *= emitted[n, j, words[n]]
            joint[i] += product * emitted[i, path[-1]]
    return np.log(joint / joint.sum(-1, keepdims=True))


def expected_loss(outputs, attention, memory, words, weights, entropy_weight):
    """The expectation of REINFORCE for one sample: the sum over its words, and positions."""
    emitted = emissions(outputs, memory, weights)
    total = 0.0
    for i, word in enumerate(words):
        for j, share in enumerate(attention[i]):
            total -= share * (np.log(emitted[i, j, word]) - entropy_weight * np.log(share))
    return total
