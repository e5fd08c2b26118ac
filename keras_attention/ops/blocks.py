"""The additive score where nothing is compiled: tanh for blocks of queries.

A block is so large that it stays in the cache of a core, and is used for all that needs it before
the next one takes its place. Operations are few and large, as they must be where each has a price.
"""

from keras import ops

# In numbers, of a block; and up to which everything is one block.
BLOCK = 2**20
WHOLE = 2**22
# A sample with fewer is not worth a step of its own in a loop.
SMALLEST_SAMPLE = 2**16


def pairs(query, key):
    """tanh(q_i + k_j), `(..., Tq, Tk, U)`."""
    return ops.tanh(ops.expand_dims(query, -2) + ops.expand_dims(key, -3))


def whole_score(query, key, vector):
    """The score as it is written, all pairs at once. Arguments may be without the axis B."""
    hidden = pairs(query, key)
    # The product of two matrices is the fastest sum over features.
    scores = ops.matmul(ops.reshape(hidden, (-1, vector.shape[0])), ops.expand_dims(vector, 1))
    return ops.reshape(scores, ops.shape(hidden)[:-1])


def whole_gradient(query, key, vector, upstream):
    """Its gradient, all pairs at once: of query, key and vector."""
    hidden, weight = pairs(query, key), ops.expand_dims(upstream, 3)
    slope = weight * vector * (1.0 - hidden * hidden)
    return ops.sum(slope, 2), ops.sum(slope, 1), _total(hidden, upstream)


def blocked_score(query, key, vector):
    """`additive_score` for `(B, Tq, U)`, `(B, Tk, U)` and `(U,)` of one dtype."""

    def of_sample(sample):
        query, key = sample
        blocks = _in_blocks(query, key)
        scores = ops.map(lambda block: whole_score(block, key, vector), blocks)
        return ops.reshape(scores, (-1, ops.shape(key)[0]))[: ops.shape(query)[0]]

    scores = _by_size(
        query,
        key,
        lambda: whole_score(query, key, vector),
        lambda: ops.map(of_sample, (query, key)),
    )
    # A conditional forgets the sizes that are known.
    return ops.reshape(scores, (*ops.shape(query)[:2], ops.shape(key)[1]))


def blocked_gradient(query, key, vector, upstream):
    """Its gradient: of query, key and vector. upstream: `(B, Tq, Tk)`."""

    def by_sample():
        of_query, of_key, of_vector = ops.map(_gradient_of_sample, (query, key, upstream))
        return vector * of_query, vector * of_key, ops.sum(of_vector, 0)

    sums = _by_size(query, key, lambda: whole_gradient(query, key, vector, upstream), by_sample)
    inputs = query, key, vector
    return tuple(ops.reshape(x, ops.shape(y)) for x, y in zip(sums, inputs, strict=True))


def _gradient_of_sample(sample):
    """sum_j g h' `(Tq, U)`, sum_i g h' `(Tk, U)`, sum_ij g h `(U,)`; g upstream, h tanh."""
    query, key, upstream = sample
    blocks = _in_blocks(query, key)
    count, size, units = ops.shape(blocks)
    length = ops.shape(key)[0]
    missing = count * size - ops.shape(query)[0]
    padding = ops.zeros((missing, length), upstream.dtype)
    weights = ops.reshape(ops.concatenate([upstream, padding]), (count, size, length))

    def body(i, sums):
        of_query, of_key, of_vector = sums
        hidden, weight = pairs(blocks[i], key), weights[i]
        of_vector = of_vector + _total(hidden, weight)
        slope = 1.0 - hidden * hidden
        rows = ops.matmul(ops.expand_dims(weight, 1), slope)  # (size, 1, U)
        of_query = ops.slice_update(of_query, (i * size, 0), ops.squeeze(rows, 1))
        of_key = of_key + ops.sum(ops.expand_dims(weight, 2) * slope, 0)
        return of_query, of_key, of_vector

    sums = (
        ops.zeros((count * size, units), query.dtype),
        ops.zeros_like(key),
        ops.zeros_like(key[0]),
    )
    of_query, of_key, of_vector = ops.fori_loop(0, count, body, sums)
    return of_query[: ops.shape(query)[0]], of_key, of_vector


def _by_size(query, key, whole, by_sample):
    batch, steps, units = (_size(n) for n in ops.shape(query))
    sample = steps * _size(ops.shape(key)[1]) * units
    # Without a conditional where that is known: converters have trouble with them.
    if isinstance(sample, float) and sample <= SMALLEST_SAMPLE:
        return whole()
    if isinstance(batch * sample, float):
        return whole() if batch * sample <= WHOLE else by_sample()
    few = ops.logical_or(batch * sample <= WHOLE, sample <= SMALLEST_SAMPLE)
    return ops.cond(few, whole, by_sample)


def _size(n):
    # As a float, for products may have more than 31 bits.
    return float(n) if isinstance(n, int) else ops.cast(n, "float32")


def _in_blocks(query, key):
    """Queries `(Tq, U)` in blocks `(count, size, U)`, the last one filled with zeros."""
    (steps, units), length = ops.shape(query), ops.shape(key)[0]
    known = all(isinstance(n, int) for n in (steps, length))
    largest = max if known else ops.maximum
    size = largest(1, BLOCK // largest(1, length * units))
    count = largest(1, (steps + size - 1) // size)
    # All of one size, so that little is left to be filled.
    size = largest(1, (steps + count - 1) // count)
    padding = ops.zeros((count * size - steps, units), query.dtype)
    return ops.reshape(ops.concatenate([query, padding]), (count, size, units))


def _total(hidden, weight):
    """sum over all pairs of g h, `(U,)`."""
    rows = ops.reshape(hidden, (-1, hidden.shape[-1]))
    return ops.squeeze(ops.matmul(ops.reshape(weight, (1, -1)), rows), 0)
