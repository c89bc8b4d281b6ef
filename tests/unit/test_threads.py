"""Threads for blocking functions: used again, never too few, none that keeps the process."""

from __future__ import annotations

import subprocess
import sys
import threading

from workbench.threads import Threads

WAIT_S = 20


def test_functions_that_end_share_a_thread():
    threads, seen = Threads(), set()
    for _ in range(50):
        done = threading.Event()

        def work(done=done):
            seen.add(threading.get_ident())
            done.set()

        threads.run(work)
        assert done.wait(WAIT_S)
    assert threads.started < 50, "they are used again"
    assert len(seen) <= threads.started


def test_however_many_hang_the_next_one_runs():
    threads, go = Threads(), threading.Event()
    hanging = threading.Barrier(41)
    for _ in range(40):
        threads.run(lambda: (hanging.wait(WAIT_S), go.wait(WAIT_S)))
    hanging.wait(WAIT_S)
    done = threading.Event()
    threads.run(done.set)
    assert done.wait(WAIT_S)
    assert threads.started == 41
    go.set()


def test_many_at_once_all_run_once_each():
    threads, counts, lock = Threads(), {}, threading.Lock()
    done = threading.Semaphore(0)

    def work(number):
        with lock:
            counts[number] = counts.get(number, 0) + 1
        done.release()

    for number in range(500):
        threads.run(lambda number=number: work(number))
    for _ in range(500):
        assert done.acquire(timeout=WAIT_S)
    assert counts == dict.fromkeys(range(500), 1)


def test_threads_without_work_end_and_more_work_gets_others():
    threads, first = Threads(idle_s=0.001), []
    done = threading.Event()
    threads.run(lambda: (first.append(threading.current_thread()), done.set()))
    assert done.wait(WAIT_S)
    first[0].join(WAIT_S)
    assert not first[0].is_alive()
    again = threading.Event()
    threads.run(again.set)
    assert again.wait(WAIT_S)
    assert threads.started == 2


def test_a_function_that_hangs_does_not_keep_the_process():
    code = "import threading; from workbench.threads import Threads; "
    code += "Threads().run(threading.Event().wait)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=True).returncode == 0
