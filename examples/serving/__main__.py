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

The answer says what is wrong with a request: 400 malformed, 408 headers or body not sent within
`--timeout` each, 413 too large, 503 more waiting than `--max-waiting`. Between requests, a
connection may be idle for longer than `--timeout`. SIGTERM and Ctrl-C stop the server after the
current requests, or after `--drain` seconds.

The server only listens on this machine unless you pass `--host`. It has no passwords, no encryption
and no limit of connections. On an open network, put a proxy in front of it that has them.

Needs aiohttp: pip install "keras-attention-layers[serve]".
"""

import argparse
import asyncio
import contextlib
import os
import re
import signal
import sys

from examples.common.run_saved_model import check_absent, forbid_keras, load_text_operations
from examples.serving.connections import Connection
from examples.serving.model import Model
from examples.serving.refused import Refused
from examples.serving.server import MIB, make_app


def address_part(text):
    if not re.fullmatch(r"[\w.-]+", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"letters, digits and _.- only; received {text!r}")
    return text


def parse(argv):
    class Formatter(argparse.RawDescriptionHelpFormatter, argparse.ArgumentDefaultsHelpFormatter):
        pass

    parser = argparse.ArgumentParser(
        prog="python -m examples.serving", description=__doc__, formatter_class=Formatter
    )
    parser.add_argument("path", help="folder of a SavedModel")
    parser.add_argument("--name", default="model", type=address_part, help="name in the addresses")
    parser.add_argument("--host", default="127.0.0.1", help="pass 0.0.0.0 to serve other machines")
    parser.add_argument("--port", type=int, default=8501, help="0 chooses a free port")
    parser.add_argument("--max-batch", type=int, default=64, help="most instances in a batch")
    parser.add_argument("--max-waiting", type=int, default=4096, help="most waiting instances")
    parser.add_argument("--max-rows", type=int, default=256, help="most instances in a request")
    parser.add_argument("--max-length", type=int, default=20_000, help="most letters in a text")
    parser.add_argument("--max-body", type=int, default=MIB, help="most bytes in a request")
    parser.add_argument(
        "--timeout", type=float, default=30, help="seconds for the headers, and for the body"
    )
    parser.add_argument("--drain", type=float, default=30, help="seconds for the last requests")
    options = parser.parse_args(argv)
    for name in ("timeout", "drain"):
        if not getattr(options, name) > 0:
            parser.error(f"--{name} must be positive")
    if not 0 <= options.port < 65536:
        parser.error("--port must be from 0 to 65535")
    for name in ("max_batch", "max_waiting", "max_rows", "max_length", "max_body"):
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    if not os.path.isfile(os.path.join(options.path, "saved_model.pb")):
        parser.error(f"{options.path} is no SavedModel: it has no file saved_model.pb")
    return options


def main(argv=None):
    options = parse(argv)
    forbid_keras()
    try:
        from aiohttp import web
    except ImportError:
        raise SystemExit(
            'aiohttp is missing: pip install "keras-attention-layers[serve]"'
        ) from None
    load_text_operations()
    model = Model(options.path)
    with contextlib.suppress(Refused):
        # The first call optimises the graph, so it comes before any request.
        model.predict([dict.fromkeys(model.names, "a")])
    check_absent()

    async def serve():
        stop = asyncio.Event()
        app = make_app(model, options, stop)
        runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=options.drain
        )
        await runner.setup()
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(
                lambda: Connection(runner.server(), options.timeout), options.host, options.port
            )
        except OSError as error:
            raise SystemExit(f"cannot listen at {options.host}:{options.port}: {error}") from None
        for name in ("SIGINT", "SIGTERM"):
            loop.add_signal_handler(getattr(signal, name), stop.set)
        port = server.sockets[0].getsockname()[1]
        address = f"http://{options.host}:{port}/v1/models/{options.name}"
        print(f"{options.path} takes {', '.join(model.names)} at {address}:predict")
        sys.stdout.flush()
        await stop.wait()
        server.close()
        await runner.cleanup()

    asyncio.run(serve())


if __name__ == "__main__":
    main()
