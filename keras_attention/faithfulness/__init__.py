"""Whether the weights of a classifier are reasons for its predictions.

A reason is faithful if the prediction depends on it. These functions erase parts of the input
(DeYoung et al., 2020), and compare the weights of models that differ in their seed only (Jain and
Wallace, 2019; Wiegreffe and Pinter, 2019). They take any classifier and any importance of its
parts: attention weights, `gradient_times_input`, the coefficients of a linear model, or random
numbers, which the others should beat.

References: https://aclanthology.org/2020.acl-main.408, section 4;
https://aclanthology.org/N19-1357; https://aclanthology.org/D19-1002
"""

from keras_attention.faithfulness.agreement import jensen_shannon, overlap
from keras_attention.faithfulness.erasure import comprehensiveness, erase, sufficiency
from keras_attention.faithfulness.gradient import gradient_times_input

__all__ = [
    "comprehensiveness",
    "erase",
    "gradient_times_input",
    "jensen_shannon",
    "overlap",
    "sufficiency",
]
