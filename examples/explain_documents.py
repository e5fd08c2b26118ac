"""
Classify documents and show why
===============================

A review of a restaurant praises or blames the food in one sentence. The other sentences praise or
blame something else in the same words, so counting good and bad words is not enough.
:py:obj:`keras_attention.HierarchicalAttention` weighs words in sentences, and sentences in the
review. Look at the picture: the bars show which sentence decided, the colours which of its words.

Paper: Yang et al., 2016, https://aclanthology.org/N16-1174
"""

import argparse
import pathlib

import keras
import numpy as np

from keras_attention import HierarchicalAttention
from keras_attention.plotting import Document, attention_weights, plot_document

SEED = 0
TRAIN_SIZE, TEST_SIZE = 2000, 500
UNITS, EPOCHS, BATCH_SIZE, LEARNING_RATE = 32, 5, 40, 0.01
FOOD = ["soup", "bread", "salad", "pasta", "cake", "fish"]
OTHERS = ["room", "music", "waiter", "view", "price", "garden", "parking", "lamp"]
GOOD = ["lovely", "great", "superb", "splendid", "charming"]
BAD = ["awful", "poor", "dreadful", "terrible", "dull"]
PATTERNS = ["the {} was {}", "we found the {} quite {}", "my friend called the {} {}"]
CLASSES = ["bad food", "good food"]
PICTURE = pathlib.Path("output/explain_documents.png")

# `--help` explains this script, and trains nothing.
argparse.ArgumentParser(usage=__doc__).parse_known_args()

keras.utils.set_random_seed(SEED)
rng = np.random.default_rng(SEED)


# %%
# Data
# ----
# A review has from four to eight sentences, one of them about the food. Its label says whether the
# food is good. The ids of a review have the shape (sentences, words), filled up with zeros.
def make_review():
    good_food, length = rng.integers(2), rng.integers(4, 9)
    place, sentences = rng.integers(length), []
    for n in range(length):
        thing = rng.choice(FOOD if n == place else OTHERS)
        good = good_food if n == place else rng.integers(2)
        words = rng.choice(PATTERNS).format(thing, rng.choice(GOOD if good else BAD))
        sentences.append(words.split())
    return sentences, good_food, place


def encode(reviews):
    ids = np.zeros((len(reviews), 8, 8), "int32")  # 0 is padding
    for n, review in enumerate(reviews):
        for m, sentence in enumerate(review):
            ids[n, m, : len(sentence)] = [VOCABULARY.index(word) + 1 for word in sentence]
    return ids


made = [make_review() for _ in range(TRAIN_SIZE + TEST_SIZE)]
reviews, labels, places = zip(*made, strict=True)
VOCABULARY = sorted({word for review in reviews for sentence in review for word in sentence})
ids, labels, places = encode(reviews), np.array(labels), np.array(places)
train, test = slice(TRAIN_SIZE), slice(TRAIN_SIZE, None)

# %%
# Model
# -----
# A recurrent layer reads every sentence, word by word. The attention turns its words into a
# sentence vector, and the sentence vectors into one vector for the review. The mask keeps padding
# words and padding sentences out.
words = keras.Input((None, None), dtype="int32")
embedding = keras.layers.Embedding(len(VOCABULARY) + 1, UNITS, mask_zero=True)
mask = embedding.compute_mask(words)
word_encoder = keras.layers.Bidirectional(keras.layers.GRU(UNITS // 2, return_sequences=True))
attention = HierarchicalAttention(UNITS, word_encoder=word_encoder, name="attention")
review_vector = attention(embedding(words), mask=mask)
probability = keras.layers.Dense(1, activation="sigmoid")(review_vector)
model = keras.Model(words, probability)

# %%
# Training
# --------
# Only the label of the whole review is given. Nobody tells the model which sentence decides.
model.compile(keras.optimizers.Adam(LEARNING_RATE), "binary_crossentropy")
model.fit(ids[train], labels[train], batch_size=BATCH_SIZE, epochs=EPOCHS, verbose=2)

# %%
# Result
# ------
# The model is compared with counting good and bad words.
# :py:obj:`keras_attention.plotting.attention_weights` returns the weights of words and sentences,
# so we can check whether the largest weight is at the sentence about the food.
test_ids, test_reviews, truth = ids[test], reviews[test], labels[test]
probabilities = model.predict(test_ids, verbose=0)[:, 0]
predictions = (probabilities > 0.5).astype(int)
word_weights, sentence_weights = attention_weights(model, test_ids)["attention"]
counts = [
    sum((word in GOOD) - (word in BAD) for sentence in review for word in sentence)
    for review in test_reviews
]
counting = np.mean((np.array(counts) > 0) == truth)
accuracy = np.mean(predictions == truth)
found = np.mean(sentence_weights.argmax(axis=1) == places[test])
for n in range(3):
    print(". ".join(" ".join(sentence) for sentence in test_reviews[n]))
    print(f"    predicted: {CLASSES[predictions[n]]}, truth: {CLASSES[truth[n]]}")
print(f"{accuracy:.1%} of the reviews are right, {counting:.1%} by counting words.")
print(f"In {found:.1%} the sentence with the largest weight is the one about the food.")
assert accuracy > 0.9 > 0.8 > counting, "The model should read the right sentence."
assert found > 0.8, "The weights should show which sentence decides."

# %%
# Picture
# -------
# The longest new review: :py:obj:`keras_attention.plotting.Document` holds its words and weights,
# and :py:obj:`keras_attention.plotting.plot_document` draws them.
n = int(np.argmax([len(review) for review in test_reviews]))
label = predictions[n]
document = Document(
    test_reviews[n],
    word_weights[n],
    sentence_weights[n],
    name="A review",
    predicted=CLASSES[label],
    probability=float(probabilities[n] if label else 1 - probabilities[n]),
    expected=CLASSES[truth[n]],
)
figure = plot_document(document)
PICTURE.parent.mkdir(parents=True, exist_ok=True)
figure.savefig(PICTURE)
print(f"The picture is in {PICTURE}.")
