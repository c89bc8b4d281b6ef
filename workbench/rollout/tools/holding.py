"""What is made for one rollout and given back when it is over, whatever happens in between."""

from __future__ import annotations

import asyncio
import inspect
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from workbench.aio import in_thread
from workbench.rollout.tools.base import Tool, finished

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(slots=True)
class Held:
    """A rollout's tools over one thing that was made for it: a :class:`ToolSession`."""

    tools: Mapping[str, Tool]
    _made: Any
    _release: Callable[[Any], Any] | None

    async def close(self) -> None:
        """Give it back."""
        await given_back(self._made, self._release)


async def given_back(made: Any, release: Callable[[Any], Any] | None) -> None:
    """Release what was made; a blocking ``release`` runs on a thread of its own."""
    if release is not None:
        await finished(lambda: release(made), release, lambda _: None)


async def made_by(make: Callable[[], Any], release: Callable[[Any], Any] | None) -> Any:
    """What ``make`` returns; given back if nobody waits for it any more when it is there.

    A blocking ``make`` cannot be interrupted. When the wait for it is, its thread goes on, and
    releases what it made in the end.
    """
    if inspect.iscoroutinefunction(make):
        return await make()
    making = _Making(make, release)
    try:
        result = await in_thread(making.run)
    except asyncio.CancelledError:
        for there in making.leave():
            await given_back(there, release)
        raise
    return await result if inspect.isawaitable(result) else result


@dataclass(slots=True)
class _Making:
    """Made on a thread, for somebody who may leave meanwhile."""

    make: Callable[[], Any]
    release: Callable[[Any], Any] | None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _there: list[Any] = field(default_factory=list)
    _is_left: bool = False

    def run(self) -> Any:
        """On the thread."""
        made = self.make()
        if inspect.isawaitable(made):
            return made  # nothing was made yet; it is awaited on the loop
        with self._lock:
            if not self._is_left:
                self._there.append(made)
                return made
        self._release_here(made)
        return None

    def leave(self) -> list[Any]:
        """On the loop: nobody waits any more. What is there already, to be given back."""
        with self._lock:
            self._is_left = True
            return self._there

    def _release_here(self, made: Any) -> None:
        result = None if self.release is None else self.release(made)
        if inspect.iscoroutine(result):
            asyncio.run(result)  # the rollout's loop may be gone by now
