"""The server: its answers, its refusals, and that it keeps running after both."""

import asyncio
import concurrent.futures
import contextlib
import gzip
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import tensorflow as tf

from examples.serving.__main__ import parse
from examples.serving.batcher import Batcher
from examples.serving.model import Model
from examples.serving.requests import Refused

pytest.importorskip("aiohttp", reason="aiohttp is not installed")

ROOT = Path(__file__).parents[2]
SERVER = [sys.executable, "-m", "examples.serving"]
UPPER = "/v1/models/up:predict"


class Joiner(tf.Module):
    """Joins two texts and measures the longer one. Refuses one text."""

    @tf.function(input_signature=[tf.TensorSpec((None,), tf.string, name=n) for n in ("a", "b")])
    def join(self, a, b):
        allowed = tf.debugging.assert_none_equal(a, "boom", message="no explosives")
        with tf.control_dependencies([allowed]):
            size = tf.maximum(tf.strings.length(a), tf.strings.length(b))
        nan = tf.where(a == "nan", float("nan"), tf.cast(size, "float32") / 2)
        both = tf.constant(["a", "b"])
        return {
            "joined": a + "|" + b,
            "size": size,
            "half": nan,
            "all": tf.size(both),
            "names": both,
        }


class Upper(tf.Module):
    """Refuses texts of one letter. The answer to "slow" waits until a file exists."""

    def __init__(self, path):
        self.path = str(path)

    @tf.function(input_signature=[tf.TensorSpec((None,), tf.string, name="text")])
    def upper(self, text):
        slow = tf.reduce_any(text == "slow")
        checked = tf.debugging.assert_greater(tf.strings.length(text), 1, message="too short")
        with tf.control_dependencies([checked]):
            start = tf.zeros(10**5)

        def waits(_):
            # The path depends on the time: otherwise TensorFlow looks for the file only once.
            nothing = tf.strings.substr(tf.strings.as_string(tf.timestamp()), 0, 0)
            return slow & tf.equal(tf.size(tf.io.matching_files(self.path + nothing)), 0)

        waited = tf.while_loop(waits, lambda x: [tf.sin(x)], [start])
        with tf.control_dependencies(waited):
            return {"upper": tf.strings.upper(text)}


def start(path, *options, **environment):
    command = [*SERVER, str(path), "--port", "0", *options]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, encoding="utf-8", env={**os.environ, **environment}
    )
    with process.stdout as output:
        line = output.readline()
    assert "http://127.0.0.1:" in line, line
    return process, int(line.split("127.0.0.1:")[1].split("/")[0])


def save(module, function, folder):
    tf.saved_model.save(module, str(folder), signatures=function.get_concrete_function())
    return folder


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    joiner = Joiner()
    path = save(joiner, joiner.join, tmp_path_factory.mktemp("model") / "joiner")
    process, port = start(path, "--max-rows", "10", "--max-length", "1000", "--timeout", "2")
    yield port
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 0


def ask(port, body, path="/v1/models/model:predict", method="POST"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    with contextlib.closing(connection):
        connection.request(method, path, data)
        answer = connection.getresponse()
        assert answer.getheader("Content-Type").startswith("application/json")
        return answer.status, json.loads(answer.read())


def test_rows_and_columns(port):
    rows = [{"a": "x", "b": "yy"}, {"a": "naïve ☃", "b": ""}]
    status, answer = ask(port, {"instances": rows})
    assert status == 200
    # Outputs without an axis for the texts are the same for all.
    same = {"all": 2, "names": ["a", "b"]}
    assert answer["predictions"] == [
        {"joined": "x|yy", "size": 2, "half": 1.0, **same},
        {"joined": "naïve ☃|", "size": 10, "half": 5.0, **same},
    ]
    status, answer = ask(port, {"inputs": {"a": ["x", "u"], "b": ["yy", "v"]}})
    assert (status, answer["outputs"]["joined"]) == (200, ["x|yy", "u|v"])


def test_numbers_that_json_does_not_have(port):
    _, answer = ask(port, {"instances": [{"a": "nan", "b": ""}]})
    assert answer["predictions"][0]["half"] is None


def test_what_the_server_says_about_itself(port):
    assert ask(port, None, "/healthz", "GET")[1]["status"] == "ok"
    status, answer = ask(port, None, "/v1/models/model", "GET")
    assert (status, answer["model_version_status"][0]["state"]) == (200, "AVAILABLE")
    _, answer = ask(port, None, "/v1/models/model/metadata", "GET")
    signature = answer["metadata"]["signature_def"]["signature_def"]["serving_default"]
    assert signature["inputs"]["a"]["dtype"] == "DT_STRING"
    assert signature["outputs"]["half"]["tensor_shape"]["dim"] == [{"size": "-1"}]


GOOD = {"a": "x", "b": "y"}
REFUSED = {
    "no JSON": (b"{", 400, "not JSON"),
    "no text": (b"\xff\xfe", 400, "not JSON"),
    "deep": (b"[" * 100_000, 400, "not JSON"),
    "nothing": (b"", 400, "not JSON"),
    "a list": ([], 400, "expected an object"),
    "both": ({"instances": [GOOD], "inputs": {}}, 400, "expected an object"),
    "neither": ({"rows": [GOOD]}, 400, "expected an object"),
    "another field": ({"instances": [GOOD], "x": 1}, 400, "unknown fields: x"),
    "signature": ({"instances": [GOOD], "signature_name": "f"}, 400, "serving_default"),
    "empty": ({"instances": []}, 400, "at least one instance"),
    "empty columns": ({"inputs": {"a": [], "b": []}}, 400, "at least one instance"),
    "no rows": ({"instances": 3}, 400, "at least one instance"),
    "a number": ({"instances": [{"a": "x", "b": 3}]}, 400, "b must be a string; received int"),
    "null": ({"instances": [{"a": None, "b": ""}]}, 400, "a must be a string"),
    "names": ({"instances": [GOOD, {"a": "x"}]}, 400, "instance 1: expected an object"),
    "one text": ({"instances": ["x"]}, 400, "instance 0: expected an object"),
    "lengths": ({"inputs": {"a": ["x"], "b": []}}, 400, "same length"),
    "surrogate": (b'{"instances": [{"a": "\\ud800", "b": ""}]}', 400, "surrogate"),
    "rows": ({"instances": [GOOD] * 11}, 413, "11 instances; at most 10"),
    "long text": ({"instances": [{"a": "x" * 1001, "b": ""}]}, 413, "at most 1000"),
    "10 MB": ({"instances": [{"a": "x" * 10**7, "b": ""}]}, 413, "at most 1048576"),
    "the model": ({"instances": [{"a": "boom", "b": ""}]}, 400, "no explosives"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_requests(case, port):
    body, status, message = REFUSED[case]
    found, answer = ask(port, body)
    assert found == status
    assert message in answer["error"]
    assert ask(port, {"instances": [GOOD]})[0] == 200


def send_raw(port, *parts, encoding="identity", length=None):
    """Sends the parts of a body and then nothing more. Returns the status and the answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        head = (
            "POST /v1/models/model:predict HTTP/1.1\r\nHost: a\r\n"
            f"Content-Encoding: {encoding}\r\nContent-Length: {length or len(b''.join(parts))}"
        )
        for part in (head.encode() + b"\r\n\r\n", *parts):
            connection.sendall(part)
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        return answer.status, json.loads(answer.read())


def test_compressed_bodies(port):
    body = gzip.compress(json.dumps({"instances": [GOOD]}).encode())
    assert send_raw(port, body, encoding="gzip")[0] == 200
    status, answer = send_raw(port, b"no gzip at all", encoding="gzip")
    assert (status, "broken" in answer["error"]) == (400, True)
    # Ten kilobytes that become ten megabytes.
    status, answer = send_raw(port, gzip.compress(b"x" * 10**7), encoding="gzip")
    assert (status, "at most 1048576" in answer["error"]) == (413, True)
    assert ask(port, {"instances": [GOOD]})[0] == 200


def test_a_body_that_does_not_come(port):
    status, answer = send_raw(port, b'{"instances"', length=100)
    assert status == 408
    assert answer["error"] == "the body did not come within 2 seconds"
    # The sender of this one closes the connection.
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"POST /v1/models/model:predict HTTP/1.1\r\nHost: a\r\n")
        connection.sendall(b"Content-Length: 100\r\n\r\n{")
    assert ask(port, {"instances": [GOOD]})[0] == 200


def connect(port):
    return contextlib.closing(socket.create_connection(("127.0.0.1", port), timeout=120))


@pytest.mark.parametrize("first", [b"", b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"])
def test_a_connection_ends_when_its_headers_come_too_slowly(first, port):
    """One byte after the other, each of them in time, as the first or the second request."""
    with connect(port) as connection:
        connection.sendall(first)
        if first:
            assert connection.recv(10_000).startswith(b"HTTP/1.1 200 OK")
        connection.sendall(b"GET /healthz HTTP/1.1\r\nX-Slow: ")
        connection.settimeout(0.1)
        end = time.monotonic() + 120
        while time.monotonic() < end:
            try:
                connection.sendall(b"a")
                assert connection.recv(1000) == b""
                break
            except TimeoutError:
                # Meanwhile the server answers others.
                assert ask(port, None, "/healthz", "GET")[0] == 200
            except ConnectionError:
                break
        else:
            pytest.fail("the connection is still open")


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [
        ("/", "GET", 404),
        ("/v1/models/other:predict", "POST", 404),
        ("/v1/models/model:predict", "GET", 405),
        ("/healthz", "POST", 405),
    ],
)
def test_other_addresses(path, method, status, port):
    found, answer = ask(port, None, path, method)
    assert found == status
    assert "POST /v1/models/model:predict" in answer["error"]


def test_many_at_once_and_one_that_is_refused(port):
    """Every request gets its own answer, even in a batch with a refused one."""

    def one(n):
        if n % 10 == 7:
            return ask(port, {"instances": [{"a": "boom", "b": ""}]})[0] == 400
        rows = [{"a": f"{n}", "b": f"{m}"} for m in range(1 + n % 3)]
        status, answer = ask(port, {"instances": rows})
        joined = [row["joined"] for row in answer["predictions"]]
        return status == 200 and joined == [f"{n}|{m}" for m in range(1 + n % 3)]

    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        assert all(pool.map(one, range(200)))


@pytest.fixture
def upper(tmp_path):
    """Starts servers of `Upper` and returns their processes and ports."""
    module = Upper(tmp_path / "answer")
    path = save(module, module.upper, tmp_path / "upper")
    processes = []

    def begin(*options, **environment):
        process, port = start(path, "--name", "up", *options, **environment)
        processes.append(process)
        return process, port

    yield begin
    for process in processes:
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


@pytest.mark.slow
def test_a_full_server_answers_what_waits_before_it_ends(upper, tmp_path):
    """An answer may take longer than the headers of a request."""
    process, port = upper("--max-batch", "1", "--max-waiting", "2", "--timeout", "1")
    connections = [http.client.HTTPConnection("127.0.0.1", port) for _ in range(2)]
    # The server reads requests in the order in which they were sent.
    for connection, text in zip(connections, ("slow", "ab"), strict=True):
        connection.request("POST", UPPER, json.dumps({"instances": [text]}).encode())
    status, answer = ask(port, {"instances": ["cd"]}, UPPER)
    assert status == 503
    assert "2 instances are waiting" in answer["error"]
    process.send_signal(signal.SIGTERM)
    time.sleep(2)
    (tmp_path / "answer").touch()
    answers = []
    for connection in connections:
        with contextlib.closing(connection):
            answers.append(json.loads(connection.getresponse().read()))
    assert [answer["predictions"] for answer in answers] == [["SLOW"], ["AB"]]
    assert process.wait(60) == 0


class Columns(tf.Module):
    """Takes a column, like Keras models of `keras.Input((1,), dtype="string")`."""

    def __init__(self, width):
        spec = tf.TensorSpec((None, width), tf.string, name="text")
        self.run = tf.function(lambda text: {"text": text[:, 0]}, input_signature=[spec])


def test_texts_in_a_column(tmp_path):
    module = Columns(1)
    model = Model(str(save(module, module.run, tmp_path)))
    assert model.predict([{"text": "a"}, {"text": "b"}]) == [{"text": "a"}, {"text": "b"}]


def test_models_that_cannot_be_served(tmp_path):
    module = Columns(2)
    with pytest.raises(SystemExit, match=r"\(None, 1\); this one takes text: string \(None, 2\)"):
        Model(str(save(module, module.run, tmp_path / "columns")))
    function = module.run.get_concrete_function()
    tf.saved_model.save(module, str(tmp_path / "other"), signatures={"other": function})
    with pytest.raises(SystemExit, match="has no signature serving_default; signatures: other"):
        Model(str(tmp_path / "other"))
    (tmp_path / "other" / "saved_model.pb").write_bytes(b"no model")
    with pytest.raises(SystemExit, match="other cannot be read"):
        Model(str(tmp_path / "other"))


def test_neither_keras_nor_this_package_is_imported(upper, tmp_path):
    for name in ("keras", "keras_attention", "tf_keras"):
        (tmp_path / f"{name}.py").write_text(
            "import pathlib\npathlib.Path(__file__ + '.seen').touch()"
        )
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    # Without the working directory, where the real package would be found first.
    _, port = upper(PYTHONPATH=path, PYTHONSAFEPATH="1")
    assert ask(port, {"instances": ["ab", "cd"]}, UPPER) == (200, {"predictions": ["AB", "CD"]})
    status, answer = ask(port, {"instances": ["ab", "c"]}, UPPER)
    assert (status, "too short" in answer["error"]) == (400, True)
    assert not list(tmp_path.glob("*.seen"))


def test_a_port_that_is_taken(port, tmp_path):
    (tmp_path / "saved_model.pb").touch()
    command = [*SERVER, str(tmp_path), "--port", str(port)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert f"cannot listen at 127.0.0.1:{port}" in run.stderr
    assert "Traceback" not in run.stderr


def batched(max_batch, max_waiting, use):
    """Uses a `Batcher` whose model waits for `use`. Returns the sizes of its batches."""
    sizes, busy, go = [], threading.Event(), threading.Event()

    def predict(rows):
        busy.set()
        assert go.wait(120)
        sizes.append(len(rows))
        if "bad" in rows:
            raise Refused(400, "bad")
        if "broken" in rows:
            raise RuntimeError("broken")
        return [row.upper() for row in rows]

    async def main():
        batcher = Batcher(predict, max_batch, max_waiting)
        first = asyncio.create_task(batcher.submit(["first"]))
        assert await asyncio.to_thread(busy.wait, 120)
        await use(batcher, first, go)

    asyncio.run(main())
    return sizes


@pytest.mark.parametrize(("wrong", "error"), [("bad", Refused), ("broken", RuntimeError)])
def test_what_waits_is_answered_together_and_one_that_fails_alone(wrong, error):
    async def use(batcher, first, go):
        tasks = [first]
        tasks += [asyncio.create_task(batcher.submit([x])) for x in ("a", "b", wrong, "c")]
        tasks.append(asyncio.create_task(batcher.submit(["d", "e"])))
        await asyncio.sleep(0)  # every task begins and waits
        go.set()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(found.pop(3), error)
        assert found == [["FIRST"], ["A"], ["B"], ["C"], ["D", "E"]]

    sizes = batched(5, 100, use)
    assert sizes[:2] == [1, 4]
    assert sizes[-1] == 2


def test_a_full_queue_and_one_that_left():
    async def use(batcher, first, go):
        tasks = [first, *(asyncio.create_task(batcher.submit([x])) for x in ("a", "b"))]
        await asyncio.sleep(0)  # every task begins and waits
        with pytest.raises(Refused, match="3 instances are waiting"):
            await batcher.submit(["c"])
        tasks.pop(1).cancel()
        go.set()
        assert await asyncio.gather(*tasks) == [["FIRST"], ["B"]]

    assert batched(10, 3, use) == [1, 1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["missing"], "missing is no SavedModel"),
        ([".", "--port", "99999"], "--port: must be in [0, 65536); received 99999"),
        ([".", "--name", "a b"], "letters, digits and _.- only; received 'a b'"),
    ],
)
def test_bad_command_lines(options, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "saved_model.pb").touch()
    with pytest.raises(SystemExit):
        parse(options)
    assert message in capsys.readouterr().err
