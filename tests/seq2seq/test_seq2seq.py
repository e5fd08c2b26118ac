"""`Seq2Seq` against the same model by hand, and against its own equations."""

import functools

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import (
    AttentionRNN,
    BahdanauAttention,
    Ensemble,
    RecurrentEncoder,
    Seq2Seq,
    beam_search,
)
from keras_attention.ops import compiling
from keras_attention.seq2seq._export import texts_of
from tests import fast
from tests.backends import only_on
from tests.helpers import assert_refused, lengths_mask, numpy, randomize
from tests.seq2seq import cases
from tests.seq2seq.cases import (
    CASES,
    END,
    SOURCES,
    START,
    TARGETS,
    Changed,
    V,
    by_hand,
    make_model,
    seq2seq,
    served,
    with_other,
)

VALID = TARGETS != 0
SHIFTED = np.pad(TARGETS[:, :-1], [(0, 0), (1, 0)], constant_values=START)
# The default run has the cases whose steps differ most from a whole run.
cases_first = pytest.mark.parametrize(
    "name", fast(CASES, ["local-m", "state", "pointer", "hard, monotonic"])
)


@pytest.fixture(autouse=True)
def no_programs():
    """Compiling every training step would take most of the time."""
    with compiling(False):
        yield


@pytest.fixture(scope="module")
def models():
    """Makes the model of each name once, for tests that change nothing in it."""
    return functools.cache(make_model)


@pytest.fixture(scope="module")
def model(models):
    return models("additive")


def gru_encoder(units, kind=RecurrentEncoder):
    rnn = keras.layers.GRU(units, return_sequences=True, return_state=True)
    return kind(keras.layers.Embedding(V, 5), rnn)


def cross_entropy(logits):
    """The mean over the valid tokens, as loops."""
    found = [
        np.log(np.exp(row).sum()) - row[target]
        for rows, targets in zip(logits, TARGETS, strict=True)
        for row, target in zip(rows, targets, strict=True)
        if target
    ]
    return np.mean(found)


def test_logits_are_those_of_the_model_by_hand(model):
    expected = by_hand(model)([SOURCES, SHIFTED])
    found = model((SOURCES, TARGETS))
    assert found.shape == (3, 4, V)
    np.testing.assert_allclose(numpy(found)[VALID], numpy(expected)[VALID], atol=1e-6)


def test_a_step_of_training_is_that_of_the_model_by_hand():
    model, other = make_model(), make_model()
    hand = by_hand(other)
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


def test_the_loss_is_the_mean_over_valid_tokens(model):
    model.compile("sgd", metrics=[keras.metrics.SparseCategoricalAccuracy(name="right")])
    loss, right = model.evaluate(SOURCES, TARGETS, verbose=0)
    logits = numpy(model((SOURCES, TARGETS)))
    np.testing.assert_allclose(loss, cross_entropy(logits), rtol=1e-5)
    expected = (logits.argmax(-1) == TARGETS)[VALID].mean()
    np.testing.assert_allclose(right, expected, rtol=1e-6)


@pytest.mark.parametrize(
    "given", fast([None, "mean", "sum_over_batch_size", "mean_with_sample_weight"], [None, "mean"])
)
def test_padding_does_not_count_in_any_loss(given, model):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=given or "sum")
    wide = [np.pad(x, [(0, 0), (0, 5)]) for x in (SOURCES, TARGETS)]
    expected = cross_entropy(numpy(model((SOURCES, TARGETS))))
    for one in (loss, [loss]) if given else (None,):
        model.compile("sgd", one)
        np.testing.assert_allclose(np.ravel(model.test_on_batch(*wide))[0], expected, rtol=1e-5)


@cases_first
def test_padding_and_nan_behind_it_have_no_effect(name, models):
    model = models(name)
    expected = numpy(model((SOURCES, TARGETS)))[VALID]

    def spoil(memory, state, mask):
        return ops.where(ops.expand_dims(mask, -1), memory, float("nan")), state, mask

    found = with_other(model, encoder=Changed(model.encoder, spoil))((SOURCES, TARGETS))
    np.testing.assert_allclose(numpy(found)[VALID], expected, atol=1e-6)
    padded = model(tuple(np.pad(x, [(0, 0), (0, 3)]) for x in (SOURCES, TARGETS)))
    np.testing.assert_allclose(numpy(padded)[:, :4][VALID], expected, atol=2e-6)


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
    rows = [source[source > 0][None] for source in SOURCES]
    expected = [beam_search(model.step, *model.start(ids), **options) for ids in rows]
    for batch_size in (1, 2, 64):
        found = model.generate(SOURCES, 6, beam_width=3, n_best=2, batch_size=batch_size)
        for n, one in enumerate(expected):
            width = rows[n].shape[1]
            assert np.array_equal(found.tokens[n], numpy(one.tokens)[0, :2])
            np.testing.assert_allclose(found.scores[n], numpy(one.scores)[0, :2], atol=1e-5)
            read = numpy(one.weights)[0, :2]
            np.testing.assert_allclose(found.weights[n, ..., :width], read, atol=1e-5)
            assert not found.weights[n, ..., width:].any()


@pytest.mark.slow
def test_generate_takes_the_options_of_each_search(model):
    greedy = model.generate(SOURCES, 6, "greedy")
    assert np.array_equal(greedy.tokens, model.generate(SOURCES, 6, beam_width=1).tokens)
    prefix = np.array([[9, 9], [4, -1], [-1, -1]])
    begun = model.generate(SOURCES, 6, "greedy", prefix=prefix, batch_size=2).tokens
    lists = [[9, 9], [4], []]
    assert np.array_equal(model.generate(SOURCES, 6, "greedy", prefix=lists).tokens, begun)
    assert begun[0, :2].tolist() == [9, 9]
    assert begun[1, 0] == 4
    assert np.array_equal(begun[2], greedy.tokens[2])
    options = {"samples": 4, "temperature": 3.0}
    drawn = [model.generate(SOURCES, 6, "sample", seed=n, **options).tokens for n in (3, 3, 4)]
    assert drawn[0].shape == (3, 4, 6)
    assert np.array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])
    model.generate(SOURCES, 6, "sample")
    # A search that draws nothing leaves NumPy's generator as it is.
    before = np.random.get_state()[2]
    model.generate(SOURCES, 6, "greedy")
    assert np.random.get_state()[2] == before
    # Every batch has its own seed, and consecutive seeds share none.
    same = np.repeat(SOURCES[:1], 8, axis=0)
    options["batch_size"] = 2
    several = [model.generate(same, 6, "sample", seed=n, **options).tokens for n in (0, 1)]
    rows = np.concatenate(several).reshape(8, -1)
    assert len(np.unique(rows, axis=0)) == 8
    covered = model.generate(SOURCES, 6, coverage_penalty=0.5).scores
    alone = [model.generate(SOURCES[n : n + 1], 6, coverage_penalty=0.5).scores for n in range(3)]
    np.testing.assert_allclose(covered, np.concatenate(alone), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("change", ["enable_lora", "quantize"])
def test_generate_notices_that_a_part_has_changed(change, tmp_path):
    model = make_model()
    before = model.generate(SOURCES, 6, "greedy")
    if change == "enable_lora":
        model.head.enable_lora(2)
        model.head.lora_kernel_b.assign(np.ones((2, V)) * np.arange(V))
    else:
        model.head.quantize("int8")
    found = model.generate(SOURCES, 6, "greedy")
    model.save(tmp_path / "model.keras")
    expected = keras.saving.load_model(tmp_path / "model.keras").generate(SOURCES, 6, "greedy")
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-5)
    assert abs(found.scores - before.scores).max() > 1e-6


@pytest.mark.slow
def test_a_saved_model_trains_the_same(tmp_path):
    """With the state of its optimizer."""
    model = make_model("state")
    model.compile(keras.optimizers.Adam(0.01), metrics=["accuracy"])
    model.fit(SOURCES, TARGETS, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    losses = [x.fit(SOURCES, TARGETS, verbose=0).history["loss"] for x in (loaded, model)]
    np.testing.assert_allclose(*losses, rtol=1e-6)
    for x, y in zip(loaded.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6)


@keras.saving.register_keras_serializable("tests")
class Made(Seq2Seq):
    """A model that makes its parts itself, of one argument."""

    def __init__(self, width, **kwargs):
        parts = make_model()
        table = keras.layers.Embedding(V, width)
        super().__init__(parts.encoder, parts.decoder, table, parts.head, START, END, **kwargs)
        self.width = width

    def get_config(self):
        return {"width": self.width}


def test_a_subclass_with_a_constructor_of_its_own_is_saved(tmp_path):
    model = Made(5)
    expected = numpy(model((SOURCES, TARGETS)))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(numpy(loaded((SOURCES, TARGETS))), expected, atol=1e-6)


@pytest.mark.slow
@only_on("tensorflow", reason="a SavedModel")
def test_an_exported_model_generates_the_same(model, tmp_path):
    (tmp_path / "saved").mkdir()
    model.export_generate(tmp_path / "saved", 2, "greedy")
    (tmp_path / "saved" / "assets" / "old").touch()
    serve = served(model, tmp_path, 6, beam_width=3)
    expected, found = model.generate(SOURCES, 6, beam_width=3), serve(SOURCES)
    assert np.array_equal(found["tokens"], expected.tokens)
    for name in ("scores", "weights"):
        np.testing.assert_allclose(found[name], getattr(expected, name), atol=1e-6)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["saved"]
    assert not (tmp_path / "saved" / "assets" / "old").exists()
    for batch, steps in ((0, 0), (0, 5), (2, 0)):
        empty = serve(np.zeros((batch, steps)))
        assert empty["tokens"].shape == (batch, 6)
    expected = model.generate([[], []], 6, beam_width=3).scores
    np.testing.assert_allclose(empty["scores"], expected, atol=1e-6)


@only_on("tensorflow", reason="a SavedModel")
def test_an_export_deletes_no_other_files(model, tmp_path):
    for name in ("keep/notes.txt", "mixed/saved_model.pb", "mixed/calc.keras"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "mixed" / "variables").mkdir()
    before = sorted(tmp_path.rglob("*"))
    words = "`path` must be a new or empty folder, or a SavedModel"
    for path in (tmp_path / "keep", tmp_path / "keep" / "notes.txt", tmp_path / "mixed"):
        received = f"{path}, which holds other files"
        assert_refused(lambda x=path: model.export_generate(x, 6), words, received)
    assert sorted(tmp_path.rglob("*")) == before
    assert {path.read_text() for path in before if path.is_file()} == {"x"}


@pytest.mark.slow
@only_on("tensorflow", reason="a SavedModel")
def test_wrong_arguments_of_an_export_are_refused(model, tmp_path):
    import tensorflow as tf

    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a"], [3]), 4)

    def tokenize(texts):
        return table.lookup(texts)[:, None]

    for options, message in (
        ({"tokenize": "a"}, "`tokenize` must be a function or None; received 'a'"),
        ({"detokenize": 3}, "`detokenize` must be a function or None; received 3"),
        ({"tracked": table}, "`tracked` must be a list"),
    ):
        with pytest.raises(ValueError, match=message):
            model.export_generate(tmp_path / "model", 6, **options)
    with pytest.raises(AssertionError, match="untracked"):
        model.export_generate(tmp_path / "model", 6, tokenize=tokenize)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@only_on("tensorflow", reason="a SavedModel")
def test_an_exported_model_takes_and_returns_strings(model, tmp_path):
    import tensorflow as tf

    letters = tf.constant(["?", "^", "$", *"abcdefgh"])

    def tokenize(texts):
        codes = tf.strings.unicode_decode(texts, "UTF-8") - ord("a") + 3
        return codes.to_tensor(0)

    def detokenize(tokens, lengths):
        read = tf.where(tokens == END, "", tf.gather(letters, tokens))
        return tf.strings.reduce_join(read, axis=-1)

    texts = ["".join("abcdefgh"[x - 3] for x in row if x) for row in SOURCES]
    tokens = model.generate(SOURCES, 6).tokens
    expected = ["".join("abcdefgh"[x - 3] for x in row if x != END).encode() for row in tokens]
    options = {"tokenize": tokenize, "detokenize": detokenize}
    for folder, shape, more in (("one", (3,), {}), ("two", (3, 2), {"n_best": 2})):
        found = served(model, tmp_path / folder, 6, **more, **options)(texts)["texts"]
        assert found.shape == shape
        assert found.reshape(3, -1)[:, 0].tolist() == expected


@only_on("tensorflow", reason="strings")
def test_texts_of_several_outputs_are_those_of_each():
    import tensorflow as tf

    def detokenize(tokens, lengths):
        letters = tf.RaggedTensor.from_tensor(tokens + ord("a"), lengths=lengths)
        return tf.strings.unicode_encode(letters, "UTF-8")

    tokens = tf.constant(np.arange(12).reshape(2, 2, 3), "int32")
    texts = texts_of(detokenize, tokens, tf.constant([[3, 0], [1, 2]]))
    assert texts.numpy().tolist() == [[b"abc", b""], [b"g", b"jk"]]


@pytest.mark.slow
def test_an_ensemble_averages_probabilities(tmp_path):
    models = [make_model(seed=n) for n in (0, 1)]
    alone, single = (x.generate(SOURCES, 6) for x in (Ensemble(models[:1]), models[0]))
    assert np.array_equal(alone.tokens, single.tokens)
    for x, y in zip(alone[2:], single[2:], strict=True):
        np.testing.assert_allclose(x, y, atol=2e-6)
    both = Ensemble(models)
    found = both.generate(SOURCES, 6, length_penalty=0.0)
    tokens = np.where(lengths_mask(found.lengths, 6), found.tokens, 0)
    again = both.log_probability(SOURCES, tokens)
    np.testing.assert_allclose(again.scores, found.scores, atol=2e-5)
    # After the same tokens, the probability of the next one is the mean over the models.
    each = [np.exp(x.log_probability(SOURCES, tokens).log_probs) for x in models]
    np.testing.assert_allclose(np.exp(again.log_probs), np.mean(each, axis=0), atol=1e-5)
    both.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(
        loaded.generate(SOURCES, 6, length_penalty=0.0).scores, found.scores, atol=1e-5
    )


@pytest.mark.parametrize("cell", [keras.layers.GRUCell, keras.layers.LSTMCell])
def test_an_encoder_of_stacked_cells_in_both_directions(cell):
    rnn = keras.layers.RNN([cell(3), cell(4)], return_sequences=True, return_state=True)
    encoder = RecurrentEncoder(keras.layers.Embedding(V, 7), keras.layers.Bidirectional(rnn))
    memory, states, _ = encoder(SOURCES)
    assert tuple(memory.shape) == (*SOURCES.shape, 8)
    sizes = [x.shape[-1] for x in keras.tree.flatten(states)]
    assert sizes == ([6, 8] if cell is keras.layers.GRUCell else [6, 6, 8, 8])
    top = keras.tree.flatten(states[-1])[0]
    # Without padding, each direction's last output is its last state.
    np.testing.assert_allclose(numpy(top)[:1, :4], numpy(memory)[:1, -1, :4], rtol=1e-6)
    np.testing.assert_allclose(numpy(top)[:1, 4:], numpy(memory)[:1, 0, 4:], rtol=1e-6)


@only_on("tensorflow", "jax", reason="Keras fails to unroll a backward layer with a mask")
@pytest.mark.parametrize("functional", [False, True])
def test_an_unrolled_encoder_is_the_loop(functional):
    """Also with padding in front and between words."""
    sources, models = np.array([[5, 3, 9, 0, 0], [0, 8, 6, 0, 7]]), []
    for unroll in (False, True):
        rnn = keras.layers.GRU(4, return_sequences=True, return_state=True, unroll=unroll)
        embedding, rnn = keras.layers.Embedding(V, 7), keras.layers.Bidirectional(rnn)
        if functional:
            ids = keras.Input((5,), dtype="int32")
            memory, *states = rnn(embedding(ids), mask=ids != 0)
            encoder = keras.Model(ids, (memory, ops.concatenate(states, axis=-1), ids != 0))
        else:
            encoder = RecurrentEncoder(embedding, rnn)
        decoder = AttentionRNN(keras.layers.GRUCell(8), BahdanauAttention(5))
        models.append(seq2seq(encoder, decoder))
        models[-1]((sources, TARGETS[:2]))
    looped, unrolled = models
    randomize(looped)
    unrolled.set_weights(looped.get_weights())
    found, expected = (numpy(model((sources, TARGETS[:2]))) for model in (unrolled, looped))
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6)


def test_an_encoder_of_another_dtype():
    encoder = gru_encoder(8)
    cell = keras.layers.GRUCell(8, dtype="mixed_bfloat16")
    decoder = AttentionRNN(cell, BahdanauAttention(5, dtype="mixed_bfloat16"))
    model = seq2seq(encoder, decoder)
    assert np.isfinite(model.generate(SOURCES, 4, beam_width=2).scores).all()


def test_the_logits_of_another_layer_whose_call_has_reverse(monkeypatch):
    expected = make_model("tied")((SOURCES, TARGETS))
    monkeypatch.setattr(cases, "REVERSIBLE", cases.Reversible)
    found = make_model("tied")((SOURCES, TARGETS))
    np.testing.assert_allclose(numpy(found), numpy(expected), atol=1e-6)


@pytest.mark.parametrize(("change", "message"), [
    ({"encoder": "gru"}, "`encoder` must be a layer"),
    ({"decoder": keras.layers.GRU(8)},
     "`decoder` must be an AttentionRNN, or a layer with prepare, .*received <GRU"),
    ({"head": 11}, "`head` must be a layer or None"),
    ({"head": None}, "must be a keras.layers.ReversibleEmbedding"),
    ({"head": keras.layers.Dense(V, activation="softmax")},
     "`head` must return logits, without an activation"),
    ({"end_token": 1}, "`end_token` must differ"),
    ({"start_token": "<s>"}, "Look it up in the vocabulary"),
])  # fmt: skip
def test_wrong_parts_are_refused(change, message, model):
    with pytest.raises(ValueError, match=message):
        with_other(model, **change)


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


def test_ids_of_an_extended_vocabulary_are_accepted():
    model = make_model("pointer")
    model((SOURCES, TARGETS))
    extra = np.where(SOURCES == 9, V - 1, SOURCES)
    assert np.isfinite(model.log_probability(extra, TARGETS).scores).all()
    with pytest.raises(ValueError, match=rf"source must be from 0 to {V - 1}"):
        model.generate(np.where(SOURCES == 9, V, SOURCES), 6)


def single(model):
    return Ensemble([model])


BATCHES = "same number of samples", "at least one"
AXIS = "first axis is the sample; received "
LOGITS = "must take logits"


@pytest.mark.parametrize(("call", "words"), [(call, words) for call, *words in (
    (lambda x: x.fit(SOURCES, np.where(np.arange(3)[:, None] == 1, 5, TARGETS)),
     "1 wrong rows of 3, the first is row 1"),
    (lambda x: x.fit(SOURCES, np.where(TARGETS == 4, START, TARGETS)),
     "start token; ", " 1 wrong rows of 3", "(token 1)"),
    (lambda x: x(SOURCES), "takes the pair (source, target)"),
    (lambda x: x((SOURCES[0], TARGETS)),
     "`source` must be a tensor, of shape (batch, steps); received int64 of shape (5"),
    (lambda x: x.generate([], 6), *BATCHES),
    (lambda x: x.generate(np.zeros((0, 5), int), 6), *BATCHES),
    (lambda x: x.generate(["03 May"], 6), "take ids; received '03 May'. Look the tokens"),
    (lambda x: x.generate([3, 4], 6), AXIS + "3. Write"),
    (lambda x: x.generate(5, 6), AXIS + "5. Write"),
    (lambda x: x.generate([[3.0]], 6), AXIS + "3.0. Write"),
    (lambda x: x.generate(np.array(["03 May"]), 6),
     "take ids; received ", " of shape (1,). Look the tokens"),
    (lambda x: x.generate(SOURCES + 0.9, 6), "source must be integer ids, ", "received float64 of"),
    (lambda x: x.log_probability(SOURCES, None), "target must be integer ids ", " received None"),
    (lambda x: x.log_probability(SOURCES, TARGETS + 0.7),
     "target must be integer ids ", " received float64 of shape (3, 4)"),
    (lambda x: x.generate(SOURCES, 6, beams=3),
     "options of search='beam' are beam_width", "; received beams"),
    (lambda x: x.generate(SOURCES, 6, "best"), "must be one of 'beam', 'greedy', 'sample'"),
    (lambda x: x.generate(SOURCES, 6, length_penalty=[1.0]), "`length_penalty` must be a number"),
    (lambda x: x.generate(SOURCES, 6, "sample", seed=-3), "`seed` must be an integer"),
    (lambda x: x.compile("sgd", "sparse_categorical_crossentropy"), LOGITS),
    (lambda x: x.compile("sgd", keras.losses.sparse_categorical_crossentropy), LOGITS),
    (lambda x: x.compile("sgd", ["sparse_categorical_crossentropy"]),
     "must be one loss and must take logits"),
    (lambda x: x.compile("sgd", {"logits": "mse"}), "must be one loss and must take logits"),
    (lambda x: x.generate(SOURCES, 6, n_best=6), "`beam_width` is the largest `n_best`"),
    (lambda x: x.generate(SOURCES, 6, "sample", samples="3"),
     "`samples` must be ", " Write samples=3"),
    (lambda x: x.generate(SOURCES, 6, n_best=2, beam_width="4"),
     "`beam_width` must be ", " Write beam_width=4"),
    (lambda x: x.log_probability(SOURCES, TARGETS[:2]), "same number of samples"),
    *((lambda x, kind=kind: kind(x).generate(SOURCES, 2, prefix=[[3, 4, 5], [3], [3]]),
       "`prefix` must have at most max_length=2 steps") for kind in (with_other, single)),
    *((lambda x, kind=kind: kind(x).generate(SOURCES, 2, prefix=np.ones((3, 1))),
       "`prefix` must be integers") for kind in (with_other, single)),
    (lambda x: Ensemble([x, with_other(x, start_token=3)]), "must have the same start_token"),
    (lambda x: with_other(x, pad_token=7), "`pad_token` must be that of the encoder"),
    (lambda x: RecurrentEncoder(keras.layers.Embedding(V, 5), keras.layers.GRU(8)),
     "return_sequences=True"),
    (lambda x: with_other(x, head=keras.layers.Dense(END))((SOURCES, TARGETS)),
     "`head` must return a logit for every token, the end token too; received 2."),
)])  # fmt: skip
def test_wrong_calls_are_refused(call, words, model):
    assert_refused(lambda: call(model), *words)


@pytest.mark.parametrize(("change", "words"), [(change, words) for change, *words in (
    (lambda memory, state, mask: (memory, mask, state), "bool of shape"),
    (lambda memory, state, mask: (memory, state, np.ones(3, "float32")), "float32 of shape (3,)"),
    (lambda memory, state, mask: (mask, state, mask), "received (bool of shape (3, 5)"),
    (lambda memory, state, mask: (memory, mask),
     "received (float32 of shape (3, 5, 8), bool of shape (3, 5)).",
     "A functional model cannot return None: leave the mask out, and return zeros."),
    (lambda memory, state, mask: (memory, [mask, mask]),
     "received (float32 of shape (3, 5, 8), [bool of shape (3, 5), "),
    (lambda memory, state, mask: [memory], "received [float32 of shape (3, 5, 8)]"),
)])  # fmt: skip
def test_an_encoder_that_returns_something_else_is_refused(change, words, model):
    other = with_other(model, encoder=Changed(model.encoder, change))
    message = "the encoder must return (memory, state, mask), (memory, state) or one memory: "
    assert_refused(lambda: other((SOURCES, TARGETS)), message, *words)


def test_a_wrong_cell_is_refused_without_a_warning_of_keras():
    """Keras would trace the call of a new model first, and warn that it cannot."""
    decoder = AttentionRNN(keras.layers.GRUCell(6), BahdanauAttention(3))
    model = seq2seq(gru_encoder(7), decoder)
    model.compile("sgd")
    refusal = "`initial_state` must hold 1 cell state [(batch, 6)]; received 1, ["
    assert_refused(lambda: model.fit(SOURCES, TARGETS, verbose=0), refusal)


def test_a_model_whose_first_call_failed_generates():
    class Late(RecurrentEncoder):
        ready = False

        def call(self, source, training=None):
            if not self.ready:
                raise OSError("not ready")
            return super().call(source, training)

    encoder = gru_encoder(8, Late)
    model = seq2seq(encoder)
    with pytest.raises(OSError, match="not ready"):
        model((SOURCES, TARGETS))
    encoder.ready = True
    assert model.generate(SOURCES, 3).tokens.shape == (3, 3)


def test_targets_without_a_step(model):
    assert model((SOURCES, np.zeros((len(SOURCES), 0), "int32"))).shape == (len(SOURCES), 0, V)


def test_an_empty_source_alone_gives_the_result_that_it_gives_beside_others(model):
    alone, beside = (model.generate(x, 4, beam_width=2) for x in ([[]], [[], [5, 3]]))
    assert np.array_equal(alone.tokens[0], beside.tokens[0])
    np.testing.assert_allclose(alone.scores[0], beside.scores[0], atol=1e-6)
    assert alone.weights.shape == (1, 4, 0)
    alone, beside = (model.log_probability(x, len(x) * [[5, 2]]) for x in ([[]], [[], [5, 3]]))
    np.testing.assert_allclose(alone.log_probs[0], beside.log_probs[0], atol=1e-6)


def test_a_step_takes_what_start_returns(model):
    lists = [[int(x) for x in row if x] for row in SOURCES]
    state, memory = model.start(lists)
    logits = model.step(np.full(3, START), state, memory)[0]
    expected = model.step(np.full(3, START), *model.start(SOURCES))[0]
    np.testing.assert_array_equal(numpy(logits), numpy(expected))
