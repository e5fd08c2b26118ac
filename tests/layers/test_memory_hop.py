"""A hop against loops of the paper."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import AttentionRNN, MemoryHop
from tests.backends import dtypes, on_tensorflow, tensor
from tests.helpers import (
    DTYPES,
    arguments,
    assert_all_close,
    assert_close,
    assert_gradients,
    assert_refused,
    gradients,
    lengths_mask,
    normal,
    numpy,
    randomize,
    weight_arrays,
)
from tests.oracles import memory_hop

every_update = pytest.mark.parametrize("update", ["add", "linear"])
every_tying = pytest.mark.parametrize("tying", ["adjacent", "layerwise"])
linear_or_not = pytest.mark.parametrize("linear", [False, True], ids=["softmax", "linear"])
eager_or_jit = pytest.mark.parametrize("jit", [False, True], ids=["eager", "jit"])


class TestMemoryHop:
    B, T, N, D = 2, 3, 7, 5
    # Empty memories in front, in between and behind.
    MASK = np.stack([np.arange(7) >= 1, lengths_mask([5], 7)[0] & (np.arange(7) != 2)])

    masked_or_not = pytest.mark.parametrize("mask", [None, MASK], ids=["whole", "masked"])
    own_key_or_not = pytest.mark.parametrize("own_key", [False, True], ids=["value", "key"])

    def built(self, update="add", linear=False, dtype="float64", **kwargs):
        hop = MemoryHop(update, dtype=dtype, **kwargs)
        memory = (None, None, self.D)
        hop.build((None, self.D), memory, memory)
        hop.linear = linear
        return randomize(hop)

    def inputs(self, own_key=True, dtype="float64"):
        """Query, value and perhaps key; small, because numbers grow without a softmax."""
        shapes = [(self.B, self.D), (self.B, self.N, self.D), (self.B, self.N, self.D)]
        made = [normal([1, n], *shape, dtype=dtype) / 4 for n, shape in enumerate(shapes)]
        return made if own_key else made[:2]

    def run(self, hop, *tensors, mask=None, **kwargs):
        return list(hop(*tensors, value_mask=mask, return_attention_scores=True, **kwargs))

    def paper(self, hop, inputs, linear, mask=None, weights=None):
        names = [weight.name for weight in hop.trainable_weights]
        named = dict(zip(names, weights or weight_arrays(hop), strict=True))
        options = {"update": hop.update, "linear": linear, "normalizer": hop.normalizer}
        return memory_hop(named, *inputs, mask=mask, **options)

    @every_update
    @linear_or_not
    @masked_or_not
    @own_key_or_not
    @pytest.mark.parametrize("normalizer", ["softmax", "sparsemax"])
    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.each_value
    def test_equals_the_paper(self, update, linear, mask, own_key, normalizer, dtype):
        hop = self.built(update, linear, dtype, normalizer=normalizer)
        inputs = self.inputs(own_key, dtype)
        tensors = [ops.cast(x, dtype) for x in inputs]
        result = self.run(hop, *tensors, mask=mask)
        assert dtypes(*result) == [dtype, dtype]
        assert_all_close(result, self.paper(hop, inputs, linear, mask), dtype)
        assert_close(hop(*tensors, value_mask=mask), numpy(result[0]), dtype)

    @every_update
    @linear_or_not
    @masked_or_not
    @own_key_or_not
    @eager_or_jit
    @pytest.mark.each_value
    def test_gradients_are_those_of_the_paper(self, update, linear, mask, own_key, jit):
        hop = self.built(update, linear)

        def oracle(inputs, weights):
            return self.paper(hop, inputs, linear, mask, weights)

        def call(*tensors):
            return self.run(hop, *tensors, mask=mask)

        assert_gradients(hop, call, self.inputs(own_key), oracle, jit=jit)

    @every_update
    @linear_or_not
    def test_several_queries_are_each_a_hop(self, update, linear):
        hop, (_, value, key) = self.built(update, linear), self.inputs()
        queries = normal(2, self.B, self.T, self.D) / 4
        allowed = np.random.default_rng(5).random((self.B, self.T, self.N)) < 0.6
        asked = np.array([[True, True, False], [True, False, True]])
        masks = {"query_mask": asked, "attention_mask": allowed}
        result = self.run(hop, queries, value, key, mask=self.MASK, **masks)
        for t in range(self.T):
            mask = self.MASK & allowed[:, t] & asked[:, t, None]
            state, weights = self.paper(hop, [queries[:, t], value, key], linear, mask)
            state = np.where(asked[:, t, None], state, 0)
            assert_all_close([x[:, t] for x in result], [state, weights])

    @on_tensorflow
    @every_update
    @linear_or_not
    @pytest.mark.parametrize("length", [0, 7])
    @pytest.mark.parametrize("dtype", DTYPES)
    @eager_or_jit
    @pytest.mark.each_value
    def test_empty_memories_are_not_read(self, update, linear, length, dtype, jit):
        import tensorflow as tf

        hop = self.built(update, linear, dtype)
        query = ops.cast(self.inputs(dtype=dtype)[0], dtype)
        value = tf.fill((self.B, length, self.D), tensor(np.nan, dtype))
        mask = np.zeros((self.B, length), bool)

        def call(query, value):
            return self.run(hop, query, value, mask=mask)

        outputs, found = gradients(hop, call, [query, value], jit)
        if update == "add":
            assert np.array_equal(numpy(outputs[0]), numpy(query))
        else:
            assert_close(outputs[0], numpy(query) @ numpy(hop.update_kernel), dtype)
        assert outputs[1].shape == (self.B, length)
        assert not numpy(outputs[1]).any()
        found = [numpy(x) for x in found]
        assert all(np.isfinite(x).all() for x in found)
        assert found[0].all()
        assert not found[1].any()

    @linear_or_not
    @own_key_or_not
    @pytest.mark.parametrize("fill", [np.nan, np.inf, -np.inf])
    @pytest.mark.each_value
    def test_empty_memories_may_hold_anything(self, linear, own_key, fill):
        hop, (query, *memories) = self.built("linear", linear), self.inputs(own_key)
        dirty = [np.where(self.MASK[..., None], x, fill) for x in memories]

        def call(*tensors):
            return self.run(hop, *tensors, mask=self.MASK)

        expected, wanted = gradients(hop, call, [query, *memories])
        outputs, found = gradients(hop, call, [query, *dirty])
        assert_all_close([*outputs, *found], [*expected, *wanted])
        assert all(not numpy(x)[~self.MASK].any() for x in found[1 : 1 + len(memories)])

    @every_update
    @linear_or_not
    def test_the_order_of_the_memories_goes_into_the_weights_alone(self, update, linear):
        hop, (query, value, key) = self.built(update, linear), self.inputs()
        order = np.random.default_rng(7).permutation(self.N)
        state, weights = self.run(hop, query, value, key, mask=self.MASK)
        moved = self.run(hop, query, value[:, order], key[:, order], mask=self.MASK[:, order])
        assert_all_close(moved, [state, numpy(weights)[:, order]])

    @on_tensorflow
    def test_linear_is_put_back_in_compiled_functions(self):
        import tensorflow as tf

        hop, inputs, traces = self.built("linear"), self.inputs(), []

        @tf.function(jit_compile=True)
        def function(*tensors):
            traces.append(1)
            return self.run(hop, *tensors, mask=self.MASK)

        tensors = [tensor(x) for x in inputs]
        for linear in (False, True, False):
            hop.linear = linear
            assert_all_close(function(*tensors), self.paper(hop, inputs, linear, self.MASK))
        assert len(traces) == 1

    def test_a_decoder_trains_with_the_switch_of_today(self):
        """On JAX, `fit` takes the weights out of the layers, and compiles once."""
        decoder = AttentionRNN(keras.layers.GRUCell(self.D), MemoryHop())
        inputs = keras.Input((self.T, self.D)), keras.Input((self.N, self.D))
        model = keras.Model(inputs, decoder(*inputs))
        model.compile(keras.optimizers.SGD(0.0), "mse")
        x = [normal(n, 2, *one.shape[1:], dtype="float32") for n, one in enumerate(inputs)]
        losses = []
        for linear in (False, True, False):
            decoder.attention.linear = linear
            history = model.fit(x, np.zeros((2, self.T, self.D)), verbose=0).history
            losses += history["loss"]
            assert losses[-1] == pytest.approx(np.square(numpy(model(x))).mean(), rel=1e-5)
        assert losses[0] == pytest.approx(losses[2], rel=1e-5) != pytest.approx(losses[1], rel=0.01)

    @pytest.mark.parametrize("start", [False, True])
    def test_linear_start(self, start):
        hop, inputs = MemoryHop(dtype="float64"), self.inputs()
        assert not hop.linear
        hop.linear = start
        assert hop.linear is start
        assert_all_close(self.run(hop, *inputs), self.paper(hop, inputs, start))
        (switch,) = hop.non_trainable_weights
        assert (switch.name, switch.dtype, bool(numpy(switch))) == ("linear", "bool", hop.linear)

    def test_weights(self):
        assert not self.built("add").trainable_weights
        (kernel,) = self.built("linear").trainable_weights
        assert (kernel.name, kernel.shape) == ("update_kernel", (self.D, self.D))

    def test_compute_output_shape(self):
        hop, memory = MemoryHop(), (self.B, self.N, self.D)
        assert hop.compute_output_shape((self.B, self.D), memory) == (self.B, self.D)
        assert hop.compute_output_shape((None, self.T, self.D), memory) == (None, self.T, self.D)

    @pytest.mark.parametrize("symbolic", [False, True], ids=["eager", "symbolic"])
    @pytest.mark.parametrize(
        ("shapes", "names", "received"),
        [
            (
                {"query": (2, 3), "value": (2, 7, 5)},
                "`value` must be floating-point",
                "because `query` has 3 features; received float32 of shape (2, 7, 5)",
            ),
            (
                {"query": (2, 5), "value": (2, 7, 5), "key": (2, 7, 3)},
                "`key` must be floating-point",
                "because `query` has 5 features; received float32 of shape (2, 7, 3)",
            ),
            (
                {"query": (2, 11, 5), "value": (2, 7, 3), "key": (2, 7, 5)},
                "`value` must be floating-point",
                "because `query` has 5 features; received float32 of shape (2, 7, 3)",
            ),
        ],
    )
    def test_widths_must_agree(self, shapes, names, received, symbolic):
        fragments = f"hop: {names}", received
        assert_refused(lambda: MemoryHop(name="hop")(**arguments(shapes, symbolic)), *fragments)
        hop = MemoryHop(name="hop")
        assert_refused(lambda: hop.build(*shapes.values()), *fragments)
        assert_refused(lambda: hop.compute_output_shape(*shapes.values()), *fragments)

    def test_bad_calls(self):
        assert_refused(
            lambda: MemoryHop()(np.ones((2, 5))),
            "`value` must be floating-point, of shape (2, memory steps, 5); received None",
        )
        assert_refused(
            lambda: MemoryHop()(np.ones((2, 5)), np.ones((2, 5))),
            "received float64 of shape (2, 5)",
        )
        assert_refused(
            lambda: self.built()(np.ones((2, 5)), np.ones((2, 7, 3))), "built for `value` of 5"
        )

    @pytest.mark.parametrize("update", ["sum", "Linear", None, 1])
    def test_updates_are_two(self, update):
        assert_refused(
            lambda: MemoryHop(update, name="hop"),
            "hop: `update` must be one of 'add', 'linear'",
            f"received {update!r}",
        )
