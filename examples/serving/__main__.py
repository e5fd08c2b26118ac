"""Serves the SavedModel of a task over HTTP, with neither keras nor keras_attention.

    python -m examples.serving output/translate/saved_model
    curl -d '{"instances": ["3rd of May 1998"]}' localhost:8501/v1/models/model:predict

It speaks the row format of TensorFlow Serving's REST API:

    POST /v1/models/model:predict  {"instances": [...]} takes strings, or objects with a string for
                                   each input; the answer is {"predictions": [...]}.
    GET  /v1/models/model          whether the model is ready

The server takes models whose inputs are strings, one a row: the models of the tasks, and for
example Keras models of `keras.Input((), dtype="string")`.

Requests that arrive while the model is busy are answered together, which is several times as fast
(`--max-batch 1` answers them one by one). The texts of a batch are padded to the longest one, so
arrays over tokens may be longer than for one text alone.

The answer says what is wrong with a request: 400 malformed, 408 body not sent within `--timeout`,
413 too large, 503 more waiting than `--max-waiting`. SIGTERM and Ctrl-C stop the server after the
current requests, or after 30 seconds.

The server only listens on this machine unless you pass `--host`. It has no passwords, no encryption
and no limit of connections. On an open network, put a proxy in front of it that has them.

Needs aiohttp: pip install "keras-attention-layers[serve]".
"""

import argparse
import asyncio
import logging
import pathlib
import socket

from examples.common.arguments import between, check_extras, count, make_parser
from examples.common.run_saved_model import forbid_keras, load_text_operations

LIMITS = {
    "max-batch": (64, "instances after which no request is added to a batch"),
    "max-waiting": (4096, "most instances that wait for an answer"),
    "max-rows": (256, "most instances in a request"),
    "max-length": (20_000, "most characters in a text"),
    "max-body": (2**20, "most bytes in a request"),
    "timeout": (30, "most seconds for the body of a request"),
}
ADDRESS = "/v1/models/model"


def saved_model(text):
    if not (pathlib.Path(text) / "saved_model.pb").is_file():
        raise argparse.ArgumentTypeError(f"{text} is no SavedModel: it has no file saved_model.pb")
    return text


def parse(argv):
    parser = make_parser("serving", __doc__)
    parser.add_argument("path", type=saved_model, help="folder of a SavedModel")
    parser.add_argument("--host", default="127.0.0.1", help="pass 0.0.0.0 to serve other machines")
    port = between(int, 0, 65536)
    parser.add_argument("--port", type=port, default=8501, help="0 chooses a free port")
    for name, (most, text) in LIMITS.items():
        text = f"{text} (default: {most})"
        parser.add_argument(f"--{name}", type=count, default=most, metavar="N", help=text)
    return parser.parse_args(argv)


def make_app(model, batcher, options):
    """Makes the aiohttp application."""
    from aiohttp import web

    async def predict(request):
        try:
            body = await asyncio.wait_for(request.read(), options.timeout)
            found = await batcher.submit(model.read(body, options.max_rows, options.max_length))
        except TimeoutError:
            message = f"the body did not come within {options.timeout} seconds"
            raise web.HTTPRequestTimeout(text=message) from None
        except asyncio.QueueFull:
            raise web.HTTPServiceUnavailable(text="too many instances wait; try later") from None
        except (ValueError, web.RequestPayloadError) as error:
            raise web.HTTPBadRequest(text=str(error)) from error
        if len(found[0]) == 1:  # without its name, as in TensorFlow Serving
            found = [next(iter(row.values())) for row in found]
        return web.json_response({"predictions": found})

    async def status(_):
        state = {"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK"}}
        return web.json_response({"model_version_status": [state]})

    @web.middleware
    async def errors(request, handler):
        try:
            return await handler(request)
        except web.HTTPException as error:
            status, message = error.status, error.text
        except Exception:
            logging.exception("%s %s", request.method, request.path)
            status, message = 500, "the model failed; the server's log says why"
        return web.json_response({"error": message}, status=status)

    app = web.Application(middlewares=[errors], client_max_size=options.max_body)
    app.add_routes([web.post(f"{ADDRESS}:predict", predict), web.get(ADDRESS, status)])
    app.cleanup_ctx.append(batcher.run)
    return app


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

    from examples.serving.model import Batcher, Model

    model = Model(options.path)
    model.warm_up()
    host = f"[{options.host}]" if family == socket.AF_INET6 else options.host
    address = f"http://{host}:{listening.getsockname()[1]}{ADDRESS}:predict"
    print(f"{options.path} takes {', '.join(model.names)} at {address}", flush=True)
    web.run_app(
        make_app(model, Batcher(model.predict, options.max_batch, options.max_waiting), options),
        sock=listening,
        shutdown_timeout=30,
        handler_cancellation=True,
        access_log=None,
        print=None,
    )


if __name__ == "__main__":
    main()
