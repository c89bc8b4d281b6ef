"""Keeps an engine's processes from outliving the process that hosts them.

vLLM runs its engine core in child processes, which go on when their parent is killed outright.
:func:`guard_children` starts a small watcher beside this process: it notes this process's
descendants while it lives and kills those that are left once it is gone. The watcher is detached
(its parent exits at once), so that what kills the host's children leaves it alone, and it uses
nothing but the standard library and ``/proc``; where there is no ``/proc`` there is no guard.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

TICK_S = 0.25
"""How often descendants are noted: a child that is younger than this may escape."""

GRACE_S = 1.0
"""How long descendants may take to end by themselves once the host is gone."""

PROC = Path("/proc")


def guard_children() -> None:
    """Start the watcher of this process and what it starts from here on."""
    if PROC.is_dir():
        subprocess.run(
            [sys.executable, "-I", "-S", __file__, str(os.getpid())],
            stdin=subprocess.DEVNULL,
            check=True,
        )


def descendants(pid: int) -> dict[int, str]:
    """Every process below ``pid``, with its start time (a pid alone may be another's by now)."""
    found: dict[int, str] = {}
    todo = [pid]
    while todo:
        for child in _children(todo.pop()):
            started = start_time(child)
            if child not in found and started is not None:
                found[child] = started
                todo.append(child)
    found.pop(os.getpid(), None)
    return found


def _children(pid: int) -> list[int]:
    children: list[int] = []
    with contextlib.suppress(OSError):  # it ended meanwhile
        for task in (PROC / str(pid) / "task").iterdir():
            with contextlib.suppress(OSError):  # that thread did; children hang on others too
                children += map(int, (task / "children").read_text().split())
    return children


def start_time(pid: int) -> str | None:
    """Field 22 of ``/proc/PID/stat``; None when it is gone or only waits to be reaped."""
    try:
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]


def _watch(pid: int) -> None:
    host_started = start_time(pid)
    seen: dict[int, str] = {}
    while host_started is not None and start_time(pid) == host_started:
        seen |= descendants(pid)
        time.sleep(TICK_S)
    deadline = time.monotonic() + GRACE_S
    while time.monotonic() < deadline and any(start_time(p) == s for p, s in seen.items()):
        time.sleep(TICK_S / 5)
    for child, started in seen.items():
        if start_time(child) != started:
            continue  # its id may be a stranger's by now, and so would what is below it
        # Grandchildren that were never noted belong to a child that is about to go.
        for doomed, since in {**descendants(child), child: started}.items():
            if start_time(doomed) == since:
                with contextlib.suppress(ProcessLookupError):  # it just ended by itself
                    os.kill(doomed, signal.SIGKILL)


def _main() -> None:
    if os.fork():
        return  # the host waits for this one only; the watcher is nobody's child
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _watch(int(sys.argv[1]))


if __name__ == "__main__":
    _main()
