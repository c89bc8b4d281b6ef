"""Async and blocking callers side by side.

The package's work is async. Blocking calls hand it to one loop on a thread of its own
(:class:`LoopThread`), so that they work in a notebook whose own loop is running, and can be
interrupted. A bare ``await`` in a notebook cannot be interrupted until it ends; :func:`polite`
wakes the notebook's loop now and then, so that it can.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from typing import TYPE_CHECKING, Any, TypeVar, cast

from workbench.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")

_threads = Threads()

POLITE_TICK_S = 0.2
"""How long an interrupt of an awaiting cell may take to be seen."""


class LoopThread:
    """One event loop on one daemon thread, shared by the blocking calls of one owner.

    A task that raises SystemExit or KeyboardInterrupt ends, and nothing else does.
    """

    def __init__(self, name: str = "workbench-io") -> None:
        self._loop = asyncio.new_event_loop()
        self._is_over = False
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._is_over:
            # asyncio tells whoever awaits the task, and then ends the loop as well
            with contextlib.suppress(SystemExit, KeyboardInterrupt):
                self._loop.run_forever()
        self._loop.close()

    def _stop(self) -> None:
        self._is_over = True
        self._loop.stop()

    def running(self) -> asyncio.Task[Any] | None:
        """The task that it is in at this moment, if any."""
        return asyncio.current_task(self._loop)

    def submit(self, coro: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Start ``coro`` on the loop and return at once."""
        return asyncio.run_coroutine_threadsafe(coro, self._loop)

    def run(self, coro: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run ``coro`` and wait for it. An interrupt or a timeout cancels it.

        Raises:
            RuntimeError: called from the loop's own thread, where it would wait for itself.
        """
        if threading.current_thread() is self._thread:
            coro.close()
            raise RuntimeError("a blocking call from the workbench's own loop would never return")
        future = self.submit(coro)
        try:
            return future.result(timeout_s)
        except (KeyboardInterrupt, concurrent.futures.TimeoutError):
            future.cancel()
            raise

    def close(self) -> None:
        """Cancel what still runs, then stop the loop. Idempotent."""
        if self._loop.is_closed() or not self._thread.is_alive():
            return
        try:
            self.run(_cancel_others(), timeout_s=5)
        finally:
            self._loop.call_soon_threadsafe(self._stop)
            self._thread.join(5)


async def _cancel_others() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def polite(future: concurrent.futures.Future[T], tick_s: float = POLITE_TICK_S) -> T:
    """Await work that runs on another loop, waking this one every ``tick_s`` seconds.

    Cancelling the wait cancels the work.
    """
    wrapped = asyncio.wrap_future(future)
    try:
        while True:
            done, _ = await asyncio.wait({wrapped}, timeout=tick_s)
            if done:
                return wrapped.result()
    except BaseException:
        future.cancel()
        raise


async def in_thread(function: Callable[[], T]) -> T:
    """Run a blocking function on a daemon thread that does nothing else meanwhile.

    However many hang, the next one gets a thread. Cancelling the wait leaves it to end by itself.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def settle(value: T | None, error: BaseException | None) -> None:
        if result.done():
            return
        if error is None:
            result.set_result(cast("T", value))
        else:
            result.set_exception(error)

    def run() -> None:
        value, error = None, None
        try:
            value = function()
        except BaseException as raised:  # noqa: BLE001 - it is raised where it is waited for
            is_stop = isinstance(raised, StopIteration)  # which no future can hold
            error = RuntimeError(f"{raised!r} was raised") if is_stop else raised
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, value, error)

    _threads.run(run)
    return await result


async def end_task(task: asyncio.Task[Any] | None) -> None:
    """Cancel a task that its owner no longer needs, and wait until it is gone."""
    if task is None or task.done():  # one that is done may belong to a loop that is closed
        return
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
