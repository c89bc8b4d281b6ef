"""Which processes a test started, however far down: they carry its mark in their environment."""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path

MARK = "WORKBENCH_TEST_MARK"

RAY_AGENTS = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")
"""Ray's own. They end by themselves, over a minute after their raylet was killed with its owner."""


def new_mark() -> str:
    """A value of ``MARK`` that nobody else has."""
    return uuid.uuid4().hex


def marked(mark: str) -> dict[int, str]:
    """Pid → command line of every other process with this mark that is not a zombie."""
    wanted = f"{MARK}={mark}".encode()
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z" and wanted in (entry / "environ").read_bytes().split(b"\0"):
                    command = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
                    found[int(entry.name)] = command.decode().strip()
            except OSError:
                continue  # it ended meanwhile, or is somebody else's
    return found


def left_behind(mark: str, limit_s: float = 60, ignoring: tuple[str, ...] = ()) -> dict[int, str]:
    """Those with this mark, once there are none or ``limit_s`` seconds passed."""
    deadline = time.monotonic() + limit_s
    while True:
        left = {pid: c for pid, c in marked(mark).items() if c not in ignoring}
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.1)


def children(pid: int) -> list[int]:
    """Every live process below ``pid``."""
    from workbench.engines.guard import descendants

    return list(descendants(pid))


def gone(pids: list[int], limit_s: float = 20) -> bool:
    """Whether all of them end within ``limit_s`` seconds."""
    deadline = time.monotonic() + limit_s
    while any(map(_lives, pids)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
