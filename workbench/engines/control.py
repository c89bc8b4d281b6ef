"""What is done to an engine beside serving: pauses, weights, caches, sleep."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from workbench.errors import ReplicaDiedError
from workbench.weights import ReplicaUpdate

if TYPE_CHECKING:
    from workbench.engines.base import Engine
    from workbench.engines.host import EngineHost
    from workbench.weights import PauseMode


class EngineControl:
    """One change at a time. Whoever paused an engine resumes it: an update keeps a pause in force.

    While weights change, requests wait at the host's door: taken in before and computed after, they
    would reuse cache blocks of the old weights under the new ones.
    """

    def __init__(self, host: EngineHost, engine: Engine) -> None:
        self._host = host
        self._engine = engine
        self._lock = asyncio.Lock()
        self.version = 0
        """The policy version of the weights."""
        self.paused = False
        """Whether somebody wants it to stand still; an update that is under way does not count."""
        self._pausing = False
        self._asked = 0
        """Pauses so far."""
        self._over = 0
        """Those of them, from the first, that a resume came after."""

    async def pause(self, mode: PauseMode = "keep") -> None:
        """Stand still until :meth:`resume`. Requests are taken, and wait."""
        self._asked += 1
        number = self._asked
        async with self._lock:
            if number <= self._over:
                return  # it was resumed while this waited for another change
            self.paused = True  # also where this is cut short: resume() helps then
            self._pausing = True
            try:
                await self._engine.pause(mode)
            finally:
                self._pausing = False

    async def resume(self) -> None:
        """Go on. Idempotent; also ends a pause that waits for requests to end, or for its turn."""
        self._over = self._asked
        if self._pausing:
            self.paused = False
            await self._engine.resume()
            return
        async with self._lock:
            await self._engine.resume()
            self.paused = False

    async def update(
        self,
        directory: str,
        version: int,
        mode: PauseMode = "keep",
        *,
        recompute: bool = False,
        limit_s: float | None = None,
    ) -> ReplicaUpdate:
        """Take over the weights in ``directory`` as policy version ``version``.

        Args:
            directory: a checkpoint that was checked.
            version: what later tokens are stamped with.
            mode: what becomes of the requests that are here.
            recompute: they compute their KV blocks again, under the new weights.
            limit_s: what loading may take.

        Raises:
            Exception: it did not take them. The engine is given up, since its weights may be half
                old and half new; requests in it end with :class:`ReplicaDiedError`.
        """
        async with self._lock:
            try:
                self._host.probe()  # one that was given up takes nothing any more
                with self._host.interruption():
                    return await self._swap(directory, version, mode, recompute, limit_s)
            except BaseException as error:
                told = error if str(error) else f"not loaded within {limit_s} s"
                cause = f"it did not take weights of version {version}: {told}"
                self._host.give_up(ReplicaDiedError(self._host.replica_id, cause))
                raise

    async def _swap(
        self,
        directory: str,
        version: int,
        mode: PauseMode,
        recompute: bool,
        limit_s: float | None,
    ) -> ReplicaUpdate:
        began_s = time.perf_counter()
        if self.paused and mode == "wait":
            mode = "keep"  # what somebody paused does not run to its end
        await self._engine.pause(mode, clear_cache=recompute)
        paused_s = time.perf_counter()
        async with asyncio.timeout(limit_s):
            await self._engine.load_weights(directory, version)
        self.version = version
        loaded_s = time.perf_counter()
        if not self.paused:
            await self._engine.resume()
        return ReplicaUpdate(
            self._host.replica_id,
            version,
            pause_s=paused_s - began_s,
            load_s=loaded_s - paused_s,
            resume_s=time.perf_counter() - loaded_s,
        )

    async def clear_cache(self) -> None:
        """Drop all KV blocks; requests that run compute theirs again."""
        async with self._lock:
            await self._engine.clear_cache()

    async def sleep(self, level: int = 1) -> bool:
        """Give the device's memory back; whether there was any to give."""
        async with self._lock:
            return await self._engine.sleep(level)

    async def wake(self) -> bool:
        """The opposite of :meth:`sleep`; what somebody paused stays paused."""
        async with self._lock:
            woke = await self._engine.wake()
            if woke and self.paused:
                await self._engine.pause("keep")
            return woke
