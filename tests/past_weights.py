"""An attention with a state, for the tests: its score sees the sum of its past weights."""

import keras

from keras_attention import RecurrentScoringMixin
from keras_attention.backend import ops


@keras.saving.register_keras_serializable(package="tests")
class PastWeightsAttention(RecurrentScoringMixin):
    """e_j = q W . k_j / 4 - p z_j, where z is the sum of the weights of all steps before."""

    def build(self, query_shape, value_shape=None, key_shape=None):
        super().build(query_shape, value_shape, key_shape)
        self.kernel = self.add_weight((query_shape[-1], (key_shape or value_shape)[-1]), name="W")
        self.penalty = self.add_weight((), name="p", autocast=False)

    def initial_state(self, memory):
        return ops.zeros(ops.shape(memory.value)[:2])

    def project_query(self, query):
        return self.project(query, self.kernel)

    def score(self, query, key, state):
        product = ops.matmul(query, ops.transpose(key, (0, 2, 1)))
        return product / 4 - self.penalty * ops.expand_dims(state, 1)

    def next_state(self, state, weights):
        return state + weights
