"""The server: its answers, its refusals, and that it keeps running after both."""

import asyncio
import contextlib
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
from examples.serving.model import Batcher, Model

pytest.importorskip("aiohttp", reason="aiohttp is not installed")

ROOT = Path(__file__).parents[2]
SERVER = [sys.executable, "-m", "examples.serving"]
ADDRESS = "/v1/models/model:predict"


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
    process, port = start(path, "--max-rows", "10", "--max-length", "100", "--timeout", "2")
    yield port
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 0


def ask(port, body, path=ADDRESS, method="POST"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    with contextlib.closing(connection):
        connection.request(method, path, data)
        answer = connection.getresponse()
        assert answer.getheader("Content-Type").startswith("application/json")
        return answer.status, json.loads(answer.read())


def test_rows(port):
    rows = [{"a": "x", "b": "yy"}, {"a": "naïve ☃", "b": ""}, {"a": "nan", "b": ""}]
    status, answer = ask(port, {"instances": rows, "signature_name": "serving_default"})
    assert status == 200
    # Outputs without an axis for the texts are the same for all.
    same = {"all": 2, "names": ["a", "b"]}
    assert answer["predictions"] == [
        {"joined": "x|yy", "size": 2, "half": 1.0, **same},
        {"joined": "naïve ☃|", "size": 10, "half": 5.0, **same},
        {"joined": "nan|", "size": 3, "half": None, **same},
    ]
    status, answer = ask(port, None, "/v1/models/model", "GET")
    assert (status, answer["model_version_status"][0]["state"]) == (200, "AVAILABLE")


GOOD = {"a": "x", "b": "y"}
REFUSED = {
    "no JSON": (b"{", 400, "expected JSON like"),
    "a list": ([], 400, "expected JSON like"),
    "deep": (b"[" * 100_000, 400, "expected JSON like"),
    "another field": ({"rows": [GOOD]}, 400, "expected JSON like"),
    "one more field": ({"instances": [GOOD], "inputs": {}}, 400, "with no other field"),
    "signature": ({"instances": [GOOD], "signature_name": "x"}, 400, "serving_default; received x"),
    "empty": ({"instances": []}, 400, "a list of 1 to 10 rows; received 0"),
    "an object": ({"instances": GOOD}, 400, "a list of 1 to 10 rows; received dict"),
    "a number": ({"instances": [GOOD, GOOD | {"b": 3}]}, 400, "instance 1: b must be a string"),
    "long": ({"instances": [GOOD | {"b": "x" * 101}]}, 400, "at most 100 characters; received 101"),
    "names": ({"instances": [GOOD, {"a": "x"}]}, 400, "instance 1 must have the fields a, b; rec"),
    "one text": ({"instances": ["x"]}, 400, "instance 0 must have the fields a, b; received str"),
    "surrogate": (b'{"instances": [{"a": "\\ud800", "b": ""}]}', 400, "surrogates not allowed"),
    "rows": ({"instances": [GOOD] * 11}, 400, "a list of 1 to 10 rows; received 11"),
    "10 MB": ({"instances": [{"a": "x" * 10**7, "b": ""}]}, 413, "1048576"),
    "the model": ({"instances": [{"a": "boom", "b": ""}]}, 400, "no explosives"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_requests(case, port):
    body, status, message = REFUSED[case]
    found, answer = ask(port, body)
    assert found == status
    assert message in answer["error"]
    assert ask(port, {"instances": [GOOD]})[0] == 200


def test_a_body_that_does_not_come(port):
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        head = f"POST {ADDRESS} HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{{"
        connection.sendall(head.encode())
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        assert answer.status == 408
        assert json.loads(answer.read())["error"] == "the body did not come within 2 seconds"
    assert ask(port, {"instances": [GOOD]})[0] == 200


@pytest.mark.parametrize(("path", "status"), [("/", 404), (ADDRESS, 405)])
def test_other_addresses(path, status, port):
    found, answer = ask(port, None, path, "GET")
    assert (found, answer["error"][:3]) == (status, str(status))


@pytest.fixture
def upper(tmp_path):
    """Starts servers of `Upper` and returns their processes and ports."""
    module = Upper(tmp_path / "answer")
    path = save(module, module.upper, tmp_path / "upper")
    processes = []

    def begin(*options, **environment):
        process, port = start(path, *options, **environment)
        processes.append(process)
        return process, port

    yield begin
    for process in processes:
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


@pytest.mark.slow
def test_a_full_server_answers_what_waits_before_it_ends(upper, tmp_path):
    """An answer may take longer than the body of a request."""
    process, port = upper("--max-batch", "1", "--max-waiting", "2", "--timeout", "1")
    connections = [http.client.HTTPConnection("127.0.0.1", port) for _ in range(2)]
    for connection, text in zip(connections, ("slow", "ab"), strict=True):
        connection.request("POST", ADDRESS, json.dumps({"instances": [text]}).encode())
        ask(port, None, "/v1/models/model", "GET")  # answered after the other has been read
    status, answer = ask(port, {"instances": ["cd"]}, ADDRESS)
    assert status == 503
    assert "too many instances wait" in answer["error"]
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


def test_a_model_that_loses_a_row(tmp_path):
    module = tf.Module()
    spec = tf.TensorSpec((None,), tf.string, name="text")
    module.run = tf.function(lambda text: {"text": text[1:]}, input_signature=[spec])
    with pytest.raises(RuntimeError, match="text has 0 answers to 1 texts"):
        Model(str(save(module, module.run, tmp_path))).warm_up()


def test_models_that_cannot_be_served(tmp_path):
    module = Columns(2)
    with pytest.raises(SystemExit, match=r"\(None, 1\); this one takes text: string \(None, 2\)"):
        Model(str(save(module, module.run, tmp_path / "columns")))
    function = module.run.get_concrete_function()
    tf.saved_model.save(module, str(tmp_path / "other"), signatures={"other": function})
    with pytest.raises(SystemExit, match="other is no SavedModel with serving_default"):
        Model(str(tmp_path / "other"))
    (tmp_path / "other" / "saved_model.pb").write_bytes(b"no model")
    with pytest.raises(SystemExit, match="other is no SavedModel with serving_default"):
        Model(str(tmp_path / "other"))


def test_neither_keras_nor_this_package_is_imported(upper, tmp_path):
    for name in ("keras", "keras_attention", "tf_keras"):
        (tmp_path / f"{name}.py").write_text(
            "import pathlib\npathlib.Path(__file__ + '.seen').touch()"
        )
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    # Without the working directory, where the real package would be found first.
    _, port = upper(PYTHONPATH=path, PYTHONSAFEPATH="1")
    assert ask(port, {"instances": ["ab", "cd"]}, ADDRESS) == (200, {"predictions": ["AB", "CD"]})
    status, answer = ask(port, {"instances": ["ab", "c"]}, ADDRESS)
    assert (status, "too short" in answer["error"]) == (400, True)
    assert not list(tmp_path.glob("*.seen"))


def test_a_port_that_is_taken(port, tmp_path):
    (tmp_path / "saved_model.pb").touch()
    command = [*SERVER, str(tmp_path), "--port", str(port)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert f"cannot listen at 127.0.0.1:{port}" in run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.parametrize("error", [ValueError, RuntimeError])
def test_what_waits_is_answered_together_and_one_that_fails_alone(error):
    sizes, busy, go = [], threading.Event(), threading.Event()

    def predict(rows):
        busy.set()
        assert go.wait(120)
        sizes.append(len(rows))
        if "bad" in rows:
            raise error("bad")
        return [row.upper() for row in rows]

    async def main():
        batcher = Batcher(predict, 5, 7)
        running = batcher.run()
        await anext(running)
        tasks = [asyncio.create_task(batcher.submit(["first"]))]
        assert await asyncio.to_thread(busy.wait, 120)
        waiting = (["a"], ["b"], ["bad"], ["c", "d"], ["left"])
        tasks += [asyncio.create_task(batcher.submit(rows)) for rows in waiting]
        await asyncio.sleep(0)  # every task begins and waits
        with pytest.raises(asyncio.QueueFull):
            await batcher.submit(["e"])
        tasks.pop().cancel()
        await asyncio.sleep(0)  # which gives the place back
        tasks.append(asyncio.create_task(batcher.submit(["e"])))
        await asyncio.sleep(0)
        go.set()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(found.pop(3), error)
        assert found == [["FIRST"], ["A"], ["B"], ["C", "D"], ["E"]]
        await running.aclose()

    asyncio.run(main())
    assert sizes[:2] == [1, 5]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["missing"], "missing is no SavedModel"),
        ([".", "--port", "99999"], "--port: must be in [0, 65536); received 99999"),
    ],
)
def test_bad_command_lines(options, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "saved_model.pb").touch()
    with pytest.raises(SystemExit):
        parse(options)
    assert message in capsys.readouterr().err
