"""Which processes of a pool there are: what it leaves behind is what was not there before."""

from __future__ import annotations

import os
import time
from pathlib import Path

OURS = ("ray::", "raylet", "gcs_server", "/ray/", "VLLM::", "multiprocessing", "engines/guard.py")
"""What the command line of a process that a pool may start has in it."""


def running() -> dict[int, str]:
    """Pid → command line of every such process that is not a zombie."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
            except OSError:
                continue
            if state != "Z" and any(mark in command for mark in OURS):
                found[int(entry.name)] = command
    return found


def children(pid: int) -> list[int]:
    """Every live process below ``pid``."""
    from workbench.engines.guard import descendants

    return list(descendants(pid))


RAY_AGENTS = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")
"""Ray's own. They end by themselves, over a minute after their raylet was killed with its owner."""


def left_behind(
    before: dict[int, str], limit_s: float = 60, ignoring: tuple[str, ...] = ()
) -> dict[int, str]:
    """Processes that were not there before, once there are none or ``limit_s`` seconds passed."""
    deadline = time.monotonic() + limit_s
    while True:
        new = {
            pid: command
            for pid, command in running().items()
            if pid not in before and pid != os.getpid() and command not in ignoring
        }
        if not new or time.monotonic() > deadline:
            return new
        time.sleep(0.1)


def gone(pids: list[int], limit_s: float = 20) -> bool:
    """Whether all of them end within ``limit_s`` seconds."""
    deadline = time.monotonic() + limit_s
    while set(pids) & set(running()):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
