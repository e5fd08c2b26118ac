"""A recurrence whose weight gradients are computed after the loop.

The problem. A step of a decoder multiplies small matrices by large kernels. Automatic
differentiation computes the gradient of every kernel at every step, so it adds up T products of the
size of the kernel. It also stores every intermediate result.

The idea. A step is made of *sites*, which hold the weights, and of elementwise code between them.
The forward pass stores what each site received and returned. The backward pass has two stages:

1. A loop from the last step to the first reads the stored results instead of computing them again,
   and differentiates the code between the sites. Each site turns the gradients of its results into
   gradients of its arguments.
2. After the loop, each site computes the gradients of its weights from all steps at once. For a
   product this is one large product, several times as fast as the sum of T small ones. An
   automatic site without gradients of its own for its weights does so on JAX with a GPU alone;
   elsewhere its loop adds up.

The cost. For each step, memory holds the carry, the arguments and results of the sites, and the
gradients of the results. A tensor that several of them share is stored once.

A plain recurrent network, h_t = tanh(x_t + h_{t-1} W), with one site:

    >>> import numpy
    >>> from keras import ops
    >>> from keras_attention.recurrence import product, recur
    >>> x, kernel = ops.ones((100, 2, 3)), ops.ones((3, 3))
    >>> sites = {"state": product([kernel], added=[x])}
    >>> def step(call, hidden, inputs, constants):
    ...     (total,) = call("state", hidden)
    ...     hidden = ops.tanh(total)
    ...     return hidden, hidden
    >>> last, outputs = recur(step, sites, ops.zeros((2, 3)), inputs=None)
    >>> tuple(outputs.shape)
    (100, 2, 3)

References: https://arxiv.org/abs/1604.01946 (products of all steps at once, for gradients of
kernels); https://arxiv.org/abs/1606.03401 (what to store in a backward pass through time).
"""

from keras_attention.recurrence._recur import Site, automatic, product, recur

__all__ = ["Site", "automatic", "product", "recur"]
