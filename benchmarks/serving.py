"""Measures how fast `python -m examples.serving` answers, and checks its answers.

    python benchmarks/serving.py translate output/translate/saved_model [--output FILE]

Starts a server for the SavedModel of a task, with and without batching. `--clients` clients send
`--requests` requests at the same time. The benchmark prints requests per second and waiting times.
It compares every answer with the SavedModel called directly, one text at a time: texts and integers
must be equal, other numbers within 1e-5. Padding after the end of a shorter text is ignored.
"""

import argparse
import asyncio
import os
import pathlib
import random
import statistics
import subprocess
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

import numpy as np
from measure import add_record, print_table, write_json, write_record

from examples.common import dates
from examples.common.run_saved_model import load_text_operations
from examples.documents import letters
from examples.question_answering import passages
from examples.stories import generator

ROOT = pathlib.Path(__file__).resolve().parents[1]
SEED = 7


def make_texts(task, count):
    """Makes inputs as the task does, with another seed."""
    if task == "translate":
        return [{"source": text} for text in dates.make_pairs([count], SEED)[0][0]]
    if task == "answer":
        [made] = passages.make_sets([count], SEED)
        return [{"passage": x.passage, "question": x.question} for x in made]
    if task == "classify":
        return [{"texts": x.text} for x in letters.make(count, SEED)[0]]
    rng = random.Random(SEED)
    made = [question for facts in (1, 2, 3) for question in generator.make(count, facts, SEED)]
    made = rng.sample(made, count)
    return [{"story": "\n".join(x.story), "question": x.text} for x in made]


def call_directly(path, rows):
    """Returns the answers of the SavedModel, called with one text at a time."""
    import tensorflow as tf

    load_text_operations()
    loaded = tf.saved_model.load(path)
    found = []
    for row in rows:
        inputs = {name: tf.constant([text]) for name, text in row.items()}
        outputs = loaded.signatures["serving_default"](**inputs)
        one = {name: as_json(x.numpy()[0]) for name, x in outputs.items()}
        # The server leaves out the name of a single output.
        found.append(one if len(one) > 1 else next(iter(one.values())))
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
            async with session.post(address, json={"instances": [row]}) as response:
                answers[number] = response.status, await response.json()
            seconds[number] = time.perf_counter() - begin

    connector = aiohttp.TCPConnector(limit=clients)
    begin = time.perf_counter()
    async with aiohttp.ClientSession(connector=connector) as session:
        await asyncio.gather(*(client(session) for _ in range(clients)))
    return answers, seconds, time.perf_counter() - begin


def measure(path, rows, clients, max_batch):
    command = [sys.executable, "-m", "examples.serving", os.path.abspath(path), "--port", "0"]
    command += ["--max-batch", str(max_batch)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8", cwd=ROOT)
    try:
        with server.stdout as output:
            line = output.readline()
        if " at http" not in line:
            raise SystemExit(f"the server did not start: {line or 'see its message above'}")
        address = line.split(" at ")[-1].strip()
        asyncio.run(send_all(address, rows[:clients], clients))  # warms up
        return asyncio.run(send_all(address, rows, clients))
    finally:
        server.terminate()
        server.wait()


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
    parser.add_argument("task", choices=("translate", "answer", "classify", "babi"))
    parser.add_argument("path", help="its SavedModel")
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--output", help="a file for the numbers, as JSON")
    add_record(parser)
    options = parser.parse_args()
    rows = make_texts(options.task, options.requests)
    expected = call_directly(options.path, rows)
    table, wrong = [], 0
    for name, max_batch in (("together", 64), ("one by one", 1)):
        answers, seconds, total = measure(options.path, rows, options.clients, max_batch)
        gaps = [
            difference(answer["predictions"][0], one) if status == 200 else float("inf")
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
    print(f"{options.task}: {options.requests} requests, {options.clients} clients")
    lines = print_table(list(table[0]), [list(row.values()) for row in table])
    write_record(options.record, tables={options.task: lines})
    if options.output:
        write_json(options.output, {"example": options.task, "rows": table})
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
