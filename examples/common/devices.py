"""Which devices TensorFlow may use.

With another backend TensorFlow only handles text. Importing this module then hides the GPUs from
it; otherwise it would reserve their memory.
"""

import keras
import tensorflow as tf

if keras.backend.backend() != "tensorflow":
    tf.config.set_visible_devices([], "GPU")

# Whether XLA compiles the models. It compiles one program for each shape, so pad to few shapes.
COMPILED = keras.backend.backend() != "tensorflow" or tf.config.list_physical_devices("GPU")
