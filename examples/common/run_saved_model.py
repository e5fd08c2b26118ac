"""Runs the SavedModel of a task in a process that has neither keras nor keras_attention.

    python -m examples.common.run_saved_model output/translate/saved_model \\
        '{"texts": ["3rd of May 1998"]}'

The second argument is a JSON object with a list of strings, or of lists of numbers, for each input.
Without it, the object is read from standard input. The program prints one JSON object: the outputs
of `serving_default`, and under "absent" the modules that this process did not have.

It needs tensorflow and the compiled operations of tensorflow-text. Copy this file alone to use it
elsewhere: it imports nothing else of the examples.
"""

import importlib.util
import json
import pathlib
import sys

ABSENT = ("keras", "keras_attention", "tf_keras")


def forbid_keras():
    """Prevents this process from importing keras and keras_attention."""
    sys.modules.update(dict.fromkeys(ABSENT))


def load_text_operations():
    """Loads the operations of tensorflow-text. Importing the package would import keras."""
    import tensorflow as tf

    spec = importlib.util.find_spec("tensorflow_text")
    if spec is None:
        raise SystemExit('tensorflow-text is missing: pip install "keras-attention-layers[text]"')
    for library in sorted((pathlib.Path(spec.origin).parent / "python" / "ops").glob("*.so")):
        tf.load_op_library(str(library))


def main(directory, text):
    forbid_keras()
    import tensorflow as tf

    load_text_operations()
    loaded = tf.saved_model.load(directory)
    signature, inputs = loaded.signatures["serving_default"], json.loads(text)
    specs = signature.structured_input_signature[1]
    if not isinstance(inputs, dict) or inputs.keys() != specs.keys():
        names = ", ".join(sorted(specs))
        raise SystemExit(f"{directory} takes a JSON object with a list for each of {names}")
    outputs = signature(**{name: tf.constant(x, specs[name].dtype) for name, x in inputs.items()})
    result = {name: _decoded(value.numpy().tolist()) for name, value in outputs.items()}
    print(json.dumps({"absent": ABSENT, **result}))


def _decoded(value):
    if isinstance(value, list):
        return [_decoded(item) for item in value]
    return value.decode() if isinstance(value, bytes) else value


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        raise SystemExit(__doc__)
    main(sys.argv[1], sys.argv[2] if len(sys.argv) == 3 else sys.stdin.read())
