"""Seeds that make a resumed or repeated run equal to the first one."""

import keras
import numpy as np


def seed_model(seed):
    """Makes the next model independent of earlier models. Call it before building each model.

    On TensorFlow this deletes the resources of existing SentencePiece tokenizers. Make new
    tokenizers after it.
    """
    keras.utils.clear_session()
    keras.utils.set_random_seed(seed)


def reseed(model, seed, step):
    """Sets the state of every random generator in a model, above all of dropout, for a step.

    Keras does not save these states with the weights, and a resumed run needs them.
    """
    weights = {id(variable) for variable in model.weights}
    generators = [variable for variable in model.variables if id(variable) not in weights]
    for index, state in enumerate(generators):
        state.assign(np.random.default_rng([seed, step, index]).integers(2**31, size=state.shape))
