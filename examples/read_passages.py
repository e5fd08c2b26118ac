"""
Answer questions about a passage
================================

The answer is a word of the passage. :py:obj:`keras_attention.BiDAFAttentionFlow` compares every
word of the passage with every word of the question, and a recurrent layer reads the result. A guess
among the cities of a passage is right once in four times at best. Look at the picture: names and
verbs of the question are found in the passage.

Paper: Seo, Kembhavi, Farhadi and Hajishirzi, 2017, https://arxiv.org/abs/1611.01603, without the
recurrent layer below the attention, so that each weight belongs to one word.
"""

import argparse
import pathlib

import keras
import numpy as np
from keras import ops

from keras_attention import BiDAFAttentionFlow
from keras_attention.plotting import attention_weights, plot_attention

SEED = 0
TRAIN_SIZE, TEST_SIZE = 4000, 500
UNITS, EPOCHS, BATCH_SIZE, LEARNING_RATE = 32, 5, 50, 0.01
NAMES = ["Ann", "Bob", "Eve", "Jim", "Kim", "Leo", "Mia", "Tom"]
CITIES = ["Rome", "Oslo", "Paris", "Cairo", "Lima", "Tokyo", "Delhi", "Berlin", "Quito", "Bern"]
FACTS = [
    ("{} has lived in {}", "where has {} lived"),
    ("{} was born in {}", "where was {} born"),
    ("{} has worked in {}", "where has {} worked"),
]
PICTURE = pathlib.Path("output/read_passages.png")

# `--help` explains this script, and trains nothing.
argparse.ArgumentParser(usage=__doc__).parse_known_args()

keras.utils.set_random_seed(SEED)
rng = np.random.default_rng(SEED)


# %%
# Data
# ----
# A passage has from four to six facts about three people, and a question asks for one of them. The
# target is the place of the answer in the passage.
def make_passage():
    names, cities = rng.permutation(NAMES)[:3], rng.permutation(CITIES)
    known = rng.permutation(9)[: rng.integers(4, 7)]
    sentences = [
        FACTS[fact % 3][0].format(names[fact // 3], city)
        for fact, city in zip(known, cities, strict=False)
    ]
    asked = rng.integers(len(known))
    question = FACTS[known[asked] % 3][1].format(names[known[asked] // 3])
    passage = " ".join(sentences).split()
    return passage, question.split(), passage.index(cities[asked])


def encode(texts):
    ids = [[VOCABULARY.index(word) + 1 for word in text] for text in texts]
    return keras.utils.pad_sequences(ids, padding="post")  # 0 is padding


made = [make_passage() for _ in range(TRAIN_SIZE + TEST_SIZE)]
passages, questions, answers = zip(*made, strict=True)
VOCABULARY = sorted({word for text in passages + questions for word in text})
passage_ids, question_ids, answers = encode(passages), encode(questions), np.array(answers)
train, test = slice(TRAIN_SIZE), slice(TRAIN_SIZE, None)

# %%
# Model
# -----
# Passage and question share one embedding. Pass both masks to every layer that reads padding
# otherwise: the attention, the recurrent layer, and the choice of a word at the end.
passage = keras.Input((None,), dtype="int32")
question = keras.Input((None,), dtype="int32")
spread = keras.initializers.RandomNormal(stddev=0.5)  # equal words stand out from the start
embedding = keras.layers.Embedding(len(VOCABULARY) + 1, UNITS, spread, mask_zero=True)
passage_mask, question_mask = embedding.compute_mask(passage), embedding.compute_mask(question)
attention = BiDAFAttentionFlow(name="attention")
merged = attention(
    embedding(passage), embedding(question), context_mask=passage_mask, query_mask=question_mask
)
reader_rnn = keras.layers.Bidirectional(keras.layers.GRU(UNITS, return_sequences=True))
states = reader_rnn(merged, mask=passage_mask)
logits = keras.layers.Dense(1)(states)[:, :, 0]
logits = ops.where(passage_mask, logits, -1e9)
model = keras.Model([passage, question], logits)

# %%
# Training
# --------
# The model is a classifier whose classes are the words of the passage.
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.Adam(LEARNING_RATE), loss)
model.fit(
    [passage_ids[train], question_ids[train]],
    answers[train],
    epochs=EPOCHS,
    batch_size=BATCH_SIZE,
    verbose=2,
)

# %%
# Result
# ------
# The word with the largest logit is the answer. The questions and passages are new, the words are
# not.
test_inputs, truth = [passage_ids[test], question_ids[test]], answers[test]
test_passages, test_questions = passages[test], questions[test]
predictions = model.predict(test_inputs, verbose=0).argmax(axis=-1)
accuracy = np.mean(predictions == truth)
for n in range(3):
    print(" ".join(test_passages[n]))
    predicted, answer = (test_passages[n][ids[n]] for ids in (predictions, truth))
    print(f"    {' '.join(test_questions[n])}? predicted: {predicted}, truth: {answer}")
print(f"{accuracy:.1%} of the answers are right.")
assert accuracy > 0.8, "The model should find the answers."

# %%
# Picture
# -------
# What every word of the first new passage reads in its question.
# :py:obj:`keras_attention.plotting.attention_weights` returns the weights, and
# :py:obj:`keras_attention.plotting.plot_attention` draws them.
to_question, to_passage = attention_weights(model, [x[:1] for x in test_inputs])["attention"]
passage, question = test_passages[0], test_questions[0]
figure = plot_attention(
    to_question[0, : len(passage), : len(question)].T,
    passage,
    question,
    marked=[int(predictions[0])],
    title="Which words of the question every word of the passage reads (red: the answer)",
)
figure.axes[0].set(xlabel="words of the passage", ylabel="words of the question")
PICTURE.parent.mkdir(parents=True, exist_ok=True)
figure.savefig(PICTURE)
print(f"The picture is in {PICTURE}.")
