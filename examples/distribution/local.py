"""Processes on this machine that talk over loopback, in place of several machines."""

import os
import signal
import socket
import subprocess
import time

PATIENCE = 120  # seconds that the others have to notice a dead process


def start_processes(count, command):
    """Starts the command in several processes and waits for them.

    Raises:
        SystemExit: a process failed. The others have then ended too.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    shared = {
        "KERAS_DISTRIBUTION_JOB_ADDRESSES": address,
        "KERAS_DISTRIBUTION_NUM_PROCESSES": str(count),
    }
    processes = []
    try:
        for number in range(count):
            own = {"KERAS_DISTRIBUTION_PROCESS_ID": str(number)}
            process = subprocess.Popen(command, env={**os.environ, **shared, **own})
            processes.append(process)
            print(f"process {number}: pid {process.pid}", flush=True)
        wait(processes)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    failed = [n for n, process in enumerate(processes) if process.returncode]
    if failed:
        died = any(processes[n].returncode < 0 for n in failed)
        raise SystemExit("Run the same command to resume." if died else "See the error above.")


def wait(processes):
    """Waits for all processes. After one fails, the others have `PATIENCE` seconds to end."""
    running, deadline = dict(enumerate(processes)), None
    while running and (deadline is None or time.monotonic() < deadline):
        time.sleep(0.1)
        for number, process in list(running.items()):
            if process.poll() is None:
                continue
            del running[number]
            if process.returncode:
                print(f"process {number} {how_it_ended(process.returncode)}", flush=True)
                deadline = deadline or time.monotonic() + PATIENCE


def how_it_ended(code):
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with status {code}"
