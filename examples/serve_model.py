"""
Serve a SavedModel over HTTP
============================

    python examples/serve_model.py output/translate/saved_model
    curl --json '{"source": "the third of May, 1998"}' localhost:8000/predict

LitServe answers requests that arrive together as one batch. `Request` names the inputs of the
model, one text each: change it for your model. This process imports neither Keras nor this package.

Needs LitServe: pip install "keras-attention-layers[serve]".
"""

import argparse
import importlib.util
import pathlib
from typing import Annotated

import litserve
from pydantic import Field
from typing_extensions import TypedDict

# LitServe answers 422 to a request that does not fit, before it is part of a batch.
Text = Annotated[str, Field(max_length=20_000)]


class Request(TypedDict):
    """The inputs of the model of `python -m examples.translation`."""

    source: Text


class Server(litserve.LitAPI):
    """Runs `serving_default` of a SavedModel that takes a string a row for each input."""

    path = None

    def setup(self, device):
        """Loads the model, in a process of its own."""
        import tensorflow as tf

        text = importlib.util.find_spec("tensorflow_text")
        if text:  # its operations; importing the package would import Keras
            for library in sorted(pathlib.Path(text.origin).parent.glob("python/ops/*.so")):
                tf.load_op_library(str(library))
        self.constant = tf.constant
        self.loaded = tf.saved_model.load(self.path)  # TensorFlow deletes its tables with it
        self.run = self.loaded.signatures["serving_default"]
        # The first call optimises the graph.
        self.predict([dict.fromkeys(Request.__annotations__, "a")])

    def decode_request(self, request: Request):
        return request

    def predict(self, rows):
        """A list of requests to their answers; one request if `--max-batch` is 1."""
        if isinstance(rows, dict):
            return self.predict([rows])[0]
        texts = {name: self.constant([row[name] for row in rows]) for name in rows[0]}
        found = {name: output.numpy().tolist() for name, output in self.run(**texts).items()}
        return [{name: decode(x[n]) for name, x in found.items()} for n in range(len(rows))]


def decode(value):
    """Bytes to text, for JSON."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def main():
    kind = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=kind)
    parser.add_argument("path", help="folder of a SavedModel")
    parser.add_argument("--host", default="127.0.0.1", help="0.0.0.0 serves other machines")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--max-batch", type=int, default=64, help="requests answered together")
    options = parser.parse_args()
    if not pathlib.Path(options.path, "saved_model.pb").is_file():
        parser.error(f"{options.path} is no SavedModel: it has no file saved_model.pb")
    api = Server(max_batch_size=options.max_batch)
    api.path = options.path
    limits = {"max_payload_size": 2**20, "timeout": 30}  # bytes, seconds
    server = litserve.LitServer(api, accelerator="cpu", **limits)
    server.run(options.host, options.port, num_api_servers=1, generate_client_file=False)


if __name__ == "__main__":
    main()
