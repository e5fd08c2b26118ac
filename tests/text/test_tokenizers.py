"""Tokenizers: pieces, ids, saving, mistakes, and the same in TensorFlow."""

import functools
import io
import json
import sys
import unicodedata

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_attention.text import Characters, SentencePiece, Tokenizer, TokenizerJSON
from tests.backends import on_tensorflow
from tests.helpers import assert_refused

TEXTS = ["a red boat", "the blue boat", "a réd  boat"]


@keras.saving.register_keras_serializable(package="tests")
class Words(Tokenizer):
    def pieces(self, text):
        return text.lower().split()

    def join(self, pieces):
        return " ".join(pieces)


def needs(library, value):
    pytest.importorskip(library, reason="it is not installed")
    return value


@functools.cache
def sentence_piece(**options):
    sentencepiece = pytest.importorskip("sentencepiece")
    model = io.BytesIO()
    train = functools.partial(sentencepiece.SentencePieceTrainer.train, model_writer=model)
    train(sentence_iterator=iter(TEXTS), vocab_size=18, minloglevel=2, **options)
    return model.getvalue()


def tokenizer_json(special=("[PAD]", "[UNK]", "[START]", "[END]"), model="WordLevel"):
    library = pytest.importorskip("tokenizers")
    words = {x: n for n, x in enumerate([*special, "a", "red", "blue", "boat"])}
    model = library.models.WordLevel(words, unk_token=special[1])
    made = library.Tokenizer(model)
    made.pre_tokenizer = library.pre_tokenizers.Whitespace()
    made.enable_truncation(2)
    made.enable_padding()
    return made.to_str().encode()


MAKE = {
    "characters": lambda: Characters(TEXTS),
    "code points": lambda: Characters(TEXTS, normalization="NFD"),
    "words": lambda: Words(TEXTS),
    "sentencepiece": lambda: SentencePiece(sentence_piece()),
    "sentencepiece with padding": lambda: SentencePiece(
        sentence_piece(pad_id=0, unk_id=1, bos_id=-1, eos_id=2)
    ),
    "json": lambda: TokenizerJSON(tokenizer_json()),
    "json without padding": lambda: TokenizerJSON(tokenizer_json(("<s>", "<unk>", "</s>"))),
    "json without start": lambda: TokenizerJSON(tokenizer_json(("x", "<unk>"))),
}


@pytest.mark.parametrize("name", MAKE)
def test_texts_become_ids_and_texts_again(name):
    tokenizer, text = MAKE[name](), "a red blue boat"
    ids = tokenizer.encode(text)
    special = [tokenizer.padding_id, tokenizer.unknown_id, tokenizer.start_id, tokenizer.end_id]
    assert special[0] == 0
    assert len({*special}) == 4
    assert not {*special} & {*ids}
    assert max(*special, *ids) < tokenizer.vocabulary_size
    assert tokenizer.decode([special[2], *ids, special[3], 0]) == text
    assert tokenizer.encode("") == []
    for text in ("a zebra", "a ßoat", "[END] </s> <s>"):
        ids, pieces = tokenizer.encode(text), tokenizer.pieces(text)
        assert len(pieces) == len(ids)
        assert special[1] in ids
        assert not {special[0], *special[2:]} & {*ids}
        if "<" not in text:
            assert unicodedata.normalize("NFC", tokenizer.join(pieces)) == text
    config = json.loads(json.dumps(keras.saving.serialize_keras_object(tokenizer)))
    again = keras.saving.deserialize_keras_object(config)
    assert again == tokenizer
    assert again.tokens == tokenizer.tokens
    assert again.encode("a red boat") == tokenizer.encode("a red boat")
    assert tokenizer != MAKE["words" if name != "words" else "characters"]()


def test_a_character_is_what_readers_count():
    texts = "e\u0323\u0302|x", "\u1112\u1161\u11ab|국", "👩\u200d👩\u200d👧|👍🏽|!", "न|स्|ते"
    for text in (*texts, "\u0301|a", "\r|\n", "\u212b"):
        pieces = [unicodedata.normalize("NFC", x) for x in text.split("|")]
        assert Characters(["x"]).pieces(text.replace("|", "")) == pieces
    # The most frequent come first.
    assert Characters(["abbb", "cc�"]).tokens[4:] == ["b", "c", "a"]
    assert Words(["b a b", "[PAD]"], max_tokens=5).tokens[4:] == ["b"]


class Marked(Words):
    def pieces(self, text):
        return [f"<{x}>" for x in super().pieces(text)]


MARKS = st.sampled_from(
    [*"aeKA;한가ế", *"\u0301\u0323\u0302\u05b8\u0f71\u0344\u200d🏽👍", "\u1112", "\u1161", "\u11ab"]
)
ANY = st.lists(MARKS | st.characters(codec="utf-8"), max_size=12).map("".join)


@given(ANY)
@settings(deadline=None, max_examples=200, derandomize=True)
def test_characters_of_any_text(text):
    normal = unicodedata.normalize("NFC", text)
    characters = Characters([text, "x"])
    assert "".join(characters.pieces(text)) == normal
    assert characters.encode(unicodedata.normalize("NFD", text)) == characters.encode(text)
    assert characters.decode(characters.encode(text)) == normal.replace("�", "�")
    assert Characters(**characters.get_config()) == characters


@on_tensorflow
@pytest.mark.parametrize("name", ["characters", "sentencepiece", "sentencepiece with padding"])
def test_tensorflow_does_the_same(name):
    rng, texts = np.random.default_rng(0), ["", "a", "\ufeffa\0b", "e\u0301", "\u212a", "réd"]
    alphabet = [*"a redboatKé", "e\u0301", "\u0301", "\u200d", "한", "\u1112", "\u1161", "👍", "🏽"]
    texts += ["".join(rng.choice(alphabet, rng.integers(9))) for _ in range(1000)]
    tokenizer = MAKE[name]() if name != "characters" else Characters([*TEXTS, "é\u0323Kế한👍🏽"])
    if name != "characters":
        pytest.importorskip("tensorflow_text", reason="it runs the model")
    tokenize, detokenize, _ = tokenizer.tensorflow_functions()
    rows = [[*tokenizer.encode(x), tokenizer.end_id] for x in texts]
    expected = keras.utils.pad_sequences(rows, padding="post")
    np.testing.assert_array_equal(tokenize(texts).numpy(), expected)
    found = detokenize(expected, np.array([*map(len, rows)])).numpy()
    assert [x.decode() for x in found] == [tokenizer.decode(x) for x in rows]


@pytest.mark.parametrize(("make", "words"), [
    (Marked(["a b"]).get_config, ("a text of one piece", "Override get_config()")),
    (lambda: Characters("abc"), ("`texts` must be a list of texts", "'abc'", "Write [text]")),
    (lambda: Characters(["a", None]), ("`texts[1]` must be a string", "None of type NoneType")),
    (lambda: Characters(["a\ud800"]), ("`texts[0]` must be valid Unicode", "position 1")),
    (lambda: Characters([]), ("at least one piece",)),
    (lambda: Characters(["a"], normalization="nfc"), ("`normalization` must be one of 'NFC'",)),
    (lambda: Characters(["a"], max_tokens=4), ("`max_tokens` must be an integer from 5",)),
    (lambda: SentencePiece(needs("sentencepiece", b"none")),
     ("`model` must be a SentencePiece model", "4 bytes")),
    (lambda: SentencePiece(needs("sentencepiece", 3)),
     ("`model` must be a path, or the bytes", "3")),
    (lambda: SentencePiece.from_config(needs("sentencepiece", {"model": "!"})),
     ("must be a SentencePiece model",)),
    (lambda: TokenizerJSON(needs("tokenizers", b"{}")),
     ("`file` must be a tokenizer.json", "2 bytes")),
    (lambda: TokenizerJSON(tokenizer_json(), start="<go>"),
     ("`start` must be a token of the file", "'<go>'")),
    (lambda: Characters(["a"], normalization="NFKC").tensorflow_functions(),
     ("Characters has no equal in TensorFlow", "text=False")),
    (lambda: Characters(["a\u0300\u0301\u0302\u0303\u0304\u0305"]).tensorflow_functions(),
     ("too many spellings", "text=False")),
    (lambda: TokenizerJSON(tokenizer_json()).tensorflow_functions(), ("no equal in TensorFlow",)),
])  # fmt: skip
def test_mistakes(make, words):
    assert_refused(make, *words)


@pytest.mark.parametrize("name", ["sentencepiece", "tokenizers"])
def test_a_missing_library(name, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    make = SentencePiece if name == "sentencepiece" else TokenizerJSON
    with pytest.raises(ModuleNotFoundError, match=f"needs {name}: pip install {name}"):
        make(b"")
