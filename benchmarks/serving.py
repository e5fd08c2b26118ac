"""Measures how fast `examples/serve_model.py` answers, and checks its answers.

    python benchmarks/serving.py output/translate/saved_model [--output FILE]

Starts a server for the SavedModel of `python -m examples.translation`, with and without batching.
`--clients` clients send `--requests` requests at the same time. The benchmark prints requests per
second and waiting times. It compares every answer with the SavedModel called directly, one text at
a time: texts and integers must be equal, other numbers within 1e-5. Padding after the end of a
shorter text is ignored. The clients need aiohttp.
"""

import argparse
import asyncio
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.request

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

import numpy as np
from measure import print_table, write_json

from examples.common import dates

ROOT = pathlib.Path(__file__).resolve().parents[1]
SEED = 7


def call_directly(path, rows):
    """Returns the answers of the SavedModel, called with one text at a time."""
    import tensorflow as tf
    import tensorflow_text  # its operations  # noqa: F401

    loaded = tf.saved_model.load(path)
    found = []
    for row in rows:
        inputs = {name: tf.constant([text]) for name, text in row.items()}
        outputs = loaded.signatures["serving_default"](**inputs)
        one = {name: as_json(x.numpy()[0]) for name, x in outputs.items()}
        found.append(one)
    return found


def as_json(value):
    """Converts bytes to text, as JSON needs it."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, np.ndarray) and value.dtype == object:
        return [as_json(one) for one in value]
    return value.tolist()


async def send_all(address, rows, clients):
    """Sends all rows, each client one after the other; answers, seconds of each, and of all."""
    import aiohttp

    queue = list(enumerate(rows))[::-1]
    answers, seconds = [None] * len(rows), [0.0] * len(rows)

    async def client(session):
        while queue:
            number, row = queue.pop()
            begin = time.perf_counter()
            async with session.post(address, json=row) as response:
                answers[number] = response.status, await response.json()
            seconds[number] = time.perf_counter() - begin

    connector = aiohttp.TCPConnector(limit=clients)
    begin = time.perf_counter()
    async with aiohttp.ClientSession(connector=connector) as session:
        await asyncio.gather(*(client(session) for _ in range(clients)))
    return answers, seconds, time.perf_counter() - begin


def measure(path, rows, clients, max_batch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, str(ROOT / "examples" / "serve_model.py"), os.path.abspath(path)]
    command += ["--port", str(port), "--max-batch", str(max_batch)]
    address = f"http://127.0.0.1:{port}"
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until_ready(server, f"{address}/health")
        asyncio.run(send_all(f"{address}/predict", rows[:clients], clients))  # warms up
        return asyncio.run(send_all(f"{address}/predict", rows, clients))
    finally:
        server.send_signal(signal.SIGINT)
        server.wait()


def wait_until_ready(server, address):
    while server.poll() is None:
        try:
            with urllib.request.urlopen(address) as response:
                if response.status == 200:
                    return
        except OSError:  # the model is being loaded
            time.sleep(0.5)
    raise SystemExit("the server did not start: run examples/serve_model.py for its message")


def difference(found, expected):
    """Returns the largest difference of numbers, infinite where texts, integers or sizes differ."""
    if isinstance(expected, dict):
        same = isinstance(found, dict) and set(found) == set(expected)
        pairs = [(found[name], expected[name]) for name in expected] if same else None
    elif isinstance(expected, list):
        # Another text of the batch may be longer.
        same = isinstance(found, list) and len(found) >= len(expected)
        pairs = list(zip(found, expected, strict=False)) if same else None
    else:
        if isinstance(expected, float) and isinstance(found, int | float):
            return abs(found - expected)
        return 0.0 if found == expected else float("inf")
    if pairs is None:
        return float("inf")
    return max((difference(a, b) for a, b in pairs), default=0.0)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", help="the SavedModel of the date translator")
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--output", help="a file for the numbers, as JSON")
    options = parser.parse_args()
    [(texts, _)] = dates.make_pairs([options.requests], SEED)
    rows = [{"source": text} for text in texts]
    expected = call_directly(options.path, rows)
    table, wrong = [], 0
    for name, max_batch in (("together", 64), ("one by one", 1)):
        answers, seconds, total = measure(options.path, rows, options.clients, max_batch)
        gaps = [
            difference(answer, one) if status == 200 else float("inf")
            for (status, answer), one in zip(answers, expected, strict=True)
        ]
        bad = sum(not gap <= 1e-5 for gap in gaps)
        wrong += bad
        ordered = sorted(seconds)
        table.append(
            {
                "answered": name,
                "requests a second": len(rows) / total,
                "median ms": 1e3 * statistics.median(ordered),
                "99% ms": 1e3 * ordered[int(0.99 * len(ordered))],
                "wrong": float(bad),
                "difference": max(gaps),
            }
        )
    print(f"{options.requests} requests, {options.clients} clients")
    print_table(list(table[0]), [list(row.values()) for row in table])
    if options.output:
        write_json(options.output, {"rows": table})
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
