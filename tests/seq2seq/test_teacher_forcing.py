"""What `fit`, `evaluate` and the methods for one batch take for the source and for the target."""

import keras
import numpy as np
import pytest

from keras_attention import Ensemble, Seq2Seq
from keras_attention.seq2seq import BidirectionalEnsemble
from tests import fast
from tests.helpers import assert_refused, numpy
from tests.seq2seq.cases import SOURCES, TARGETS, Joined, joined, make_model, seq2seq

VALID = TARGETS != 0
WEIGHTS = np.array([0.5, 2.0, 1.0])
# The second source of each pair equals the target, as in a model that edits a draft.
PAIRS = {"tuple": (SOURCES, TARGETS), "list": [SOURCES, 1 * TARGETS]}


pytestmark = pytest.mark.usefixtures("no_programs")


@pytest.fixture(scope="module")
def editor():
    model = seq2seq(Joined())
    model(((SOURCES, TARGETS), TARGETS))
    # Without learning, every loss is that of the same weights.
    model.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    return model


def loss_of(model, weights=(1, 1, 1)):
    """The mean cross-entropy of the valid tokens of all samples, from the logits."""
    logits = numpy(model(((SOURCES, TARGETS), TARGETS)))
    logits = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    losses = -np.take_along_axis(logits, TARGETS[..., None], -1)[..., 0]
    weights = VALID * np.asarray(weights)[:, None]
    return (losses * weights).sum() / weights.sum()


METHODS = {
    "fit": lambda model, x, y, **more: model.fit(x, y, verbose=0, **more).history["loss"][0],
    "evaluate": lambda model, x, y, **more: model.evaluate(x, y, verbose=0, **more),
    "train_on_batch": lambda model, x, y, **more: model.train_on_batch(x, y, **more),
    "test_on_batch": lambda model, x, y, **more: model.test_on_batch(x, y, **more),
    "positional": lambda model, x, y, sample_weight=None: model.train_on_batch(x, y, sample_weight),
}


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize("method", fast(METHODS, ["fit", "evaluate", "positional"], slow=0))
@pytest.mark.each_value
def test_a_second_source_that_equals_the_target_is_a_source(method, kind, editor):
    for weights, options in (((1, 1, 1), {}), (WEIGHTS, {"sample_weight": WEIGHTS})):
        editor.reset_metrics()  # older versions of Keras return the mean loss of all batches
        found = METHODS[method](editor, PAIRS[kind], TARGETS, **options)
        np.testing.assert_allclose(found, loss_of(editor, weights), rtol=1e-5)


@pytest.mark.parametrize("weights", [(), (WEIGHTS,)])
@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.each_value
def test_validation_reads_both_sources(kind, weights, editor):
    data = PAIRS[kind], TARGETS, *weights
    history = editor.fit(*data[:2], validation_data=data, epochs=2, verbose=0).history
    np.testing.assert_allclose(history["loss"], 2 * [loss_of(editor)], rtol=1e-5)
    np.testing.assert_allclose(history["val_loss"], 2 * [loss_of(editor, *weights)], rtol=1e-5)
    history = editor.fit(PAIRS[kind], TARGETS, validation_split=0.6, verbose=0).history
    for name, part in (("loss", (1, 0, 0)), ("val_loss", (0, 1, 1))):
        np.testing.assert_allclose(history[name], [loss_of(editor, part)], rtol=1e-5)


@pytest.mark.slow
def test_a_data_set_yields_pairs_with_and_without_the_target_again(editor):
    pair = (SOURCES, TARGETS), TARGETS
    batches = ([(pair, TARGETS)], [(pair, TARGETS, WEIGHTS)], [(pair,)])
    for weights, data in zip(((1, 1, 1), WEIGHTS, (1, 1, 1)), batches, strict=True):
        found = editor.evaluate((x for x in 2 * data), steps=1, verbose=0)
        np.testing.assert_allclose(found, loss_of(editor, weights), rtol=1e-5)
        options = {"steps_per_epoch": 1, "validation_steps": 1, "shuffle": False, "verbose": 0}
        options["validation_data"] = (x for x in 9 * data)
        history = editor.fit((x for x in 9 * data), **options).history
        for name in ("loss", "val_loss"):
            np.testing.assert_allclose(history[name], loss_of(editor, weights), rtol=1e-5)
    found = editor.evaluate(pair, steps=1, verbose=0)
    np.testing.assert_allclose(found, loss_of(editor), rtol=1e-5)


def yields(*batch):
    return (batch for _ in range(2))


def new_model():
    """A model that nobody has called."""
    return Seq2Seq.from_config(make_model().get_config())


TWO, ONLY = PAIRS["tuple"], "a source and its target; received only"


# What is called wrongly, and the mistake that the message names.
@pytest.mark.parametrize(("make", "call", "words"), [(make, call, words) for make, call, *words in (
    (make_model, lambda x: x.fit((SOURCES, TARGETS), TARGETS), "Call fit(source, target)"),
    (new_model, lambda x: x.generate(TWO, 4), "For several sources, write an encoder"),
    (new_model, lambda x: x.fit({"a": SOURCES, "b": SOURCES}, TARGETS), "For several"),
    (make_model, lambda x: x.fit(SOURCES), "received only int64 of shape (3, 5). Call fit("),
    (make_model, lambda x: x.evaluate(SOURCES), ONLY),
    (make_model, lambda x: x.fit(SOURCES, TARGETS, validation_data=(SOURCES,)), ONLY),
    (make_model, lambda x: x.fit(yields(SOURCES, TARGETS), steps_per_epoch=1, shuffle=False),
     "the pair (source, target); received int64 of shape (3, 5)", "((source, target), target)"),
)])  # fmt: skip
def test_the_message_names_the_mistake(make, call, words):
    # On JAX with Keras 3.12, a `fit` that raises leaves a model without its weights.
    model = make()
    model.compile("sgd", run_eagerly=True)
    assert_refused(lambda: call(model), *words)


def test_weights_of_classes_are_refused():
    model, x, y, given = make_model(), SOURCES, TARGETS, {0: 1.0, 1: 9.0}
    model.compile("sgd", run_eagerly=True)
    for call in (
        lambda: model.fit(x, y, class_weight=given),
        lambda: model.fit(((x, y), y), class_weight=given),
        lambda: model.train_on_batch(x, y, class_weight=given),
        lambda: model.train_on_batch(x, y, None, given),
    ):
        words = "`class_weight`", "received {0: 1.0, 1: 9.0}", "sample_weight"
        assert_refused(call, *words)
    assert np.isfinite(model.train_on_batch(x, y, class_weight=None))


def test_an_ensemble_says_that_its_models_are_trained():
    for kind in (Ensemble, BidirectionalEnsemble):
        model = joined(kind, [make_model(seed=n) for n in (0, 1)])
        model.compile("sgd", "mse")
        words = f"{model.name}: the models of an ensemble are trained one by one"
        data = yields((SOURCES, TARGETS), TARGETS)
        assert_refused(lambda x=model: x.fit(SOURCES, TARGETS, verbose=0), words)
        assert_refused(lambda x=model, data=data: x.fit(data, steps_per_epoch=1), words)
        assert_refused(lambda x=model: x.train_on_batch(SOURCES, TARGETS), words)
