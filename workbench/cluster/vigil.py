"""A watch over the head of a cluster that this process joined.

When a head is gone, Ray's calls of actors there neither return nor fail, and after a minute Ray
ends the whole process, a notebook's kernel included. So somebody has to notice first: the calls
that wait fail then, and the process leaves the cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

PROBE_S = 1.0
"""How often the head is knocked at, and how long it may take to open."""

MISSES = 3
"""Knocks in a row that nobody answered, after which the head is gone."""


class ClusterGoneError(Exception):
    """The cluster's head does not answer any more. Never leaves :mod:`workbench.cluster`."""


class Vigil:
    """Watches until :meth:`stop`, or until the head is gone; then calls ``leave`` on its thread."""

    def __init__(
        self, answers: Callable[[], bool], leave: Callable[[], None], period_s: float = PROBE_S
    ) -> None:
        self._answers = answers
        self._leave = leave
        self._period_s = period_s
        self._waiting: set[asyncio.Future[Any]] = set()
        self._stopped = threading.Event()
        self._gone = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="workbench-vigil", daemon=True)
        self._thread.start()

    @property
    def gone(self) -> bool:
        """Whether the head is."""
        return self._gone.is_set()

    def stop(self) -> None:
        """Look away. Idempotent."""
        self._stopped.set()

    def join(self) -> None:
        """Wait until a cluster that is gone has been left as well."""
        self._thread.join()

    async def answer(self, reply: Awaitable[Any]) -> Any:
        """What ``reply`` brings.

        Raises:
            ClusterGoneError: the head is gone, and nothing will come.
        """
        waiting = asyncio.ensure_future(reply)
        self._waiting.add(waiting)
        if self.gone:
            waiting.cancel()
        try:
            return await waiting
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self.gone and not (task and task.cancelling()):
                raise ClusterGoneError from None
            raise
        finally:
            self._waiting.discard(waiting)

    def _watch(self) -> None:
        misses = 0
        while misses < MISSES:
            if self._stopped.wait(self._period_s):
                return
            misses = 0 if self._answers() else misses + 1
        self._gone.set()
        for waiting in list(self._waiting):
            with contextlib.suppress(RuntimeError):  # its loop is closed: nobody waits any more
                waiting.get_loop().call_soon_threadsafe(waiting.cancel)
        self._leave()


def answers(address: str) -> bool:
    """Whether anything listens at ``host:port``."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=PROBE_S).close()
    except OSError:
        return False
    return True
