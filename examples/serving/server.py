"""The HTTP addresses of the server, with the requests of TensorFlow Serving."""

import asyncio
import logging
import time

from aiohttp import web

from examples.serving.batcher import Batcher
from examples.serving.requests import Refused, read_rows


def make_app(model, options):
    """Makes the addresses of the server."""
    base, started = f"/v1/models/{options.name}", time.time()
    batcher = Batcher(model.predict, options.max_batch, options.max_waiting)

    async def predict(request):
        body = await read_body(request, options.max_body, options.timeout)
        rows, by_columns = read_rows(body, model.names, options.max_rows, options.max_length)
        found = await batcher.submit(rows)
        if len(found[0]) == 1:  # without its name, as in TensorFlow Serving
            (only,) = found[0]
            found = [row[only] for row in found]
        elif by_columns:
            found = {name: [row[name] for row in found] for name in found[0]}
        return web.json_response({"outputs" if by_columns else "predictions": found})

    async def status(_):
        state = {"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK"}}
        return web.json_response({"model_version_status": [state]})

    async def metadata(_):
        spec = {"name": options.name, "signature_name": "", "version": "1"}
        return web.json_response({"model_spec": spec, "metadata": model.metadata()})

    async def health(_):
        return web.json_response({"status": "ok", "seconds": round(time.time() - started)})

    @web.middleware
    async def errors(request, handler):
        try:
            return await handler(request)
        except Refused as error:
            status, message = error.status, str(error)
        except web.HTTPException as error:
            status, paths = (
                error.status,
                f"POST {base}:predict, GET {base}, {base}/metadata, /healthz",
            )
            message = f"{error.status} {error.reason}: {request.method} {request.path[:200]}"
            message += f"; the addresses are {paths}"
        except Exception:
            logging.exception("%s %s", request.method, request.path)
            status, message = 500, "the model failed; the server's log says why"
        return web.json_response({"error": message}, status=status)

    app = web.Application(middlewares=[errors], client_max_size=options.max_body)
    app.router.add_post(f"{base}:predict", predict)
    app.router.add_get(base, status)
    app.router.add_get(f"{base}/metadata", metadata)
    app.router.add_get("/healthz", health)
    return app


async def read_body(request, limit, seconds):
    """Reads the body of a request. aiohttp reads the rest of one that is refused."""
    try:
        async with asyncio.timeout(seconds):
            return await request.read()
    except TimeoutError:
        raise Refused(408, f"the body did not come within {seconds} seconds") from None
    except web.HTTPRequestEntityTooLarge:
        raise Refused(413, f"the body is too large; at most {limit} bytes") from None
    except web.RequestPayloadError as error:
        reason = " ".join(str(error).split())
        raise Refused(400, f"the body is broken: {reason[:200]}") from None
