"""The token client: prompt ids in, sampled ids out, whichever replica it takes.

One call holds one lease per attempt, which is given back exactly once whatever happens. A replica
that dies mid-generation costs nothing but time: the call goes on elsewhere from the tokens that
were delivered, with what is left of its budget. Cancelling a call stops it in the engine.

No Ray in here: the balancer and the replicas are protocols.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol, Self

from workbench.client.channel import Channel, ReplicaPort
from workbench.client.generation import Generation
from workbench.errors import (
    DeadlineError,
    NoProgressError,
    PoolClosedError,
    ReplicaDiedError,
    ReplicaError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Sequence

    from workbench.types import Lease, SamplingParams, TokenDelta, TokenOutput

MAX_STALLED_ATTEMPTS = 4
"""Attempts in a row without a new token after which a call gives up."""

BACKOFF_S = 0.1
"""Pause after the first stalled attempt; doubles with each further one."""


class BalancerPort(Protocol):
    """What the client needs of the balancer."""

    async def acquire(self, session_id: str, owner: str) -> Lease:
        """Lease the session's next turn."""
        ...

    async def replica(self, replica_id: str) -> ReplicaPort:
        """The way to a replica; :class:`ReplicaDiedError` if there is none any more."""
        ...

    def release(self, lease: Lease) -> None:
        """Give a lease back; does not wait."""
        ...

    def report_death(self, lease: Lease) -> None:
        """Tell that the replica of an open lease is gone; does not wait."""
        ...

    def end_session(self, session_id: str) -> None:
        """Forget a session's pin; does not wait."""
        ...


class LLMServerClient:
    """Generates through a pool. Cheap to make; used on one event loop at a time.

    A pickled client starts afresh on the other side, under an owner id of its own.
    """

    def __init__(self, balancer: BalancerPort) -> None:
        self._balancer = balancer
        self._reset()

    def _reset(self) -> None:
        self.owner = uuid.uuid4().hex
        self._channels: dict[str, Channel] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"balancer": self._balancer}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._balancer = state["balancer"]
        self._reset()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(owner={self.owner[:8]})"

    async def generate(
        self,
        request_id: str,
        *,
        prompt_ids: Sequence[int],
        sampling_params: SamplingParams,
        priority: int = 0,
        deadline_s: float | None = None,
    ) -> TokenOutput:
        """Sample a completion.

        Args:
            request_id: the session; its turns go to the replica that holds their KV cache.
            prompt_ids: token ids, at least one, all in the vocabulary.
            sampling_params: by the engine's names. ``max_tokens`` bounds the tokens of all
                attempts together; without it the model's context does.
            priority: lower goes first, where the engine's scheduling policy heeds it.
            deadline_s: seconds from now after which the call is given up.

        Raises:
            RequestError: the engine refuses the request; names the field.
            NoReplicaError: no replica is ready.
            NoProgressError: several attempts in a row brought nothing.
            DeadlineError: the deadline passed.
        """
        generation = Generation(request_id, prompt_ids, sampling_params, priority)
        async with _deadline(deadline_s), aclosing(self._attempts(generation)) as deltas:
            async for _ in deltas:
                pass
        return generation.output()

    async def stream(
        self,
        request_id: str,
        *,
        prompt_ids: Sequence[int],
        sampling_params: SamplingParams,
        priority: int = 0,
    ) -> AsyncGenerator[TokenDelta, None]:
        """As :meth:`generate`, in deltas, each with the version it was sampled under.

        Leaving the loop early stops the generation in the engine.
        """
        generation = Generation(request_id, prompt_ids, sampling_params, priority)
        async with aclosing(self._attempts(generation)) as deltas:
            async for delta in deltas:
                yield delta

    def end_session(self, request_id: str) -> None:
        """Say that no further turn of this session will come."""
        self._balancer.end_session(request_id)

    async def aclose(self) -> None:
        """Stop listening to the replicas; calls in flight end with :class:`PoolClosedError`.

        Idempotent; the client can be used again.
        """
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.aclose(PoolClosedError("the client was closed during this call"))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    async def _attempts(self, generation: Generation) -> AsyncGenerator[TokenDelta, None]:
        stalled = 0
        while not generation.finished:
            before = generation.num_tokens
            failure: ReplicaError | None = None
            channel: Channel | None = None
            async with self._lease(generation.session_id) as lease:
                request = generation.begin_attempt(lease.replica_id)
                try:
                    channel = await self._channel(lease.replica_id)
                    async with aclosing(channel.run(request)) as deltas:
                        async for delta in deltas:
                            generation.add(delta)
                            yield delta
                except ReplicaError as error:
                    failure = error
                    if isinstance(error, ReplicaDiedError):
                        self._balancer.report_death(lease)
                    await self._drop(lease.replica_id, channel, failure)
            if failure is not None:
                stalled = stalled + 1 if generation.num_tokens == before else 0
                await self._back_off(stalled, failure)

    async def _drop(self, replica_id: str, channel: Channel | None, failure: ReplicaError) -> None:
        """End the channel to a replica, unless another call did; its calls go on elsewhere."""
        if channel is not None and self._channels.get(replica_id) is channel:
            del self._channels[replica_id]
            await channel.aclose(failure)

    async def _back_off(self, stalled: int, failure: ReplicaError) -> None:
        if stalled >= MAX_STALLED_ATTEMPTS:
            raise NoProgressError(f"{stalled} attempts in a row brought no token") from failure
        if stalled:
            await asyncio.sleep(BACKOFF_S * 2 ** (stalled - 1))

    @asynccontextmanager
    async def _lease(self, session_id: str) -> AsyncIterator[Lease]:
        acquiring = asyncio.ensure_future(self._balancer.acquire(session_id, self.owner))
        try:
            lease = await asyncio.shield(acquiring)
        except asyncio.CancelledError:
            # The balancer may grant it all the same: nobody else would give it back.
            acquiring.add_done_callback(self._give_back)
            raise
        try:
            yield lease
        finally:
            self._balancer.release(lease)

    def _give_back(self, acquiring: asyncio.Future[Lease]) -> None:
        if not acquiring.cancelled() and acquiring.exception() is None:
            self._balancer.release(acquiring.result())

    async def _channel(self, replica_id: str) -> Channel:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if any(channel.busy for channel in self._channels.values()):
                raise RuntimeError("this client is in use on another event loop; make another one")
            self._channels.clear()
            self._loop = loop
        if replica_id not in self._channels:
            port = await self._balancer.replica(replica_id)
            self._channels.setdefault(replica_id, Channel(port, self.owner))
        return self._channels[replica_id]


def _deadline(deadline_s: float | None) -> AbstractAsyncContextManager[None]:
    return nullcontext() if deadline_s is None else _DeadlineScope(deadline_s)


class _DeadlineScope:
    """:func:`asyncio.timeout` that raises this package's error."""

    def __init__(self, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        self._timeout = asyncio.timeout(deadline_s)
        self._start_s = time.monotonic()

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(self, *exc_info: Any) -> None:
        try:
            await self._timeout.__aexit__(*exc_info)
        except TimeoutError as error:
            spent = time.monotonic() - self._start_s
            raise DeadlineError(
                f"no end after {spent:.1f} s (deadline_s={self._deadline_s})"
            ) from error
