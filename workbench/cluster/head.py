"""A Ray head on this machine that outlives the process that asked for it.

It is a small process of its own, which starts Ray on loopback and ends with it: on ``SIGTERM``, or
whenever it is killed, nothing that ran in that Ray is left.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from workbench.engines.guard import start_time
from workbench.errors import PoolError

START_S = 90.0
"""How long Ray may take to start; it gives up by itself before."""

STOP_S = 30.0
"""How long it may take to end before it is killed."""

POLL_S = 0.05


def start_head() -> tuple[int, str]:
    """Start one; its process and its address.

    Raises:
        PoolError: Ray does not start here; says its last words.
    """
    with tempfile.TemporaryDirectory(prefix="workbench-head-") as folder:
        told, log = Path(folder) / "address", Path(folder) / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "workbench.cluster.head", str(told)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C in a terminal is for its own processes
            )
        deadline_s = time.monotonic() + START_S
        while time.monotonic() < deadline_s and process.poll() is None:
            if told.exists():
                return process.pid, told.read_text()
            time.sleep(POLL_S)
        process.kill()
        process.wait()
        last = "\n".join(log.read_text(errors="replace").splitlines()[-10:])
        raise PoolError(f"no Ray head starts on this machine:\n{last}")


def stop_head(pid: int, process_start: str | None) -> None:
    """End a head with all that runs in it. Idempotent.

    Raises:
        PoolError: it is still there.
    """
    for number in (signal.SIGTERM, signal.SIGKILL):
        if not _lives(pid, process_start):
            return
        with contextlib.suppress(ProcessLookupError):  # it ended just now
            os.kill(pid, number)
        deadline_s = time.monotonic() + STOP_S
        while _lives(pid, process_start) and time.monotonic() < deadline_s:
            time.sleep(POLL_S)
    if _lives(pid, process_start):
        raise PoolError(f"the Ray head, process {pid}, does not end")


def _lives(pid: int, process_start: str | None) -> bool:
    return process_start is not None and start_time(pid) == process_start


def _main(told: Path) -> None:
    from workbench.cluster.connection import cluster_address, connect

    ending = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ending.set())
    connection = connect("local")
    fresh = told.with_suffix(".new")
    fresh.write_text(cluster_address())
    fresh.replace(told)
    ending.wait()
    connection.close()


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
