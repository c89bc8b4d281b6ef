"""A pool as the blocking objects of this package reach it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from workbench.cluster.feeding import pool_feed
from workbench.errors import PoolClosedError

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from workbench.aio import LoopThread
    from workbench.cluster.manager import LLMServerManager
    from workbench.types import PoolSnapshot

T = TypeVar("T")

LOOK_S = 5.0
"""How long a repr waits for the pool."""


class Reach:
    """The manager, the loop on which its calls run, and the feed that all views share."""

    def __init__(self, manager: LLMServerManager, loop: LoopThread) -> None:
        self.manager = manager
        self.loop = loop
        self.closed = False
        self.feed = manager.feed = pool_feed(manager, self.call)
        """What the pool records. Stays as it is once the pool has closed."""

    def call(self, coro: Coroutine[Any, Any, T]) -> T:
        """Run ``coro`` and wait for it.

        Raises:
            PoolClosedError: this object's way to the pool was closed.
        """
        return self.loop.run(self.while_open(coro))

    def while_open(self, coro: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """``coro`` itself.

        Raises:
            PoolClosedError: this object's way to the pool was closed.
        """
        if self.closed:
            coro.close()
            raise PoolClosedError(f"the pool {self.manager.config.name!r} was closed")
        return coro

    def look(self) -> PoolSnapshot | str:
        """The pool at this moment, or in words why it cannot be seen."""
        return self.look_at(self.manager.snapshot())

    def look_at(self, coro: Coroutine[Any, Any, T], limit_s: float | None = None) -> T | str:
        """What ``coro`` brings, or in words why it does not. For reprs: quick, and never raises."""
        limit_s = LOOK_S if limit_s is None else limit_s
        try:
            return self.loop.run(self.while_open(coro), limit_s)
        except PoolClosedError:
            return "closed"
        except TimeoutError:
            return f"no answer within {limit_s:g} s"
        except Exception as error:  # noqa: BLE001 - whatever it is, somebody only wanted to look
            return str(error) or type(error).__name__
