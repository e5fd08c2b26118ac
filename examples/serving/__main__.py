"""Serves the SavedModel of a task over HTTP, with neither keras nor keras_attention.

    python -m examples.serving output/translate/saved_model
    curl -d '{"instances": ["3rd of May 1998"]}' localhost:8501/v1/models/model:predict

It accepts the requests of TensorFlow Serving, so clients can use either server:

    POST /v1/models/NAME:predict   {"instances": [...]} takes strings, or objects with a string for
                                   each input; the answer is {"predictions": [...]}.
                                   {"inputs": {"name": [...]}} takes columns; the answer is
                                   {"outputs": {...}}.
    GET  /v1/models/NAME           whether the model is ready
    GET  /v1/models/NAME/metadata  names, types and shapes of inputs and outputs
    GET  /healthz                  whether the server runs

The server serves models that take strings, one a row for each input: the models of the tasks, and
for example Keras models of `keras.Input((), dtype="string")`.

Requests that arrive while the model is busy are answered together, which is several times as fast
(`--max-batch 1` answers them one by one). The texts of a batch are padded to the longest one, so
arrays over tokens may be longer than for one text alone.

The answer says what is wrong with a request: 400 malformed, 408 body not sent within `--timeout`,
413 too large, 503 more waiting than `--max-waiting`. A connection ends when no whole request comes
within `--timeout`. SIGTERM and Ctrl-C stop the server after the current requests, or after
30 seconds.

The server only listens on this machine unless you pass `--host`. It has no passwords, no encryption
and no limit of connections. On an open network, put a proxy in front of it that has them.

Needs aiohttp: pip install "keras-attention-layers[serve]".
"""

import argparse
import contextlib
import pathlib
import re
import socket

from examples.common.arguments import between, check_extras, count, make_parser
from examples.common.run_saved_model import check_absent, forbid_keras, load_text_operations

LIMITS = {
    "max-batch": (64, "most instances in a batch"),
    "max-waiting": (4096, "most waiting instances"),
    "max-rows": (256, "most instances in a request"),
    "max-length": (20_000, "most letters in a text"),
    "max-body": (2**20, "most bytes in a request"),
    "timeout": (30, "most seconds for the headers of a request, and for its body"),
}
DRAIN = 30  # seconds for the last requests


def address_part(text):
    if not re.fullmatch(r"[\w.-]+", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"letters, digits and _.- only; received {text!r}")
    return text


def saved_model(text):
    if not (pathlib.Path(text) / "saved_model.pb").is_file():
        raise argparse.ArgumentTypeError(f"{text} is no SavedModel: it has no file saved_model.pb")
    return text


def parse(argv):
    parser = make_parser("serving", __doc__)
    parser.add_argument("path", type=saved_model, help="folder of a SavedModel")
    parser.add_argument("--name", default="model", type=address_part, help="name in the addresses")
    parser.add_argument("--host", default="127.0.0.1", help="pass 0.0.0.0 to serve other machines")
    port = between(int, 0, 65536)
    parser.add_argument("--port", type=port, default=8501, help="0 chooses a free port")
    for name, (most, text) in LIMITS.items():
        text = f"{text} (default: {most})"
        parser.add_argument(f"--{name}", type=count, default=most, metavar="N", help=text)
    return parser.parse_args(argv)


def main(argv=None):
    options = parse(argv)
    check_extras("aiohttp", "tensorflow_text", extra="serve")
    try:
        family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
        listening = socket.create_server((options.host, options.port), family=family)
    except OSError as error:
        raise SystemExit(f"cannot listen at {options.host}:{options.port}: {error}") from None
    forbid_keras()
    load_text_operations()
    from aiohttp import web

    from examples.serving.model import Model
    from examples.serving.requests import Refused
    from examples.serving.server import make_app

    model = Model(options.path)
    with contextlib.suppress(Refused):
        # The first call optimises the graph, so it comes before any request.
        model.predict([dict.fromkeys(model.names, "a")])
    check_absent()
    address = f"http://{options.host}:{listening.getsockname()[1]}/v1/models/{options.name}"
    print(f"{options.path} takes {', '.join(model.names)} at {address}:predict", flush=True)
    web.run_app(
        make_app(model, options),
        sock=listening,
        keepalive_timeout=options.timeout,
        shutdown_timeout=DRAIN,
        handler_cancellation=True,
        access_log=None,
        print=None,
    )


if __name__ == "__main__":
    main()
