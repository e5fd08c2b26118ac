"""Learning rates that change during training."""

import keras


def warmup_cosine(highest, steps, last):
    """Rises to `highest` in a tenth of the steps, at most 200, then falls as a cosine.

    Args:
        highest: the highest learning rate.
        steps: the number of training steps.
        last: the learning rate at the end, as a fraction of the highest.
    """
    warmup = min(200, steps // 10)
    return keras.optimizers.schedules.CosineDecay(
        0.0, steps - warmup, warmup_target=highest, warmup_steps=warmup, alpha=last
    )
