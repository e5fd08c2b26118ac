"""Connections that end when the headers of a request are late."""

import asyncio
import json


class Connection(asyncio.Protocol):
    """Closes a connection of aiohttp when the headers of a request do not arrive in time.

    aiohttp itself only limits how long a connection may be idle.

    Args:
        protocol: the protocol that a `web.Server` makes.
        seconds: the largest time between the first and the last byte of the headers.
    """

    def __init__(self, protocol, seconds):
        self._protocol, self._seconds = protocol, seconds
        self._idle, self._timer = True, None
        for name in ("eof_received", "pause_writing", "resume_writing"):
            setattr(self, name, getattr(protocol, name))

    def connection_made(self, transport):
        self._transport = transport
        self._protocol.connection_made(transport)

    def data_received(self, data):
        if self._idle:
            self._idle = False
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self._close)
        self._protocol.data_received(data)

    def connection_lost(self, error):
        self.begin_request()
        self._protocol.connection_lost(error)

    def begin_request(self):
        """Call this when all headers have arrived."""
        self._idle = False
        if self._timer:
            self._timer.cancel()

    def end_request(self):
        """Call this when the next byte begins another request."""
        self._idle = True

    def _close(self):
        message = f"the headers did not come within {self._seconds:g} seconds"
        body = json.dumps({"error": message}).encode()
        head = (
            "HTTP/1.1 408 Request Timeout\r\nContent-Type: application/json; charset=utf-8\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self._transport.write(head.encode() + body)
        self._transport.close()
