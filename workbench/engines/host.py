"""One engine, served to many clients over one channel each.

A client submits requests on its channel and collects deltas by a long poll; both are plain calls,
so any transport will do. Deltas of all its requests travel together, every ``flush_s`` seconds or
at once when a request begins or ends, and are kept until the client has acknowledged them.

The host owns one task (the pump), which runs while requests are in flight.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from workbench.aio import end_task
from workbench.engines.control import EngineControl
from workbench.errors import ReplicaDiedError
from workbench.types import EngineFigures, FinishReason, GenerateRequest, TokenDelta

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from workbench.engines.base import Engine, EngineLimits

FLUSH_S = 0.05
"""How often deltas leave for the client; a Ray reply costs about as much as 20 tokens would."""

POLL_S = 20.0
"""How long a collect call waits when there is nothing to say."""

logger = logging.getLogger(__name__)


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
        self._session: dict[str, str] = {}
        self._adding: set[str] = set()
        self._doomed: set[str] = set()
        """Requests that somebody stopped, until their last words."""
        self._pump_task: asyncio.Task[None] | None = None
        self._death: ReplicaDiedError | None = None
        self._door = asyncio.Event()
        """Open, but while weights change."""
        self._door.set()
        self.control = EngineControl(self, engine)

    async def start(self) -> EngineLimits:
        """Load the engine's model."""
        return await self._engine.start()

    async def submit(
        self, channel_id: str, requests: Iterable[GenerateRequest]
    ) -> list[Exception | None]:
        """Take requests; per request the reason why it was not taken, or None.

        Raises:
            ReplicaDiedError: the engine is gone.
        """
        channel = self._channels.setdefault(channel_id, _Channel())
        batch = {request.request_id: request for request in requests}
        # Registered before the engine knows them: a first delta may come before add() returns,
        # and an abort while a request still waits behind others of its batch.
        self._owner |= dict.fromkeys(batch, channel)
        self._session |= {request.request_id: request.session_id for request in batch.values()}
        channel.open |= batch.keys()
        self._adding |= batch.keys()
        try:
            return [await self._add(request) for request in batch.values()]
        finally:
            for request_id in self._adding & batch.keys():
                self._forget(request_id)
            self._adding -= batch.keys()

    async def _add(self, request: GenerateRequest) -> Exception | None:
        """Hand a request to the engine; one that stays in ``_adding`` was not taken."""
        await self._door.wait()
        if self._death:
            raise self._death
        try:
            await self._engine.add(request)
        except ReplicaDiedError as death:
            self.give_up(death)
            raise
        except Exception as refusal:  # noqa: BLE001 - this request's, and no other's
            return refusal
        self._adding.discard(request.request_id)
        if request.request_id in self._doomed:
            await self._engine.abort([request.request_id])
        if self._pump_task is None or self._pump_task.done():
            self._pump_task = asyncio.create_task(self._pump(), name=f"pump-{self.replica_id}")
        return None

    async def collect(self, channel_id: str, delivered: int) -> tuple[int, list[TokenDelta]]:
        """Deltas after the first ``delivered`` of this channel; waits until there are some.

        Returns the number to acknowledge next time, and the deltas. There may be none after
        ``POLL_S`` seconds without news. A client that counts from 0 again gets all that is left.
        """
        channel = self._channels.setdefault(channel_id, _Channel())
        acknowledged = max(0, delivered - channel.delivered)
        del channel.outbox[:acknowledged]
        channel.delivered += acknowledged
        if not channel.outbox:
            channel.news.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):  # 3.11's wait_for may swallow a cancellation
                    await channel.news.wait()
        return channel.delivered + len(channel.outbox), list(channel.outbox)

    async def abort(self, request_ids: Iterable[str]) -> None:
        """Stop requests in the engine; those that are unknown or over are passed over."""
        known = {request_id for request_id in request_ids if request_id in self._owner}
        # The engine does not know those that it is just taking; they are stopped right after.
        self._doomed |= known
        if in_engine := known - self._adding:
            await self._engine.abort(in_engine)

    async def abort_all(self, session_id: str | None = None) -> int:
        """Stop the requests of one session, or of all; how many that were."""
        doomed = [
            request_id
            for request_id, session in self._session.items()
            if session_id is None or session == session_id
        ]
        await self.abort(doomed)
        return len(doomed)

    @contextlib.contextmanager
    def interruption(self) -> Iterator[None]:
        """Requests wait at the door; those that end, and that nobody stopped, were not meant to."""
        self._door.clear()
        try:
            yield
            self._post_all()
        finally:
            self._door.set()

    async def close_channel(self, channel_id: str) -> None:
        """Forget a client and stop what it still has running."""
        channel = self._channels.pop(channel_id, None)
        if channel:
            # They stay registered until their last words, so that the pump takes those.
            await self.abort(channel.open)

    def figures(self) -> EngineFigures:
        """What the engine reports of itself."""
        return self._engine.figures()

    def probe(self) -> EngineFigures:
        """The figures, as a proof of health.

        Raises:
            ReplicaDiedError: the engine is gone.
        """
        if self._death:  # a copy: each time one is raised its traceback grows
            raise ReplicaDiedError(self._death.replica_id, self._death.cause)
        self._engine.check()
        return self.figures()

    async def close(self) -> None:
        """Stop the engine; requests in flight end with :class:`ReplicaDiedError`."""
        self.give_up(ReplicaDiedError(self.replica_id, "it was closed"))
        await end_task(self._pump_task)
        await self._engine.close()

    async def _pump(self) -> None:
        try:
            while self._owner:
                await self._engine.wait(self._flush_s)
                self._post_all()
        except ReplicaDiedError as death:
            self.give_up(death)
        except Exception as error:  # a silent end would leave every caller waiting
            logger.exception("the engine of %s broke", self.replica_id)
            self.give_up(ReplicaDiedError(self.replica_id, f"{type(error).__name__}: {error}"))

    def _post_all(self) -> None:
        interrupted = not self._door.is_set()
        for delta in self._engine.drain():
            ended = delta.finish_reason is FinishReason.ABORT
            if interrupted and ended and delta.request_id not in self._doomed:
                delta = replace(delta, interrupted=True)  # noqa: PLW2901 - the same one, marked
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
        self._session.pop(request_id, None)
        self._doomed.discard(request_id)
        channel = self._owner.pop(request_id, None)
        if channel:
            channel.open.discard(request_id)

    def give_up(self, death: ReplicaDiedError) -> None:
        """The engine is gone, or as good as: all requests in it end with ``death``."""
        self._death = self._death or death
        for request_id in list(self._owner):
            self._post(TokenDelta(request_id, [], [], version=0, error=death))
