"""A picture of what was said and where the attention was."""

import matplotlib.figure
import numpy as np

from examples.common.files import save_figure
from examples.speech.model import SHARED

MOST_LABELS = 60


def draw(path, frames, weights, text, title):
    """Draws the log-mel frames, and below them the weights of the letters over time.

    Args:
        path: the PNG file.
        frames: `(T, MELS)`.
        weights: `(letters, T / SHARED)`.
        text: the letters.
    """
    width = min(4 + len(frames) / 60, 30)
    height = 3 + min(len(text), MOST_LABELS) / 7
    figure = matplotlib.figure.Figure(figsize=(width, height), layout="constrained")
    above, below = figure.subplots(2, sharex=True, height_ratios=[2, height - 2])
    time = SHARED * weights.shape[1]
    above.imshow(np.transpose(frames), origin="lower", aspect="auto", extent=(0, len(frames), 0, 1))
    above.set(title=title, yticks=[], ylabel="mel bands")
    below.imshow(
        weights,
        aspect="auto",
        extent=(0, time, len(text), 0),
        vmin=0,
        cmap="Blues",
        interpolation="nearest",
    )
    labels = [*text] if len(text) <= MOST_LABELS else []
    below.set(yticks=np.arange(len(labels)) + 0.5, yticklabels=labels)
    below.set(xlabel="frames", ylabel="letters", xlim=(0, max(time, len(frames))))
    save_figure(path, figure)
