"""One engine, served to many clients over one channel each.

A client submits requests on its channel and collects deltas by a long poll; both are plain calls,
so any transport will do. Deltas of all its requests travel together, every ``flush_s`` seconds or
at once when a request begins or ends, and are kept until the client has acknowledged them.

The host owns one task (the pump), which runs while requests are in flight.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from workbench.aio import end_task
from workbench.errors import ReplicaDiedError, RequestError
from workbench.types import EngineFigures, GenerateRequest, TokenDelta

if TYPE_CHECKING:
    from collections.abc import Iterable

    from workbench.engines.base import Engine, EngineLimits

FLUSH_S = 0.05
"""How often deltas leave for the client; a Ray reply costs about as much as 20 tokens would."""

POLL_S = 20.0
"""How long a collect call waits when there is nothing to say."""


@dataclass(slots=True)
class _Channel:
    open: set[str] = field(default_factory=set)
    outbox: list[TokenDelta] = field(default_factory=list)
    delivered: int = 0
    """Deltas that left the outbox because the client acknowledged them."""
    news: asyncio.Event = field(default_factory=asyncio.Event)


class EngineHost:
    """Serves ``engine`` under the name ``replica_id``."""

    def __init__(self, replica_id: str, engine: Engine, *, flush_s: float = FLUSH_S) -> None:
        self.replica_id = replica_id
        self._engine = engine
        self._flush_s = flush_s
        self._channels: dict[str, _Channel] = {}
        self._owner: dict[str, _Channel] = {}
        self._adding: set[str] = set()
        self._doomed: set[str] = set()
        self._pump_task: asyncio.Task[None] | None = None
        self._death: ReplicaDiedError | None = None

    async def start(self) -> EngineLimits:
        """Load the engine's model."""
        return await self._engine.start()

    async def submit(
        self, channel_id: str, requests: Iterable[GenerateRequest]
    ) -> list[RequestError | None]:
        """Take requests; per request the reason why it was refused, or None.

        Raises:
            ReplicaDiedError: the engine is gone.
        """
        channel = self._channels.setdefault(channel_id, _Channel())
        return [await self._submit(channel, request) for request in requests]

    async def _submit(self, channel: _Channel, request: GenerateRequest) -> RequestError | None:
        if self._death:
            raise self._death
        # Registered before the engine knows it: its first delta may come before add() returns.
        self._owner[request.request_id] = channel
        channel.open.add(request.request_id)
        self._adding.add(request.request_id)
        try:
            await self._engine.add(request)
        except BaseException as error:
            self._forget(request.request_id)
            if isinstance(error, RequestError):
                return error
            if isinstance(error, ReplicaDiedError):
                self._fail_all(error)
            raise
        finally:
            self._adding.discard(request.request_id)
        if request.request_id in self._doomed:
            self._doomed.discard(request.request_id)
            await self._engine.abort([request.request_id])
        if self._pump_task is None or self._pump_task.done():
            self._pump_task = asyncio.create_task(self._pump(), name=f"pump-{self.replica_id}")
        return None

    async def collect(self, channel_id: str, delivered: int) -> tuple[int, list[TokenDelta]]:
        """Deltas after the first ``delivered`` of this channel; waits until there are some.

        Returns the number to acknowledge next time, and the deltas. Both may be what they were
        after ``POLL_S`` seconds without news.
        """
        channel = self._channels.setdefault(channel_id, _Channel())
        del channel.outbox[: delivered - channel.delivered]
        channel.delivered = delivered
        if not channel.outbox:
            channel.news.clear()
            try:
                await asyncio.wait_for(channel.news.wait(), POLL_S)
            except TimeoutError:
                return delivered, []
        return delivered + len(channel.outbox), list(channel.outbox)

    async def abort(self, request_ids: Iterable[str]) -> None:
        """Stop requests in the engine; those that are unknown or over are passed over."""
        known = {request_id for request_id in request_ids if request_id in self._owner}
        # The engine does not know those that it is just taking; they are stopped right after.
        self._doomed |= known & self._adding
        if in_engine := known - self._adding:
            await self._engine.abort(in_engine)

    async def close_channel(self, channel_id: str) -> None:
        """Forget a client and stop what it still has running."""
        channel = self._channels.pop(channel_id, None)
        if channel:
            await self.abort(list(channel.open))
            for request_id in list(channel.open):
                self._forget(request_id)

    def figures(self) -> EngineFigures:
        """What the engine reports of itself."""
        return self._engine.figures()

    async def close(self) -> None:
        """Stop the engine; requests in flight end with :class:`ReplicaDiedError`."""
        self._fail_all(ReplicaDiedError(self.replica_id, "it was closed"))
        await end_task(self._pump_task)
        await self._engine.close()

    async def _pump(self) -> None:
        while self._owner:
            await self._engine.wait(self._flush_s)
            try:
                deltas = self._engine.drain()
            except ReplicaDiedError as death:
                self._fail_all(death)
                return
            for delta in deltas:
                self._post(delta)

    def _post(self, delta: TokenDelta) -> None:
        channel = self._owner.get(delta.request_id)
        if channel is None:
            return
        channel.outbox.append(delta)
        channel.news.set()
        if delta.is_last:
            self._forget(delta.request_id)

    def _forget(self, request_id: str) -> None:
        channel = self._owner.pop(request_id, None)
        if channel:
            channel.open.discard(request_id)

    def _fail_all(self, death: ReplicaDiedError) -> None:
        self._death = self._death or death
        for request_id in list(self._owner):
            self._post(TokenDelta(request_id, [], [], version=0, error=death))
