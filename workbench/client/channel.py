"""A client's one channel to one replica: requests out, deltas in, many at once.

Requests that are opened together travel in one call; deltas of all requests come back through one
long poll. The channel owns two tasks, which live while there is something to send or to hear.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from workbench.aio import end_task
from workbench.errors import RequestError
from workbench.types import GenerateRequest, TokenDelta

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence


class ReplicaPort(Protocol):
    """The way to a replica: what :class:`workbench.engines.host.EngineHost` does, from afar."""

    async def submit(
        self, channel_id: str, requests: Sequence[GenerateRequest]
    ) -> Sequence[RequestError | None]: ...

    async def collect(self, channel_id: str, delivered: int) -> tuple[int, list[TokenDelta]]: ...

    def abort(self, request_ids: Sequence[str]) -> None:
        """Does not wait."""
        ...


class Channel:
    """See the module."""

    def __init__(self, port: ReplicaPort, channel_id: str) -> None:
        self._port = port
        self._id = channel_id
        self._queues: dict[str, asyncio.Queue[TokenDelta | Exception]] = {}
        self._outbox: list[tuple[GenerateRequest, asyncio.Future[None]]] = []
        self._delivered = 0
        self._sender: asyncio.Task[None] | None = None
        self._listener: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        """Whether a request is open."""
        return bool(self._queues)

    async def run(self, request: GenerateRequest) -> AsyncIterator[TokenDelta]:
        """The deltas of one request. Leaving early stops it in the engine.

        Raises:
            RequestError: it was refused.
            ReplicaDiedError: the replica is gone; what came before is good.
        """
        queue = self._queues[request.request_id] = asyncio.Queue()
        over = False
        try:
            try:
                await self._submit(request)
            except RequestError:
                over = True
                raise
            self._listen()
            while not over:
                delta = await queue.get()
                error = delta if isinstance(delta, Exception) else delta.error
                if error is not None:
                    over = True
                    raise error
                assert isinstance(delta, TokenDelta)
                over = delta.is_last
                yield delta
        finally:
            del self._queues[request.request_id]
            if not over:
                self._port.abort([request.request_id])

    async def aclose(self) -> None:
        """End the channel's tasks. Idempotent."""
        await end_task(self._sender)
        await end_task(self._listener)

    async def _submit(self, request: GenerateRequest) -> None:
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._outbox.append((request, answer))
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send())
        await answer

    async def _send(self) -> None:
        while self._outbox:
            batch, self._outbox = self._outbox, []
            wanted = [(request, answer) for request, answer in batch if not answer.cancelled()]
            try:
                refusals = await self._port.submit(self._id, [request for request, _ in wanted])
            except Exception as error:  # noqa: BLE001 - handed to everyone who waits for it
                refusals = [error] * len(wanted)
            for (_, answer), refusal in zip(wanted, refusals, strict=True):
                if answer.cancelled():
                    continue
                if refusal is None:
                    answer.set_result(None)
                else:
                    answer.set_exception(refusal)

    def _listen(self) -> None:
        if self._listener is None or self._listener.done():
            self._listener = asyncio.create_task(self._hear())

    async def _hear(self) -> None:
        while self._queues:
            try:
                self._delivered, deltas = await self._port.collect(self._id, self._delivered)
            except Exception as error:  # noqa: BLE001 - handed to every open request
                for queue in self._queues.values():
                    queue.put_nowait(error)
                return
            for delta in deltas:
                if queue := self._queues.get(delta.request_id):
                    queue.put_nowait(delta)
