"""
Follow a story in two hops
==========================

"Where is the milk?" No sentence of the story says so. In the first hop
:py:obj:`keras_attention.MemoryNetwork` finds who took the milk, in the second hop where this person
went. Look at the picture: it shows what the two hops read in two stories.

Paper: Sukhbaatar, Szlam, Weston and Fergus, 2015, https://arxiv.org/abs/1503.08895
"""

import argparse
import pathlib

import keras
import numpy as np

from keras_attention import MemoryNetwork
from keras_attention.plotting import Hops, attention_weights, plot_hops

SEED = 0
TRAIN_SIZE, TEST_SIZE = 5000, 500
UNITS, HOPS, BATCH_SIZE, LEARNING_RATE = 32, 2, 50, 0.01
LINEAR_EPOCHS, EPOCHS = 6, 8
PEOPLE = ["Mary", "John", "Sandra", "Daniel", "Julie", "Fred"]
THINGS = ["milk", "apple", "football", "book", "hat", "letter"]
PLACES = ["kitchen", "garden", "office", "bathroom", "cinema", "park", "school", "bedroom"]
PICTURE = pathlib.Path("output/follow_stories.png")

# `--help` explains this script, and trains nothing.
argparse.ArgumentParser(usage=__doc__).parse_known_args()

keras.utils.set_random_seed(SEED)
rng = np.random.default_rng(SEED)


# %%
# Data
# ----
# In a story four people take four things and go to four places, in any order. The answer to a
# question needs two sentences. We keep their places to check the hops, and the model does not see
# them.
def make_story():
    people, things, places = (rng.permutation(names)[:4] for names in (PEOPLE, THINGS, PLACES))
    took = [f"{person} took the {thing}" for person, thing in zip(people, things, strict=True)]
    went = [f"{person} went to the {place}" for person, place in zip(people, places, strict=True)]
    order = rng.permutation(8)
    story = np.array(took + went)[order].tolist()
    facts = story.index(took[0]), story.index(went[0])
    return story, f"Where is the {things[0]}", places[0], facts


def encode(sentence, length=6):
    ids = [VOCABULARY.index(word) + 1 for word in sentence.split()]
    return ids + [0] * (length - len(ids))  # 0 is padding


made = [make_story() for _ in range(TRAIN_SIZE + TEST_SIZE)]
stories, questions, answers, facts = zip(*made, strict=True)
sentences = [sentence for story in stories for sentence in story] + list(questions)
VOCABULARY = sorted({word for sentence in sentences for word in sentence.split()})
story_ids = np.array([[encode(sentence) for sentence in story] for story in stories])
question_ids = np.array([encode(question) for question in questions])
answer_ids = np.array([VOCABULARY.index(answer) + 1 for answer in answers])
train, test = slice(TRAIN_SIZE), slice(TRAIN_SIZE, None)

# %%
# Model
# -----
# The network takes word ids: the story, (sentences, words), and the question. It has embeddings of
# its own and reads no padding. Each hop reads the sentences with what the hop before has found.
story = keras.Input((None, None), dtype="int32")
question = keras.Input((None,), dtype="int32")
network = MemoryNetwork(len(VOCABULARY) + 1, UNITS, hops=HOPS, name="network")
model = keras.Model([story, question], network(story, question))

# %%
# Training
# --------
# The first epochs leave the softmax out. The paper calls this a linear start. Without it the
# network does not find the two sentences.
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.Adam(LEARNING_RATE), loss)
inputs, answer = [story_ids[train], question_ids[train]], answer_ids[train]
network.linear = True
model.fit(inputs, answer, batch_size=BATCH_SIZE, epochs=LINEAR_EPOCHS, verbose=2)
network.linear = False
model.fit(inputs, answer, batch_size=BATCH_SIZE, epochs=EPOCHS, verbose=2)

# %%
# Result
# ------
# A guess among the four places of a story is right in a quarter of the cases.
# :py:obj:`keras_attention.plotting.attention_weights` returns the weights of both hops, and their
# largest weights should be at the two sentences.
test_inputs, truth = [story_ids[test], question_ids[test]], answer_ids[test]
predictions = model.predict(test_inputs, verbose=0).argmax(axis=-1)
weights = attention_weights(model, test_inputs)["network"]
accuracy = np.mean(predictions == truth)
read = weights.argmax(axis=-1) == np.array(facts[test])
first, second = read.mean(axis=0)
samples = []
for n in range(2):
    number = TRAIN_SIZE + n
    predicted = VOCABULARY[predictions[n] - 1]
    print(". ".join(stories[number]) + ".")
    print(f"    {questions[number]}? predicted: {predicted}, truth: {answers[number]}")
    samples.append(
        Hops(
            [f"{sentence}." for sentence in stories[number]],
            weights[n],
            question=f"{questions[number]}?",
            answer=predicted,
            expected=str(answers[number]),
            facts=facts[number],
        )
    )
print(f"{accuracy:.1%} of the answers are right.")
print(f"The first hop finds who took the thing in {first:.1%} of the stories,")
print(f"the second where this person went in {second:.1%}.")
assert accuracy > 0.8, "The network should put two sentences together."
assert min(first, second) > 0.8, "Each hop should read its sentence."

# %%
# Picture
# -------
# Two new stories: :py:obj:`keras_attention.plotting.Hops` holds a story with its weights, and
# :py:obj:`keras_attention.plotting.plot_hops` draws a column for each hop.
figure = plot_hops(*samples)
figure.suptitle("What the two hops read; the sentences that decide are bold", y=1.08)
PICTURE.parent.mkdir(parents=True, exist_ok=True)
figure.savefig(PICTURE, bbox_inches="tight")
print(f"The picture is in {PICTURE}.")
