"""`Seq2Seq` against the same model by hand, and against its own equations."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from keras_attention.decoder import AttentionRNN
from keras_attention.layers import BahdanauAttention
from keras_attention.search import beam_search
from keras_attention.seq2seq import Ensemble, RecurrentEncoder, Seq2Seq
from tests import fast
from tests.backends import only_on
from tests.helpers import assert_refused, lengths_mask, numpy, randomize
from tests.seq2seq import cases
from tests.seq2seq.cases import END, SOURCES, START, TARGETS, E, V, make_model, seq2seq, with_other

pytestmark = pytest.mark.usefixtures("no_programs")
VALID = TARGETS != 0
SHIFTED = np.pad(TARGETS[:, :-1], [(0, 0), (1, 0)], constant_values=START)


def gru_encoder(units):
    rnn = layers.GRU(units, return_sequences=True, return_state=True)
    return RecurrentEncoder(layers.Embedding(V, E), rnn)


def cross_entropy(logits):
    """The mean over the valid tokens, as loops."""
    found = [
        np.log(np.exp(row).sum()) - row[target]
        for rows, targets in zip(logits, TARGETS, strict=True)
        for row, target in zip(rows, targets, strict=True)
        if target
    ]
    return np.mean(found)


def test_logits_and_a_step_of_training_are_those_of_the_model_by_hand():
    model, other = make_model(), make_model()
    hand = cases.by_hand(other)
    found = model((SOURCES, TARGETS))
    assert found.shape == (3, 4, V)
    expected = numpy(hand([SOURCES, SHIFTED]))[VALID]
    np.testing.assert_allclose(numpy(found)[VALID], expected, atol=1e-6)
    mean = {"reduction": "mean_with_sample_weight"}
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, **mean)
    hand.compile(keras.optimizers.SGD(0.5), loss)
    expected = hand.train_on_batch([SOURCES, SHIFTED], TARGETS, sample_weight=1.0 * VALID)
    before = model.get_weights()
    model.compile(keras.optimizers.SGD(0.5))
    history = model.fit(SOURCES, TARGETS, batch_size=3, verbose=0).history
    np.testing.assert_allclose(history["loss"][0], float(expected), rtol=1e-5)
    for new, same, old in zip(model.get_weights(), other.get_weights(), before, strict=True):
        np.testing.assert_allclose(new, same, atol=2e-6)
        assert not np.array_equal(new, old)


LOSSES = {
    "none": None,
    "function": lambda y, logits: keras.losses.sparse_categorical_crossentropy(y, logits, True),
    **{
        reduction: keras.losses.SparseCategoricalCrossentropy(True, reduction=reduction)
        for reduction in ("sum_over_batch_size", "mean", "mean_with_sample_weight")
    },
}


@pytest.mark.parametrize("mask_zero", [False, True])
@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.each_value
def test_losses_and_metrics_are_means_over_the_valid_tokens(name, mask_zero, model):
    """Keras applies the mask of an embedding to the logits too, and would divide twice."""
    model = with_other(model, target_embedding=layers.Embedding(V, E, mask_zero=mask_zero))
    logits = numpy(model((SOURCES, TARGETS)))
    expected = [cross_entropy(logits), (logits.argmax(-1) == TARGETS)[VALID].mean()]
    for loss in (LOSSES[name], [LOSSES[name]])[: 1 + (name == "mean")]:
        metrics = [keras.metrics.SparseCategoricalAccuracy(name="right")]
        model.compile(keras.optimizers.SGD(0.0), loss, metrics=metrics, run_eagerly=True)
        wide = [np.pad(x, [(0, 0), (0, 5)]) for x in (SOURCES, TARGETS)]
        np.testing.assert_allclose(model.train_on_batch(*wide), expected, rtol=1e-5)
        np.testing.assert_allclose(model.test_on_batch(SOURCES, TARGETS), expected, rtol=1e-5)


# The default run has the cases whose steps differ most from a whole run.
@pytest.mark.parametrize(
    "name", fast(cases.CASES, ["local-m", "state", "pointer", "hard, monotonic"])
)
def test_padding_and_nan_behind_it_have_no_effect(name, models):
    model = models(name)
    expected = numpy(model((SOURCES, TARGETS)))[VALID]

    def spoil(memory, state, mask):
        return ops.where(ops.expand_dims(mask, -1), memory, float("nan")), state, mask

    found = with_other(model, encoder=cases.Changed(model.encoder, spoil))((SOURCES, TARGETS))
    np.testing.assert_allclose(numpy(found)[VALID], expected, atol=1e-6)
    padded = model(tuple(np.pad(x, [(0, 0), (0, 3)]) for x in (SOURCES, TARGETS)))
    np.testing.assert_allclose(numpy(padded)[:, :4][VALID], expected, atol=2e-6)


@pytest.mark.parametrize("name", fast(cases.CASES, ["stack", "hard, monotonic"]))
def test_a_target_without_steps(name, models):
    empty = TARGETS[:, :0]
    assert models(name)((SOURCES, empty)).shape == (3, 0, V)
    scores = models(name).log_probability(SOURCES, empty).scores
    np.testing.assert_array_equal(numpy(scores), np.zeros(3))


def test_log_probability_is_that_of_the_softmax_over_allowed_tokens(model):
    logits = numpy(model((SOURCES, TARGETS)))
    logits[..., [0, START]] = -np.inf
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    chosen = np.take_along_axis(log_probs, TARGETS[..., None], -1)[..., 0]
    found = model.log_probability(SOURCES, TARGETS, batch_size=2)
    np.testing.assert_allclose(found.log_probs, np.where(VALID, chosen, 0), atol=1e-5)
    np.testing.assert_allclose(found.scores, np.where(VALID, chosen, 0).sum(1), atol=1e-5)
    assert found.weights.shape == (3, 4, 5)


def test_generate_is_a_search_over_step_in_batches_of_any_size(model):
    options = {"start_token": START, "end_token": END, "max_length": 6, "beam_width": 3}
    rows = [[source[source > 0].tolist()] for source in SOURCES]
    expected = [beam_search(model.step, *model.start(ids), **options) for ids in rows]
    for batch_size in (2, 64):
        found = model.generate(SOURCES, 6, beam_width=3, n_best=2, batch_size=batch_size)
        for n, one in enumerate(expected):
            width = len(rows[n][0])
            assert np.array_equal(found.tokens[n], numpy(one.tokens)[0, :2])
            np.testing.assert_allclose(found.scores[n], numpy(one.scores)[0, :2], atol=1e-5)
            read = numpy(one.weights)[0, :2]
            np.testing.assert_allclose(found.weights[n, ..., :width], read, atol=1e-5)
            assert not found.weights[n, ..., width:].any()


@pytest.mark.slow
def test_generate_takes_the_options_of_each_search(model):
    def generate(search, source=SOURCES, **options):
        return model.generate(source, 6, search, **options)

    greedy = generate("greedy").tokens
    assert np.array_equal(greedy, generate("beam", beam_width=1).tokens)
    prefix = np.array([[9, 9], [4, -1], [-1, -1]])
    begun = generate("greedy", prefix=prefix, batch_size=2).tokens
    assert np.array_equal(generate("greedy", prefix=[[9, 9], [4], []]).tokens, begun)
    assert [*begun[0, :2], begun[1, 0]] == [9, 9, 4]
    assert np.array_equal(begun[2], greedy[2])
    options = {"samples": 4, "temperature": 3.0}
    one, again, other = (generate("sample", seed=n, **options).tokens for n in (3, 3, 4))
    assert one.shape == (3, 4, 6)
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)
    generate("sample")
    # A search that draws nothing leaves NumPy's generator as it is.
    before = np.random.get_state()[2]
    generate("greedy")
    assert np.random.get_state()[2] == before
    # Every batch has its own seed, and consecutive seeds share none.
    same = np.repeat(SOURCES[:1], 8, axis=0)
    several = [generate("sample", same, seed=n, batch_size=2, **options).tokens for n in (0, 1)]
    assert len(np.unique(np.concatenate(several).reshape(8, -1), axis=0)) == 8
    covered, *alone = (
        generate("beam", x, coverage_penalty=0.5).scores for x in (SOURCES, *SOURCES[:, None])
    )
    np.testing.assert_allclose(covered, np.concatenate(alone), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("change", ["enable_lora", "quantize"])
def test_generate_notices_that_a_part_has_changed(change, reloaded):
    model = make_model()
    before = model.generate(SOURCES, 6, "greedy")
    if change == "enable_lora":
        model.head.enable_lora(2)
        model.head.lora_kernel_b.assign(np.ones((2, V)) * np.arange(V))
    else:
        model.head.quantize("int8")
    found = model.generate(SOURCES, 6, "greedy")
    expected = reloaded(model).generate(SOURCES, 6, "greedy")
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-5)
    assert abs(found.scores - before.scores).max() > 1e-6


@pytest.mark.slow
def test_a_saved_model_trains_the_same(reloaded):
    """With the state of its optimizer."""
    model = make_model("state")
    model.compile(keras.optimizers.Adam(0.01), metrics=["accuracy"])
    model.fit(SOURCES, TARGETS, verbose=0)
    loaded = reloaded(model)
    losses = [x.fit(SOURCES, TARGETS, verbose=0).history["loss"] for x in (loaded, model)]
    np.testing.assert_allclose(*losses, rtol=1e-6)
    for x, y in zip(loaded.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6)


@keras.saving.register_keras_serializable("tests")
class Made(Seq2Seq):
    """A model that makes its parts itself, of one argument."""

    def __init__(self, width, **kwargs):
        parts, table = make_model(), layers.Embedding(V, width)
        super().__init__(parts.encoder, parts.decoder, table, parts.head, START, END, **kwargs)
        self.width = width

    def get_config(self):
        return {"width": self.width}


def test_a_subclass_with_a_constructor_of_its_own_is_saved(reloaded):
    model, pair = Made(5), (SOURCES, TARGETS)
    expected = numpy(model(pair))
    np.testing.assert_allclose(numpy(reloaded(model)(pair)), expected, atol=1e-6)


@pytest.mark.slow
def test_an_ensemble_averages_probabilities(reloaded):
    models = [make_model(seed=n) for n in (0, 1)]
    both = Ensemble(models)
    found = both.generate(SOURCES, 6, length_penalty=0.0)
    tokens = np.where(lengths_mask(found.lengths, 6), found.tokens, 0)
    again = both.log_probability(SOURCES, tokens)
    np.testing.assert_allclose(again.scores, found.scores, atol=2e-5)
    # After the same tokens, the probability of the next one is the mean over the models.
    each = [np.exp(x.log_probability(SOURCES, tokens).log_probs) for x in models]
    np.testing.assert_allclose(np.exp(again.log_probs), np.mean(each, axis=0), atol=1e-5)
    loaded = reloaded(both).generate(SOURCES, 6, length_penalty=0.0)
    np.testing.assert_allclose(loaded.scores, found.scores, atol=1e-5)


def test_an_encoder_of_stacked_cells_in_both_directions():
    cells = [layers.GRUCell(3), layers.LSTMCell(4)]
    rnn = layers.RNN(cells, return_sequences=True, return_state=True)
    encoder = RecurrentEncoder(layers.Embedding(V, 7), layers.Bidirectional(rnn))
    memory, states, _ = encoder(SOURCES)
    assert tuple(memory.shape) == (*SOURCES.shape, 8)
    sizes = [x.shape[-1] for x in keras.tree.flatten(states)]
    assert sizes == [6, 8, 8]
    top = keras.tree.flatten(states[-1])[0]
    # Without padding, each direction's last output is its last state.
    np.testing.assert_allclose(numpy(top)[:1, :4], numpy(memory)[:1, -1, :4], rtol=1e-6)
    np.testing.assert_allclose(numpy(top)[:1, 4:], numpy(memory)[:1, 0, 4:], rtol=1e-6)


@only_on("tensorflow", "jax", reason="Keras fails to unroll a backward layer with a mask")
def test_an_unrolled_encoder_is_the_loop():
    """Also with padding in front and between words."""
    pair, models = (np.array([[5, 3, 9, 0, 0], [0, 8, 6, 0, 7]]), TARGETS[:2]), []
    for unroll in (False, True):
        rnn = layers.GRU(4, return_sequences=True, return_state=True, unroll=unroll)
        models.append(seq2seq(RecurrentEncoder(layers.Embedding(V, E), layers.Bidirectional(rnn))))
        models[-1](pair)
    looped, unrolled = models
    unrolled.set_weights(randomize(looped).get_weights())
    np.testing.assert_allclose(numpy(unrolled(pair)), numpy(looped(pair)), rtol=0, atol=2e-6)


@pytest.mark.slow
def test_an_encoder_of_another_dtype():
    mixed = {"dtype": "mixed_bfloat16"}
    decoder = AttentionRNN(layers.GRUCell(8, **mixed), BahdanauAttention(5, **mixed))
    model = seq2seq(gru_encoder(8), decoder)
    assert np.isfinite(model.generate(SOURCES, 4, beam_width=2).scores).all()


def test_the_logits_of_another_layer_whose_call_has_reverse(monkeypatch):
    expected = make_model("tied")((SOURCES, TARGETS))
    monkeypatch.setattr(cases, "REVERSIBLE", cases.Reversible)
    found = make_model("tied")((SOURCES, TARGETS))
    np.testing.assert_allclose(numpy(found), numpy(expected), atol=1e-6)


@pytest.mark.parametrize("wrong", [-1, V, 2**40])
def test_ids_without_a_row_in_a_table_are_refused(wrong, model):
    both = Ensemble([model, model])
    bad_source, bad_target = (np.where(x == x[0, 1], wrong, x) for x in (SOURCES, TARGETS))
    for call, name in (
        (lambda: model.fit(bad_source, TARGETS), "source"),
        (lambda: model.evaluate(SOURCES, bad_target), "target"),
        (lambda: model.generate(bad_source, 6), "source"),
        (lambda: both.generate(bad_source, 6), "source"),
        (lambda: model.log_probability(SOURCES, bad_target), "target"),
        (lambda: both.log_probability(SOURCES, bad_target), "target"),
        # -1 in a prefix leaves the token free.
        *((lambda x=x: x.generate(SOURCES, 6, prefix=bad_target), "prefix")
          for x in (model, both) if wrong > 0),
    ):  # fmt: skip
        assert_refused(call, f"ids of the {name} must be from 0 to {V - 1}; received ids from")


def test_ids_of_an_extended_vocabulary_are_accepted(models):
    extra, beyond = (np.where(SOURCES == 9, x, SOURCES) for x in (V - 1, V))
    model = models("pointer")
    assert np.isfinite(model.log_probability(extra, TARGETS).scores).all()
    assert_refused(lambda: model.generate(beyond, 6), f"source must be from 0 to {V - 1}")


@pytest.mark.parametrize(("call", "words"), [(call, words) for call, *words in (
    *((lambda x, change=change: with_other(x, **change), *words) for change, *words in (
        ({"encoder": "gru"}, "`encoder` must be a layer"),
        ({"decoder": layers.GRU(8)},
         "`decoder` must be an AttentionRNN, or a layer with prepare, ", "received <GRU"),
        ({"head": 11}, "`head` must be a layer or None"),
        ({"head": None}, "must be a keras.layers.ReversibleEmbedding"),
        ({"head": layers.Dense(V, activation="softmax")},
         "`head` must return logits, without an activation"),
        ({"end_token": 1}, "`end_token` must differ"),
        ({"start_token": "<s>"}, "Look it up in the vocabulary"),
        ({"pad_token": 7}, "`pad_token` must be that of the encoder"))),
    (lambda x: x.fit(SOURCES, np.where(np.arange(3)[:, None] == 1, 5, TARGETS)),
     "1 wrong rows of 3, the first is row 1"),
    (lambda x: x.fit(SOURCES, np.where(TARGETS == 4, START, TARGETS)),
     "start token; ", " 1 wrong rows of 3", "(token 1)"),
    (lambda x: x(SOURCES), "takes the pair (source, target)"),
    (lambda x: x((SOURCES[0], TARGETS)),
     "`source` must be a tensor, of shape (batch, steps); received int64 of shape (5"),
    (lambda x: x.generate([], 6), "same number of samples", "at least one"),
    (lambda x: x.generate([3, 4], 6), "first axis is the sample; received 3. Write"),
    (lambda x: x.generate(np.array(["03 May"]), 6),
     "need `source_text`, a tokenizer; received ", " of shape (1,)"),
    (lambda x: x.generate(SOURCES + 0.9, 6), "source must be integer ids, ", "received float64 of"),
    (lambda x: x.log_probability(SOURCES, None), "target must be integer ids ", " received None"),
    (lambda x: x.log_probability(SOURCES, TARGETS[:2]), "same number of samples"),
    (lambda x: x.generate(SOURCES, 6, beams=3),
     "options of search='beam' are beam_width", "; received beams"),
    (lambda x: x.generate(SOURCES, 6, "best"), "must be one of 'beam', 'greedy', 'sample'"),
    (lambda x: x.generate(SOURCES, 6, n_best=6), "`beam_width` is the largest `n_best`"),
    (lambda x: x.generate(SOURCES, 6, "sample", samples="3"),
     "`samples` must be ", " Write samples=3"),
    *((lambda x, loss=loss: x.compile("sgd", loss), "must take logits") for loss in (
        "sparse_categorical_crossentropy", keras.losses.sparse_categorical_crossentropy)),
    (lambda x: x.compile("sgd", {"logits": "mse"}), "must be one loss and must take logits"),
    *((lambda x, kind=kind, prefix=prefix: kind(x).generate(SOURCES, 2, prefix=prefix), words)
      for kind in (with_other, lambda x: Ensemble([x]))
      for prefix, words in (
          ([[3, 4, 5], [3], [3]], "`prefix` must have at most max_length=2 steps"),
          (np.ones((3, 1)), "`prefix` must be integers"))),
    (lambda x: RecurrentEncoder(layers.Embedding(V, 5), layers.GRU(8)), "return_sequences=True"),
    (lambda x: with_other(x, head=layers.Dense(END))((SOURCES, TARGETS)),
     "`head` must return a logit for every token, the end token too; received 2."),
)])  # fmt: skip
def test_wrong_calls_are_refused(call, words, model):
    assert_refused(lambda: call(model), *words)


@pytest.mark.parametrize(("change", "words"), [(change, words) for change, *words in (
    (lambda memory, state, mask: (memory, mask, state), "bool of shape"),
    (lambda memory, state, mask: (mask, state, mask), "received (bool of shape (3, 5)"),
    (lambda memory, state, mask: (memory, mask),
     "received (float32 of shape (3, 5, 8), bool of shape (3, 5)).",
     "A functional model cannot return None: leave the mask out, and return zeros."),
    (lambda memory, state, mask: [memory], "received [float32 of shape (3, 5, 8)]"),
)])  # fmt: skip
def test_an_encoder_that_returns_something_else_is_refused(change, words, model):
    other = with_other(model, encoder=cases.Changed(model.encoder, change))
    message = "the encoder must return (memory, state, mask), (memory, state) or one memory: "
    assert_refused(lambda: other((SOURCES, TARGETS)), message, *words)


def test_a_wrong_cell_is_refused_without_a_warning_of_keras():
    """Keras would trace the call of a new model first, and warn that it cannot."""
    decoder = AttentionRNN(layers.GRUCell(6), BahdanauAttention(3))
    model = seq2seq(gru_encoder(7), decoder)
    model.compile("sgd")
    refusal = "`initial_state` must hold 1 cell state [(batch, 6)]; received 1, ["
    assert_refused(lambda: model.fit(SOURCES, TARGETS, verbose=0), refusal)


@pytest.mark.slow
def test_a_model_whose_first_call_failed_generates(monkeypatch):
    model = seq2seq(gru_encoder(8))
    with monkeypatch.context() as patch:
        patch.setattr(model.encoder, "call", lambda *args, **options: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model((SOURCES, TARGETS))
    assert model.generate(SOURCES, 3).tokens.shape == (3, 3)


@pytest.mark.slow
def test_an_empty_source_alone_gives_the_result_that_it_gives_beside_others(model):
    alone, beside = (model.generate(x, 4, beam_width=2) for x in ([[]], [[], [5, 3]]))
    assert np.array_equal(alone.tokens[0], beside.tokens[0])
    np.testing.assert_allclose(alone.scores[0], beside.scores[0], atol=1e-6)
    assert alone.weights.shape == (1, 4, 0)
    alone, beside = (model.log_probability(x, len(x) * [[5, 2]]) for x in ([[]], [[], [5, 3]]))
    np.testing.assert_allclose(alone.log_probs[0], beside.log_probs[0], atol=1e-6)
