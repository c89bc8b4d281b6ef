"""Virtual time: an event loop whose clock jumps to the next timer instead of sleeping.

What ran for hours runs in moments, in the same order on every machine, and durations come out
exact. Only what waits on this loop's timers is sped up: work on threads (``to_thread``,
``call_soon_threadsafe``), other processes and sockets take real time, which this loop does not wait
for, and count as nothing to do. So does a program that waits for ever beside a timer that comes
again and again: put :func:`asyncio.timeout` around it, which costs no time either.
"""

from __future__ import annotations

import asyncio
import math
import selectors
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


class VirtualDeadlockError(RuntimeError):
    """Nothing is ready and no timer is set: whoever waits would wait for ever."""


class _JumpingSelector(selectors.SelectSelector):
    """Never blocks; where the loop would, it moves the loop's clock."""

    loop: VirtualClockLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and (timeout is None or timeout > 0):
            self.loop.jump()
        return ready


class VirtualClockLoop(asyncio.SelectorEventLoop):
    """Its ``time()`` is ``start_s`` plus what was slept so far, in seconds."""

    def __init__(self, start_s: float = 0.0) -> None:
        selector = _JumpingSelector()
        selector.loop = self
        super().__init__(selector)
        self._set(start_s)

    def time(self) -> float:
        """Seconds of virtual time."""
        return self._now

    def jump(self) -> None:
        """Go to the next timer.

        Raises:
            VirtualDeadlockError: there is none. Names the tasks that wait.
        """
        timers: list[asyncio.TimerHandle] = self.__dict__["_scheduled"]
        if not timers:
            waiting = sorted(task.get_name() for task in asyncio.all_tasks(self))
            problem = f"at {self._now} s nothing is ready and no timer is set; waiting: "
            raise VirtualDeadlockError(problem + ", ".join(waiting))
        self._set(max(self._now, timers[0].when()))

    def _set(self, now: float) -> None:
        self._now = now
        # asyncio runs timers that are due before time() plus this. Its own value is lost in the
        # rounding once time() is large, and then no timer is ever due.
        self.__dict__["_clock_resolution"] = math.ulp(now)


def run_virtual(main: Coroutine[Any, Any, T], *, start_s: float = 0.0) -> T:
    """Like :func:`asyncio.run`, in virtual time that begins at ``start_s``.

    Raises:
        VirtualDeadlockError: ``main`` waits for something that cannot happen any more.
    """
    with asyncio.Runner(loop_factory=lambda: VirtualClockLoop(start_s)) as runner:
        return runner.run(main)
