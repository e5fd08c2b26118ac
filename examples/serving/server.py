"""The HTTP addresses of the server, with the requests of TensorFlow Serving."""

import asyncio
import logging
import time

from examples.serving.batcher import Batcher
from examples.serving.refused import Refused
from examples.serving.rows import read_rows

MIB = 2**20


def make_app(model, options, stop):
    """Makes the addresses of the server; `stop` is the event that ends it."""
    from aiohttp import web

    base, started = f"/v1/models/{options.name}", time.time()

    async def predict(request):
        body = await read_body(request, options.max_body, options.timeout)
        rows, by_columns = read_rows(body, model.names, options.max_rows, options.max_length)
        found = await request.app["batcher"].submit(rows)
        if len(found[0]) == 1:  # without its name, as in TensorFlow Serving
            (only,) = found[0]
            found = [row[only] for row in found]
            return answer(200, {"outputs" if by_columns else "predictions": found})
        if by_columns:
            return answer(200, {"outputs": {name: [x[name] for x in found] for name in found[0]}})
        return answer(200, {"predictions": found})

    async def status(_):
        state = {"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK"}}
        return answer(200, {"model_version_status": [state]})

    async def metadata(_):
        spec = {"name": options.name, "signature_name": "", "version": "1"}
        return answer(200, {"model_spec": spec, "metadata": model.metadata()})

    async def health(_):
        return answer(200, {"status": "ok", "seconds": round(time.time() - started)})

    @web.middleware
    async def connections(request, handler):
        connection = request.transport.get_protocol() if request.transport else None
        if connection:  # None after the client has left
            connection.begin_request()
        found = await handler(request)
        if stop.is_set() or request.can_read_body:
            found.force_close()  # the client cannot send another request here
        elif connection:
            connection.end_request()
        return found

    @web.middleware
    async def errors(request, handler):
        try:
            return await handler(request)
        except Refused as error:
            return answer(error.status, {"error": str(error)})
        except web.HTTPException as error:
            paths = f"POST {base}:predict, GET {base}, {base}/metadata, /healthz"
            message = f"{error.status} {error.reason}: {request.method} {request.path[:200]}"
            return answer(error.status, {"error": f"{message}; the addresses are {paths}"})
        except Exception:
            logging.exception("%s %s", request.method, request.path)
            return answer(500, {"error": "the model failed; the server's log says why"})

    def answer(code, content):
        return web.json_response(content, status=code)

    async def batching(app):
        app["batcher"] = Batcher(model.predict, options.max_batch, options.max_waiting)
        yield
        await app["batcher"].close()

    app = web.Application(middlewares=[connections, errors])
    app.cleanup_ctx.append(batching)
    app.router.add_post(f"{base}:predict", predict)
    app.router.add_get(base, status)
    app.router.add_get(f"{base}/metadata", metadata)
    app.router.add_get("/healthz", health)
    return app


async def read_body(request, limit, seconds):
    """Reads the body of a request.

    A body that is too large is read to its end too, because the client only then reads the answer.
    """
    from aiohttp import web

    parts, size = [], 0
    try:
        async with asyncio.timeout(seconds):
            async for part in request.content.iter_any():
                size += len(part)
                if size <= limit:
                    parts.append(part)
                elif size > limit + 64 * MIB:
                    break
    except TimeoutError:
        raise Refused(408, f"{size} bytes came within {seconds:g} seconds, not all") from None
    except web.RequestPayloadError as error:
        reason = " ".join(str(error).split())
        raise Refused(400, f"the body is broken: {reason[:200]}") from None
    if size > limit:
        raise Refused(413, f"a body of {size} bytes or more; at most {limit}")
    return b"".join(parts)
