"""Models that write from left to right, and from right to left."""

from keras_attention import BidirectionalEnsemble, Ensemble


def combine(left_to_right, right_to_left):
    """One model of two lists of models, of which one may be empty."""
    each = [x[0] if len(x) == 1 else Ensemble(x) for x in (left_to_right, right_to_left) if x]
    return BidirectionalEnsemble(*each) if len(each) == 2 else each[0]


def direction(backward):
    return "right to left" if backward else "left to right"
