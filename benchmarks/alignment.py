"""After how many epochs additive attention reads in order, with each loss of the alignment.

    python benchmarks/alignment.py [listen] [--losses none guided forward-sum] [--seeds 1 2]

trains the listener, or with `speak` the speaker, of `examples.speech` on its language of tones.
After each epoch it measures, on held-out utterances, the share of the weight within `BAND` letters
of the diagonal. A model stops at `ENOUGH`. Texts of fewer than `LEAST` letters do not count,
because most of their places are near.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import keras
import numpy as np

from examples.common.training import seed_model, warmup_cosine
from examples.speech.__main__ import EPOCHS, parse
from examples.speech.data import make_data
from examples.speech.model import ALIGNMENT_LOSSES, LOSSES, build_model
from examples.speech.tones import Tones
from keras_attention.plotting import attention_weights

BAND, LEAST, ENOUGH = 2, 10, 0.8


def share_in_order(weights):
    """The share of the weights `(letters, other steps)` within `BAND` letters of the diagonal."""
    letters, steps = weights.shape
    places = (np.arange(steps) + 0.5) / steps * letters - 0.5
    near = np.abs(places - np.arange(letters)[:, None]) <= BAND
    return (weights * near).sum() / weights.sum()


def read(task, model, batch):
    """The weights of each utterance of a batch, `(letters, other steps)`, without padding."""
    if task == "listen":
        source, target = batch[0]
        weights = keras.ops.convert_to_numpy(model.log_probability(source, target).weights)
        sizes = zip((target > 0).sum(axis=1) - 1, source[1].sum(axis=1), strict=True)
    else:
        letters, _, valid = batch[0]
        weights = attention_weights(model, batch[0])["decoder"]
        sizes = zip(valid.sum(axis=1), (letters > 0).sum(axis=1), strict=True)
    weights = [x[:n, :m] for x, (n, m) in zip(weights, sizes, strict=True)]
    return weights if task == "listen" else [x.T for x in weights]


class InOrder(keras.callbacks.Callback):
    """Prints the share after each epoch, and ends the training when it is enough."""

    def __init__(self, task, training, validation):
        super().__init__()
        self.task, self.training, self.validation = task, training, validation

    def on_epoch_begin(self, epoch, logs=None):
        self.training.epoch = epoch

    def on_epoch_end(self, epoch, logs=None):
        weights = [x for batch in self.validation() for x in read(self.task, self.model, batch)]
        share = float(np.mean([share_in_order(x) for x in weights if len(x) >= LEAST]))
        print(f"epoch {epoch + 1}: {share:.3f}", flush=True)
        self.model.stop_training = share >= ENOUGH


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("task", nargs="?", choices=EPOCHS, default="listen")
    parser.add_argument("--losses", nargs="+", choices=ALIGNMENT_LOSSES, default=ALIGNMENT_LOSSES)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2])
    chosen = parser.parse_args()
    task, language, epochs = chosen.task, Tones(), EPOCHS[chosen.task]
    for seed in chosen.seeds:
        for loss in chosen.losses:
            print(f"{task}, {loss}, seed {seed}", flush=True)
            options = parse([task, "--attention", "content", "--seed", str(seed)])
            batches, checked, steps = make_data(task, language, options, epochs)
            seed_model(seed)
            sample = next(checked())[0]
            model = build_model(task, options, len(language.letters), steps, sample, loss=loss)
            rate = warmup_cosine(options.learning_rate, epochs * batches.steps, last=0.01)
            model.compile(keras.optimizers.Adam(rate, global_clipnorm=1.0), LOSSES[task])
            in_order = InOrder(task, batches, checked)
            data = batches.dataset()
            model.fit(data, epochs=epochs, callbacks=[in_order], shuffle=False, verbose=0)


if __name__ == "__main__":
    main()
