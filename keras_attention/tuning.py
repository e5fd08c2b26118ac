"""Search spaces of attention for keras-tuner, and a report on what a search has tried.

Needs keras-tuner and the packages that it uses: `pip install "keras-attention-layers[tuner]"`.
"""

try:
    import keras_tuner  # noqa: F401
except ImportError as _error:
    raise ImportError(
        'keras_attention.tuning needs keras-tuner: pip install "keras-attention-layers[tuner]"'
    ) from _error

from keras_attention.tuning.hypermodel import AttentionHyperModel
from keras_attention.tuning.space import attention_space
from keras_attention.tuning.trials import completed_trials, failure_cause

__all__ = ["AttentionHyperModel", "attention_space", "completed_trials", "failure_cause"]
