"""A Ray head that outlives who asked for it: ended by who it is, and never a stranger."""

from __future__ import annotations

import subprocess
import sys

import pytest

from workbench.cluster import head
from workbench.engines.guard import start_time
from workbench.errors import PoolError


@pytest.fixture
def process():
    """Starts a program of these lines and returns it once it says that it is ready."""
    made = []

    def start(*lines):
        text = "\n".join([*lines, "print('ready', flush=True)", "import time; time.sleep(600)"])
        program = [sys.executable, "-I", "-S", "-c", text]
        started = subprocess.Popen(program, stdout=subprocess.PIPE)
        made.append(started)
        started.stdout.readline()
        return started

    yield start
    for started in made:
        started.kill()
        started.wait()
        started.stdout.close()


def test_a_head_is_ended_and_ending_it_again_is_nothing(process):
    there = process()
    since = start_time(there.pid)
    head.stop_head(there.pid, since)
    assert start_time(there.pid) is None
    head.stop_head(there.pid, since)


def test_one_that_does_not_listen_is_killed(process, monkeypatch):
    monkeypatch.setattr(head, "STOP_S", 0.2)
    there = process("import signal", "signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    head.stop_head(there.pid, start_time(there.pid))
    assert there.wait() == -9


@pytest.mark.parametrize("since", ["1", None])
def test_a_process_that_took_its_number_is_left_alone(process, since):
    there = process()
    head.stop_head(there.pid, since)
    assert there.poll() is None


def test_where_none_starts_its_last_words_are_told(tmp_path, monkeypatch):
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\nfor i in $(seq 30); do echo line $i; done\nexit 1\n")
    broken.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(broken))
    with pytest.raises(PoolError) as told:
        head.start_head()
    lines = str(told.value).splitlines()
    assert lines[0] == "no Ray head starts on this machine:"
    assert (lines[1], lines[-1]) == ("line 21", "line 30")
