"""New weights in the middle of a stream."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Protocol

from workbench.errors import ConfigError, FieldError, PoolError
from workbench.metrics.streams import PublishMark
from workbench.weights import check_mode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from workbench.metrics.streams import StreamSnapshot
    from workbench.stream.groups import Ticket
    from workbench.stream.rules import StreamRules
    from workbench.weights import PauseMode, WeightUpdate


LOOK_S = 0.05
"""Between two looks whether rollouts still run, where none may while weights change."""


class VersionPort(Protocol):
    """The queue, as whoever publishes needs it; see :class:`workbench.stream.queue.StreamQueue`."""

    async def snapshot(self) -> StreamSnapshot: ...
    async def begin_publish(self, version: int) -> None: ...
    async def end_publish(self, mark: PublishMark) -> list[Ticket]: ...
    async def fail(self, error: str) -> None: ...


class Publisher:
    """Gives a pool new weights, one version at a time.

    Args:
        queue: keeps the versions.
        rules: of the stream.
        update: does it: weights, version, mode, options.
        pool_version: what the pool is on.
        cancel: stops groups that have become too old.
        idle: returns when nothing is in flight.
    """

    def __init__(
        self,
        queue: VersionPort,
        rules: StreamRules,
        *,
        update: Callable[..., Awaitable[WeightUpdate]],
        pool_version: Callable[[], Awaitable[int]],
        cancel: Callable[[Iterable[Ticket]], None],
        idle: Callable[[], Awaitable[None]],
    ) -> None:
        self._queue = queue
        self._rules = rules
        self._update = update
        self._pool_version = pool_version
        self._cancel = cancel
        self._idle = idle
        self._lock = asyncio.Lock()
        self._under_way: set[asyncio.Task[WeightUpdate]] = set()
        """Those whose callers may have gone."""

    async def publish(
        self,
        weights: Any,
        version: int | None = None,
        mode: PauseMode | None = None,
        **options: Any,
    ) -> WeightUpdate:
        """See :meth:`workbench.facade.stream.Stream.publish`."""
        mode = check_mode(mode or self._rules.update_mode)
        is_updating = asyncio.Event()
        publish = asyncio.ensure_future(self._publish(weights, version, mode, is_updating, options))
        self._under_way.add(publish)
        publish.add_done_callback(self._forget)
        try:
            return await asyncio.shield(publish)
        except asyncio.CancelledError:
            if not is_updating.is_set():
                publish.cancel()
            await asyncio.wait({publish})  # engines do not stop half way, and the books follow them
            raise

    def _forget(self, publish: asyncio.Task[WeightUpdate]) -> None:
        self._under_way.discard(publish)
        if not publish.cancelled():
            publish.exception()  # its caller was told, or has gone

    async def _publish(
        self,
        weights: Any,
        version: int | None,
        mode: PauseMode,
        is_updating: asyncio.Event,
        options: dict[str, Any],
    ) -> WeightUpdate:
        """From here on only what stops everything interrupts an update."""
        async with self._lock:
            version = await self._next(version)
            began_s = time.monotonic()
            beginning = asyncio.ensure_future(self._queue.begin_publish(version))
            try:
                await asyncio.shield(beginning)
                if not self._rules.partial_rollout:
                    await self._stillness()
                is_updating.set()
                update = await self._update(weights, version=version, mode=mode, **options)
            except BaseException as error:
                await asyncio.wait({beginning})  # or its end would overtake it
                is_unseen = isinstance(error, FieldError) or not is_updating.is_set()
                total_s = time.monotonic() - began_s
                mark = PublishMark(
                    time.time(), version, mode, 0.0, total_s, _told(error), refused=is_unseen
                )
                await self._failed(mark, error)
                raise
            mark = PublishMark(
                time.time(), version, mode, update.stopped_s, update.total_s,
                replaced=update.replaced,
            )  # fmt: skip
            self._cancel(await self._queue.end_publish(mark))
            return update

    async def _stillness(self) -> None:
        """Until the queue, too, knows of nothing in flight: a ticket may be on its way."""
        await self._idle()
        while (await self._queue.snapshot()).in_flight:
            await asyncio.sleep(LOOK_S)
            await self._idle()

    async def _failed(self, mark: PublishMark, error: BaseException) -> None:
        await self._queue.end_publish(mark)
        if isinstance(error, PoolError) and self._rules.on_failed_publish == "stop":
            await self._queue.fail(f"version {mark.version} was not published: {mark.error}")

    async def _next(self, version: int | None) -> int:
        """The version that comes next.

        Raises:
            ConfigError: another one was asked for.
        """
        known = await self._queue.snapshot()
        pool = max(known.pool_version, await self._pool_version())
        # A learner may be ahead of a pool that began anew, which then catches up; unless it has
        # learned from more since, for then its weights are no longer those of its last version.
        coming = max(known.version + bool(known.handed), pool + 1)
        if version is not None and version != coming:
            allowed = f"{coming}, the one after the pool's, since staleness counts them; or None"
            raise ConfigError("version", f"{version!r}", allowed=allowed)
        return coming


def _told(error: BaseException) -> str:
    if isinstance(error, asyncio.CancelledError):
        return "it was interrupted"
    return str(error) or type(error).__name__
