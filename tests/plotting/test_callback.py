"""Maps in TensorBoard while a model trains."""

import keras
import matplotlib.image
import numpy as np
import pytest
import tensorflow as tf

from keras_attention import BahdanauAttention
from keras_attention.plotting import AttentionMapCallback as Callback
from keras_attention.plotting import (
    attention_page,
    attention_weights,
    plot_attention,
    plot_attention_image,
)
from tests.helpers import refusals
from tests.plotting.figures import translator


def events(folder):
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    read = [event for x in folder.glob("events*") for event in EventFileLoader(str(x)).Load()]
    pairs = [(value, event.step) for event in read for value in event.summary.value]
    return {(value.tag, step): value.tensor.string_val[2] for value, step in pairs}


def test_maps_in_tensorboard(tmp_path):
    model = translator()
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    inputs = [np.array([[3, 4, 0], [7, 8, 9]]), np.array([[5, 6], [1, 2]])]
    sources, targets = [["das", "Haus"], ["a", "b", "c"]], [["the", "house"], ["x", "y"]]
    callback = Callback(tmp_path, inputs, sources=sources, targets=targets, every=2)
    model.fit(inputs, inputs[1], epochs=4, verbose=0, callbacks=[callback])
    found = events(tmp_path)
    assert set(found) == {(f"attention/{n}", step) for n in (0, 1) for step in (1, 3)}
    weights = attention_weights(model, inputs)["attention"][0, :, :2]
    page = attention_page(weights, ["das", "Haus"], ["the", "house"], "Sample 0 after epoch 4")
    pages = {path.name: path.read_text("utf-8") for path in tmp_path.glob("*.*ml*")}
    assert pages.keys() == {"attention-0.html", "attention-1.html"}
    assert pages["attention-0.html"] == page
    figure = plot_attention(weights, ["das", "Haus"], ["the", "house"])
    figure.savefig(tmp_path / "map.png")
    expected = matplotlib.image.imread(tmp_path / "map.png") * 255
    drawn = tf.io.decode_png(found["attention/0", 3]).numpy()
    np.testing.assert_allclose(drawn, expected, atol=1.5)


def test_maps_over_images(tmp_path):
    """The images are the sources; the weights of six cells are a map of two rows."""
    image, target = keras.Input((4, 6, 2)), keras.Input((None,), dtype="int32")
    memory = keras.layers.Reshape((6, 5))(keras.layers.Conv2D(5, 2, 2)(image))
    query = keras.layers.Embedding(11, 5)(target)
    context = BahdanauAttention(7, name="attention")(query, memory)
    model = keras.Model([image, target], keras.layers.Dense(11)(context))
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    images = np.random.default_rng(0).random((2, 4, 6, 2)).astype("float32")
    inputs, words = [images, np.array([[5, 6], [1, 2]])], [["a", "circle"], ["b"]]
    callback = Callback(tmp_path, inputs, images[..., 0], words, grid=(2, 3))
    model.fit(inputs, inputs[1], verbose=0, callbacks=[callback])
    weights = attention_weights(model, inputs)["attention"][1, :1].reshape(1, 2, 3)
    figure = plot_attention_image(weights, images[1, ..., 0], ["b"])
    figure.savefig(tmp_path / "map.png")
    drawn = tf.io.decode_png(events(tmp_path)["attention/1", 0]).numpy()
    expected = matplotlib.image.imread(tmp_path / "map.png") * 255
    np.testing.assert_allclose(drawn, expected, atol=1.5)
    assert "data:image/png" in (tmp_path / "attention-1.html").read_text("utf-8")


def test_a_diverging_training_continues(tmp_path):
    model = translator()
    model.compile("sgd", lambda _, x: keras.ops.sum(x) * float("nan"))
    inputs = [np.array([[3, 4]]), np.array([[5, 6]])]
    callback = Callback(tmp_path, inputs, [["a", "b"]], [["c", "d"]])
    with pytest.warns(RuntimeWarning, match="no map after epoch 1: .*`weights` must be finite"):
        model.fit(inputs, inputs[1], epochs=1, verbose=0, callbacks=[callback])


@pytest.mark.parametrize(("options", "message"), [
    ({"layer": "missing"}, "one of 'attention'; received 'missing'"),
    ({"sources": [["a"]], "targets": [["b"]]}, "`sources` must be 2 lists of tokens"),
    ({"sources": [list("abcd")] * 2}, r"here \(2, 4\); received \(2, 3\)"),
    ({"targets": None}, r"of shape \(samples, source\); received float32 of shape \(2, 2, 3\)"),
])  # fmt: skip
def test_maps_that_cannot_be_drawn_stop_before_training(options, message, tmp_path):
    model = translator()
    model.compile("sgd", "mse")
    inputs = [np.array([[3, 4, 0], [7, 8, 9]]), np.array([[5, 6], [1, 2]])]
    given = {"sources": [["a", "b"]] * 2, "targets": [["c", "d"]] * 2, **options}
    callback = Callback(tmp_path, inputs, **given)
    begun = []
    first = keras.callbacks.LambdaCallback(on_epoch_begin=lambda *_: begun.append(1))
    with pytest.raises(ValueError, match=message):
        model.fit(inputs, np.zeros((2, 2, 11)), verbose=0, callbacks=[callback, first])
    assert not begun


test_bad_arguments = refusals(
    (lambda: Callback("logs", [], [["a"]], [["b"], ["c"]]),
     "`targets` must be 1 lists of tokens"),
    (lambda: Callback("logs", [], [["a"]], every=0),
     "positive integer, at most 1048576; received 0"),
    (lambda: Callback("logs", [], [["a"]], grid=(2, 3)), "`grid` needs images as `sources`"),
    (lambda: Callback(None, [], [["a"]]), "`log_dir` must be a folder; received None"),
)  # fmt: skip
