"""Counts what the loops of a recurrence store."""

from keras_attention import recurrence
from keras_attention.backend import leaves, scan


def counted_outputs(monkeypatch):
    """A list to which every loop adds the number of tensors that it stores for each step."""
    counts = []

    def counting(*arguments, **options):
        last, outputs = scan(*arguments, **options)
        counts.append(len(leaves(outputs)))
        return last, outputs

    monkeypatch.setattr(recurrence, "scan", counting)
    return counts
