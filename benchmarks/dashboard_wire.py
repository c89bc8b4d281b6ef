"""The pool of the dashboard benchmark in a process of its own, and a viewer's way to it.

What is asked and answered is pickled and goes through a socket, as it does between a notebook and
a pool in a cluster.
"""

from __future__ import annotations

import multiprocessing
import pickle
import secrets
import threading
from contextlib import contextmanager, suppress
from multiprocessing.connection import Client, Connection, Listener
from typing import TYPE_CHECKING, Any

from workbench.errors import PoolClosedError
from workbench.metrics.feed import Feed
from workbench.metrics.tables import event_frame, session_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pandas as pd

ENDS_S = 10.0


@contextmanager
def process(target: Callable[..., None], *given: Any) -> Iterator[Any]:
    """Run ``target(pipe, *given)`` in a fresh process; yields what it sends first.

    It has to return when the pipe is closed, which also happens when this process dies.
    """
    context = multiprocessing.get_context("spawn")
    ours, its = context.Pipe()
    child = context.Process(target=target, args=(its, *given), daemon=True)
    child.start()
    its.close()
    try:
        yield ours.recv()
    finally:
        ours.close()
        child.join(ENDS_S)
        child.kill()
        child.join()


def until_closed(pipe: Connection) -> None:
    """Return when the other side has closed."""
    with suppress(EOFError, OSError):
        pipe.recv()


def pool_process(pipe: Connection, period_s: float | None) -> None:
    """For :func:`process`: a :class:`~benchmarks.dashboard_pool.BusyPool`; sends its address."""
    from benchmarks.dashboard_pool import BusyPool

    key = secrets.token_bytes(16)
    pool = BusyPool(period_s)
    listener = Listener(family="AF_UNIX", authkey=key)

    def welcome() -> None:
        while True:
            threading.Thread(target=_answer, args=(listener.accept(), pool), daemon=True).start()

    threading.Thread(target=welcome, daemon=True).start()
    pipe.send((listener.address, key))
    until_closed(pipe)
    listener.close()


def _answer(connection: Connection, pool: object) -> None:
    with suppress(EOFError, OSError):
        while True:
            name, arguments = connection.recv()
            connection.send(getattr(pool, name)(*arguments))


class Remote:
    """Calls a pool's methods, from any thread.

    Args:
        where: what :func:`pool_process` sent.
    """

    def __init__(self, where: tuple[str, bytes]) -> None:
        address, key = where
        self._connection = Client(address, authkey=key)
        self._lock = threading.Lock()
        self.received_bytes = 0

    def call(self, name: str, *arguments: Any) -> Any:
        """The answer.

        Raises:
            PoolClosedError: the pool's process has ended.
        """
        return pickle.loads(self.ask(name, *arguments))

    def ask(self, name: str, *arguments: Any) -> bytes:
        """The answer as it came."""
        try:
            with self._lock:
                self._connection.send((name, arguments))
                answer = self._connection.recv_bytes()
        except (EOFError, OSError) as error:
            raise PoolClosedError("its process has ended") from error
        self.received_bytes += len(answer)
        return answer

    def feed(self, period_s: float = 1.0) -> Feed:
        """The pool's figures in this process, made as a cluster's are."""

        def sessions(start: int, limit: int) -> pd.DataFrame:
            return session_frame(self.call("sessions", start, limit))

        def events(cursor: int, limit: int) -> pd.DataFrame:
            items, cursor, lost = self.call("events", cursor, limit)
            return event_frame(items, cursor=cursor, lost=lost)

        return Feed(
            "benchmark",
            lambda cursor: self.call("read", cursor),
            sessions=sessions,
            events=events,
            rollouts=lambda name: self.call("rollouts", name),
            period_s=period_s,
        )
