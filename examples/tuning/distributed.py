"""Runs a search with a chief and several workers, as processes of this machine."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time

from examples.tuning.tuner_files import kept, naming_files, read_trials


def search_distributed(name, options, argv):
    """Runs a search with a chief and workers, and ends all of them when one dies.

    Args:
        name: one of `SEARCHES`.
        options: the parsed command line.
        argv: the command line, which every process receives.

    Raises:
        SystemExit: a process died, or the time is over. The message says what is kept.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    logs = options.output / "logs"
    processes = {}
    began = time.time()

    def start(role):
        environment = {
            **os.environ,
            "KERASTUNER_TUNER_ID": role,
            "KERASTUNER_ORACLE_IP": "127.0.0.1",
            "KERASTUNER_ORACLE_PORT": str(port),
        }
        command = [sys.executable, "-m", "examples.tuning", *argv, "--part", name]
        with naming_files(options, name), open(logs / f"{name}-{role}.log", "ab") as log:
            processes[role] = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def finished():
        return sum(x["status"] == "COMPLETED" for x in read_trials(options.output / name))

    try:
        start("chief")
        for number in range(options.distributed):
            start(f"worker-{number + 1}")
        print(f"{name}: processes " + ", ".join(f"{x} {p.pid}" for x, p in processes.items()))
        known, ended_since = -1, None
        while any(process.poll() is None for process in processes.values()):
            time.sleep(0.5)
            if finished() != known:
                known = finished()
                print(f"{name}: {known} trials finished, {time.time() - began:.0f} s", flush=True)
            dead = {x: p.returncode for x, p in processes.items() if p.poll() not in (None, 0)}
            if dead:
                what = ", ".join(f"{x} {how_it_ended(code)}" for x, code in dead.items())
                raise SystemExit(kept(options, name, what) + last_words(logs, name, dead))
            if time.time() - began > options.timeout:
                what = f"not done within --timeout {options.timeout} seconds"
                raise SystemExit(kept(options, name, what))
            workers = [p for x, p in processes.items() if x != "chief"]
            if all(process.poll() == 0 for process in workers):
                # The chief would notice only after up to 20 seconds.
                ended_since = ended_since or time.time()
                if time.time() - ended_since > 2:
                    stop(processes["chief"])
                    return
    except KeyboardInterrupt:
        raise SystemExit(kept(options, name, "interrupted")) from None
    finally:
        # The chief stops last, because it writes what the workers report.
        for role in sorted(processes, key=lambda x: x == "chief"):
            stop(processes[role])


def follow_parent():
    """Ends this process when the parent ends, even if the parent is killed.

    The parent holds the other end of the pipe to the standard input, which is then closed.
    """

    def watch():
        os.read(0, 1)
        os._exit(1)

    # The terminal sends Ctrl-C to all processes; the parent decides what to do.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=watch, daemon=True).start()


def stop(process):
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def how_it_ended(code):
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with status {code}"


def last_words(logs, name, dead):
    """The end of the logs of processes that failed, from their last message on."""
    texts = []
    for role, code in dead.items():
        if code > 0:
            log = (logs / f"{name}-{role}.log").read_text(errors="replace").strip()
            message = max(log.rfind(f"\n{name}: "), len(log) - 8000, 0)
            texts.append(f"\n{role}: {log[message:].strip()}")
    return "".join(texts)
