"""An engine's processes do not outlive a host that is killed outright, whoever its parent is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from workbench.engines import guard

LINUX = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
pytestmark = LINUX

DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
GRANDCHILD = f"{DEAF}; print('up', flush=True); time.sleep(120)"
CHILD = f"""
import subprocess, sys, time
below = subprocess.Popen([sys.executable, "-c", {GRANDCHILD!r}], stdout=subprocess.PIPE)
below.stdout.readline()
print(below.pid, flush=True)
time.sleep(120)
"""
HOST = f"""
import subprocess, sys, time
from workbench.engines.guard import guard_children
guard_children()
child = subprocess.Popen([sys.executable, "-c", {CHILD!r}], stdout=subprocess.PIPE, text=True)
print(child.pid, child.stdout.readline(), flush=True)
time.sleep(120)
"""


def is_alive(pid):
    return guard.start_time(pid) is not None


def wait_gone(*pids):
    deadline = time.monotonic() + 5
    while any(map(is_alive, pids)):
        assert time.monotonic() < deadline, [pid for pid in pids if is_alive(pid)]
        time.sleep(0.02)


def watchers_of(pid):
    """The guard processes that watch ``pid``."""
    wanted = [os.fsencode(guard.__file__), str(pid).encode()]
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[-3:-1] == wanted:
                found.append(int(entry.name))
    return found


def seen_by_the_watcher():
    """Let the watcher note the host's descendants: it looks every ``TICK_S``, and tells nobody."""
    time.sleep(4 * guard.TICK_S)


@pytest.fixture
def started():
    """Starts scripts; kills at the end what a failed test left."""
    processes, pids = [], []

    def start(code):
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        processes.append(process)
        pids.append(process.pid)
        return process, pids

    yield start
    for pid in pids:
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)
    for process in processes:
        process.wait(5)
        process.stdout.close()


def test_a_killed_host_takes_its_child_and_a_deaf_grandchild_along(started):
    host, pids = started(HOST)
    child, grandchild = map(int, host.stdout.readline().split())
    pids += [child, grandchild]
    unrelated, _ = started("import time; time.sleep(120)")
    (watcher,) = watchers_of(host.pid)
    seen_by_the_watcher()

    host.kill()

    wait_gone(child, grandchild, watcher)
    assert unrelated.poll() is None


def test_while_the_host_lives_nothing_is_touched(started):
    host, pids = started(HOST)
    child, grandchild = map(int, host.stdout.readline().split())
    pids += [child, grandchild]
    seen_by_the_watcher()
    assert is_alive(child)
    assert is_alive(grandchild)


def test_the_watcher_is_nobodys_child_and_ends_with_a_host_that_ends(started):
    host, pids = started(HOST)
    pids += map(int, host.stdout.readline().split())
    (watcher,) = watchers_of(host.pid)
    assert watcher not in guard.descendants(host.pid)
    host.terminate()
    wait_gone(watcher)


def test_descendants_are_found_over_generations(started):
    host, pids = started(HOST)
    child, grandchild = map(int, host.stdout.readline().split())
    pids += [child, grandchild]
    assert guard.descendants(host.pid).keys() == {child, grandchild}


def test_a_process_that_waits_to_be_reaped_is_gone():
    process = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert guard.start_time(process.pid) is None
    process.wait(5)


def test_a_process_id_that_somebody_else_has_by_now_is_spared(monkeypatch):
    """With all that is below it; the start time tells one process from the next with its id."""
    host, child, stranger, below = 1, 2, 3, 4
    times = {
        child: iter(["then", "then"]),
        stranger: iter(["later", "later"]),
        below: iter(["later", "later"]),
    }
    host_lives = iter(["once", "once"])
    noted = {host: {child: "then", stranger: "before"}, stranger: {below: "later"}}
    killed = []
    monkeypatch.setattr(guard, "GRACE_S", 0.0)
    monkeypatch.setattr(guard, "TICK_S", 0.0)
    monkeypatch.setattr(guard, "start_time", lambda pid: next(times.get(pid, host_lives), None))
    monkeypatch.setattr(guard, "descendants", lambda pid: noted.get(pid, {}))
    monkeypatch.setattr(guard.os, "kill", lambda pid, _: killed.append(pid))
    guard._watch(host)
    assert killed == [child]


def test_a_process_that_ends_just_before_it_is_killed_does_not_save_the_others(monkeypatch):
    host, first, second = 1, 2, 3
    host_lives = iter(["once", "once"])
    killed = []

    def kill(pid, _):
        killed.append(pid)
        if pid == first:
            raise ProcessLookupError

    monkeypatch.setattr(guard, "GRACE_S", 0.0)
    monkeypatch.setattr(guard, "TICK_S", 0.0)
    monkeypatch.setattr(
        guard, "start_time", lambda pid: next(host_lives, None) if pid == host else "then"
    )
    monkeypatch.setattr(
        guard,
        "descendants",
        lambda pid: {first: "then", second: "then"} if pid == host else {},
    )
    monkeypatch.setattr(guard.os, "kill", kill)
    guard._watch(host)
    assert killed == [first, second]
