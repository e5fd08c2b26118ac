"""Split the weights of the layers over several devices, for `keras.distribution` on JAX.

`docs/howto/devices.md` says which ways there are to train on several devices and machines.
"""

import keras

from keras_attention._spec import raise_value_error

__all__ = ["get_layout_map"]

# The cells of Keras by their default names, which `keras.layers.GRU` and the like also use.
_CELL = r"(gru|lstm|simple_rnn)_cell(_\d+)?"
_POOLING = r"(attention_pooling(_\d+)?|word_attention|sentence_attention)"
_TARGET = r"target_attention(_\d+)?"

# The end of a weight's path, and which of its axes is split over the model axis of the mesh.
# Weights without an entry are copied to every device: biases, gains, and vectors of one width,
# which are small. Each device slices its own part, without communication.
_SPLIT_AXES = {
    # e = v . tanh(W q + U k + b). A device computes the tanh of its own units; then the parts of e,
    # which are sums over units, are added.
    "(query|key)_kernel": (False, True),
    "score_vector": (True,),
    # e = q . W k, and (W^T q)[j]. The sum over the features of q, the rows of W, is split. The rows
    # of e = v . tanh(W [q; k]) are the features of q and k, and their products are added.
    "score_kernel": (True, False),
    # p = S sigmoid(v_p . tanh(W_p q)) is a sum over units, like e.
    "position_kernel": (False, True),
    "position_vector": (True,),
    # V v, of several heads. A device computes its own features of the values.
    "value_kernel": (False, True),
    # h = tanh(W_c [c; q]), and O c of several heads. A device computes its own units.
    "output_kernel": (False, True),
    # f U, w z and T g are added to W q and V k, so they are split like them. tanh(W q) H is a sum
    # over units.
    "(location|static|dynamic)_kernel": (False, True),
    "coverage_vector": (True,),
    "(mixture|dynamic_filter)_kernel": (True, False),
    # e = u_w . tanh(W h + b). A device computes the tanh of its own units.
    f"{_POOLING}/kernel": (False, True),
    "gate_kernel": (False, True),
    # e = v . sigmoid(W [q; k; q - k; q * k] + b), likewise.
    f"{_TARGET}/kernel": (False, True),
    # v = W x. A device embeds into its own features.
    "embedding_kernel": (False, True),
    # m_i = sum_j A x_ij + T(i), and answers W u. Embeddings are split by features, because lookups
    # then need no other device. A vocabulary seldom has a size that devices divide.
    r"(embedding|time)_\d+": (False, True),
    "(memory|output|question)_(embedding|time)": (False, True),
    "answer_kernel": (False, True),
    # u' = H u + o. A device computes its own features.
    "update_kernel": (False, True),
    # The gates x W + h V + b. The rows are split and the products are added, so that every device
    # has all gates. Parts of the columns would cut through the gates, which lie side by side.
    f"{_CELL}/kernel": (True, False),
    f"{_CELL}/recurrent_kernel": (True, False),
}


def get_layout_map(
    device_mesh: keras.distribution.DeviceMesh,
    model_parallel_dim_name: str = "model",
    data_parallel_dim_name: str = "batch",
) -> keras.distribution.LayoutMap:
    """Return how the weights of all layers are split over a mesh of devices.

    The map splits the matrices of our layers over the model axis. It also splits the matrices of
    `GRUCell`, `LSTMCell` and `SimpleRNNCell`. All other weights are copied to every device.
    Add entries for your own layers, as in the example.

    Weights are found by their own names, so most layers may have any name. Keep the default name of
    cells, of a `TargetAttention`, and of an `AttentionPooling` outside `HierarchicalAttention`.
    Otherwise their kernels are copied.

    Args:
        device_mesh: a `keras.distribution.DeviceMesh` with both axes. The number of devices along
            the model axis must divide the axes that are split: units, and the features of queries,
            keys and embeddings. Delete an entry, `del layout_map[pattern]`, to copy its weights;
            `list(layout_map)` shows the patterns.
        model_parallel_dim_name: the model axis, along which weights are split.
        data_parallel_dim_name: the data axis, along which the batch is split, and no weight. Both
            names are arguments as in the layout maps of keras-hub; this one is only checked.

    Returns:
        A `keras.distribution.LayoutMap`.

    Raises:
        ValueError: `device_mesh` is no `DeviceMesh` or lacks an axis; both names are the same; or
            Keras does not run on JAX and would ignore the map.

    Example:
        With four devices, before the model is made. Set `KERAS_BACKEND=jax`, and
        `JAX_NUM_CPU_DEVICES=4` to simulate them.

        >>> import keras
        >>> from keras_attention.distribution import get_layout_map
        >>> names = "batch", "model"
        >>> mesh = keras.distribution.DeviceMesh((2, 2), names)  # doctest: +SKIP
        >>> layout_map = get_layout_map(mesh)  # doctest: +SKIP
        >>> layout_map["(.*/)?logits/kernel"] = None, "model"  # doctest: +SKIP
        >>> split = keras.distribution.ModelParallel(layout_map=layout_map)  # doctest: +SKIP
        >>> keras.distribution.set_distribution(split)  # doctest: +SKIP
        >>> logits = keras.layers.Dense(6, name="logits")
        >>> logits.build((2, 4))
        >>> logits.kernel.value.sharding.shard_shape((4, 6))  # doctest: +SKIP
        (4, 3)
    """
    backend = keras.backend.backend()
    if backend != "jax":
        remedy = "Let tf.distribute.MirroredStrategy copy the model to all GPUs."
        raise_value_error(
            "get_layout_map", "the backend must be jax, KERAS_BACKEND=jax", backend, remedy
        )
    if not isinstance(device_mesh, keras.distribution.DeviceMesh):
        expected = "`device_mesh` must be a keras.distribution.DeviceMesh"
        raise_value_error("get_layout_map", expected, device_mesh)
    names = model_parallel_dim_name, data_parallel_dim_name
    if len({*names} & {*device_mesh.axis_names}) < 2:
        expected = "`model_parallel_dim_name` and `data_parallel_dim_name` must name two axes of "
        remedy = 'A mesh of N devices for data alone is DeviceMesh((N, 1), ("batch", "model")).'
        expected += f"the mesh, among {device_mesh.axis_names}"
        raise_value_error("get_layout_map", expected, names, remedy)
    layout_map = keras.distribution.LayoutMap(device_mesh)
    for end, split in _SPLIT_AXES.items():
        layout_map[f"(.*/)?{end}"] = tuple(model_parallel_dim_name if x else None for x in split)
    return layout_map
