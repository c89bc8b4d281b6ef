"""Blocking calls run on a loop of their own and can be given up; polite waits let others in."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading

import pytest

from tests.unit.inprocess import WAIT_S, until
from workbench.aio import LoopThread, end_task, polite


@pytest.fixture
def thread():
    made = LoopThread("test-io")
    yield made
    made.close()


async def thread_name():
    return threading.current_thread().name


async def hang(started=None, ended=None):
    try:
        if started:
            started.set()
        await asyncio.Event().wait()
    finally:
        if ended:
            ended.set()


def test_work_runs_on_the_loops_own_thread(thread):
    assert thread.run(thread_name()) == "test-io"


def test_errors_reach_the_caller_as_they_are(thread):
    async def fail():
        raise ZeroDivisionError("there")

    with pytest.raises(ZeroDivisionError, match="there"):
        thread.run(fail())


async def test_a_blocking_call_works_while_the_callers_own_loop_runs(thread):
    assert thread.run(thread_name()) == "test-io"


def test_a_timeout_cancels_the_work(thread):
    ended = threading.Event()
    with pytest.raises(TimeoutError):
        thread.run(hang(ended=ended), timeout_s=0.02)
    assert ended.wait(WAIT_S)


def test_an_interrupt_cancels_the_work(thread, monkeypatch):
    ended, started = threading.Event(), threading.Event()

    def interrupted(self, timeout=None):
        assert started.wait(WAIT_S)
        raise KeyboardInterrupt

    monkeypatch.setattr(concurrent.futures.Future, "result", interrupted)
    with pytest.raises(KeyboardInterrupt):
        thread.run(hang(started, ended))
    monkeypatch.undo()
    assert ended.wait(WAIT_S)


def test_a_blocking_call_from_the_loop_itself_is_refused(thread):
    async def nested():
        thread.run(thread_name())

    with pytest.raises(RuntimeError, match="never return"):
        thread.run(nested())


def test_closing_cancels_what_still_runs_and_ends_the_thread():
    thread = LoopThread("test-io")
    started, ended = threading.Event(), threading.Event()
    future = thread.submit(hang(started, ended))
    assert started.wait(WAIT_S)
    thread.close()
    thread.close()
    assert ended.is_set()
    assert future.cancelled()
    assert "test-io" not in {t.name for t in threading.enumerate()}


@pytest.mark.parametrize("wish", [SystemExit, KeyboardInterrupt])
def test_a_task_that_wants_to_leave_the_process_ends_alone(thread, wish):
    release = threading.Event()

    async def leave():
        raise wish("enough")

    async def parent():
        with contextlib.suppress(wish):
            await asyncio.gather(leave())
        return "told"

    async def other():
        while not release.is_set():
            await asyncio.sleep(0)
        return "went on"

    going = thread.submit(other())
    assert thread.submit(parent()).result(WAIT_S) == "told"
    with pytest.raises(wish, match="enough"):
        thread.submit(leave()).result(WAIT_S)
    release.set()
    assert going.result(WAIT_S) == "went on"
    assert thread.run(thread_name()) == "test-io"
    thread.close()
    assert not thread._thread.is_alive()


def test_what_a_loop_is_in_can_be_asked_while_it_is_blocked(thread):
    blocked, release, tasks = threading.Event(), threading.Event(), []

    async def block():
        tasks.append(asyncio.current_task())
        blocked.set()
        release.wait(WAIT_S)

    going = thread.submit(block())
    assert blocked.wait(WAIT_S)
    assert thread.running() is tasks[0]
    release.set()
    going.result(WAIT_S)


async def test_a_polite_wait_returns_what_the_work_returned(thread):
    assert await polite(thread.submit(thread_name())) == "test-io"


async def test_a_polite_wait_raises_what_the_work_raised(thread):
    async def fail():
        raise ZeroDivisionError("there")

    with pytest.raises(ZeroDivisionError, match="there"):
        await polite(thread.submit(fail()))


async def test_a_polite_wait_lets_the_loop_wake_while_the_work_goes_on(thread, monkeypatch):
    """That is when an interrupt of the cell is seen."""
    waits = []
    wait = asyncio.wait

    async def counted(*args, **options):
        waits.append(options["timeout"])
        return await wait(*args, **options)

    monkeypatch.setattr("workbench.aio.asyncio.wait", counted)
    release = threading.Event()

    async def slow():
        await asyncio.to_thread(release.wait, WAIT_S)
        return "done"

    waiting = asyncio.ensure_future(polite(thread.submit(slow()), tick_s=0.001))
    await until(lambda: len(waits) > 3)
    release.set()
    assert await waiting == "done"
    assert set(waits) == {0.001}


async def test_cancelling_a_polite_wait_cancels_the_work(thread):
    started, ended = threading.Event(), threading.Event()
    waiting = asyncio.ensure_future(polite(thread.submit(hang(started, ended)), tick_s=0.001))
    await asyncio.sleep(0)  # it has begun to wait
    await until(started.is_set)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await until(ended.is_set)


async def test_an_ended_task_is_gone_when_the_call_returns():
    ended = asyncio.Event()
    task = asyncio.create_task(hang(ended=ended))
    await asyncio.sleep(0)
    await end_task(task)
    assert task.cancelled()
    assert ended.is_set()


async def test_ending_what_is_not_there_or_over_does_nothing():
    await end_task(None)
    task = asyncio.create_task(thread_name())
    await task
    await end_task(task)
    assert not task.cancelled()


def test_ending_a_task_of_a_loop_that_is_closed_does_nothing():
    tasks = []

    async def once():
        tasks.append(asyncio.create_task(hang()))

    asyncio.run(once())
    asyncio.run(end_task(tasks[0]))
