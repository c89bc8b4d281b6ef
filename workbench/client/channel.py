"""A client's one channel to one replica: requests out, deltas in, many at once.

Requests that are opened together travel in one call; deltas of all requests come back through one
long poll. The channel owns two tasks, which live while there is something to send or to hear.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from workbench.aio import end_task
from workbench.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from workbench.types import GenerateRequest, TokenDelta


AT_ONCE = 32
"""Requests that are told of their tokens in one pass of the event loop."""


class ReplicaPort(Protocol):
    """The way to a replica: what :class:`workbench.engines.host.EngineHost` does, from afar."""

    async def submit(
        self, channel_id: str, requests: Sequence[GenerateRequest]
    ) -> Sequence[Exception | None]: ...

    async def collect(self, channel_id: str, delivered: int) -> tuple[int, list[TokenDelta]]: ...

    def abort(self, request_ids: Sequence[str]) -> None:
        """Does not wait."""
        ...

    def close_channel(self, channel_id: str) -> None:
        """Does not wait."""
        ...


class Channel:
    """See the module."""

    def __init__(self, port: ReplicaPort, channel_id: str) -> None:
        self.port = port
        self._id = channel_id
        self._queues: dict[str, asyncio.Queue[TokenDelta | Exception]] = {}
        self._outbox: list[GenerateRequest] = []
        self._delivered = 0
        self._sender: asyncio.Task[None] | None = None
        self._listener: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        """Whether a request is open."""
        return bool(self._queues)

    async def run(self, request: GenerateRequest) -> AsyncGenerator[TokenDelta, None]:
        """The deltas of one request. Leaving early stops it in the engine.

        Raises:
            RequestError: it was refused.
            ReplicaDiedError: the replica is gone; what came before is good.
        """
        queue = self._queues[request.request_id] = asyncio.Queue()
        self._outbox.append(request)
        self._send()
        over = False
        try:
            while not over:
                news = await queue.get()
                if isinstance(news, Exception):
                    over = isinstance(news, RequestError)  # after others the engine may go on
                    raise news
                over = news.is_last
                if news.error:
                    raise news.error
                yield news
        finally:
            del self._queues[request.request_id]
            if not over:
                self.port.abort([request.request_id])

    async def aclose(self, reason: Exception) -> None:
        """End the channel's tasks; what is open on it ends with ``reason``. Idempotent."""
        self._outbox.clear()
        self._tell_all(reason)
        await end_task(self._sender)
        await end_task(self._listener)
        self.port.close_channel(self._id)

    def _tell(self, request_id: str, news: TokenDelta | Exception) -> None:
        if queue := self._queues.get(request_id):
            queue.put_nowait(news)

    def _tell_all(self, error: Exception) -> None:
        for request_id in self._queues:
            self._tell(request_id, error)

    def _send(self) -> None:
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send_all())

    async def _send_all(self) -> None:
        while self._outbox:
            batch, self._outbox = self._outbox, []
            wanted = [request for request in batch if request.request_id in self._queues]
            refusals: Sequence[Exception | None]
            try:
                refusals = await self.port.submit(self._id, wanted)
            except Exception as error:  # noqa: BLE001 - handed to everyone who waits for it
                refusals = [error] * len(wanted)
            for request, refusal in zip(wanted, refusals, strict=True):
                if refusal is not None:
                    self._tell(request.request_id, refusal)
            # An abort may overtake the submission that it is about.
            left = [r.request_id for r in wanted if r.request_id not in self._queues]
            if left:
                self.port.abort(left)
            self._listen()

    def _listen(self) -> None:
        if self._listener is None or self._listener.done():
            self._listener = asyncio.create_task(self._hear())

    async def _hear(self) -> None:
        while self._queues:
            try:
                self._delivered, deltas = await self.port.collect(self._id, self._delivered)
            except Exception as error:  # noqa: BLE001 - handed to every open request
                self._tell_all(error)
                return
            for number, delta in enumerate(deltas, 1):
                self._tell(delta.request_id, delta)
                if not number % AT_ONCE:
                    await asyncio.sleep(0)  # those who were told go on before the next are
