"""The token client: prompt ids in, sampled ids out, whichever replica it takes.

One call holds one lease per attempt, which is given back exactly once whatever happens. A replica
that dies mid-generation costs nothing but time: the call goes on elsewhere from the tokens that
were delivered, with what is left of its budget. Cancelling a call stops it in the engine.

No Ray in here: the balancer and the replicas are protocols.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Self

from workbench.client.deadline import deadline
from workbench.client.generation import Generation
from workbench.client.link import Link
from workbench.errors import (
    NoProgressError,
    ReplicaDiedError,
    ReplicaError,
    RequestError,
)
from workbench.ids import new_id
from workbench.routing.messages import Outcome

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from workbench.client.channel import Channel
    from workbench.client.desk import BalancerPort
    from workbench.types import SamplingParams, TokenDelta, TokenOutput

MAX_STALLED_ATTEMPTS = 4
"""Attempts in a row without a new token after which a call gives up."""

BACKOFF_S = 0.1
"""Pause after the first stalled attempt; doubles with each further one."""

MAX_BACKOFF_S = 5.0
"""Longest pause between two attempts."""


class LLMServerClient:
    """Generates through a pool. Cheap to make; used on one event loop at a time.

    A pickled client starts afresh on the other side, under an owner id of its own.
    """

    def __init__(
        self,
        balancer: BalancerPort,
        *,
        deterministic: bool = False,
        max_stalled_attempts: int = MAX_STALLED_ATTEMPTS,
        backoff_s: float = BACKOFF_S,
    ) -> None:
        self._balancer = balancer
        self._deterministic = deterministic
        self._max_stalled_attempts = max_stalled_attempts
        self._backoff_s = backoff_s
        self._reset()

    def _reset(self) -> None:
        self._link: Link | None = None

    @property
    def owner(self) -> str:
        """The name under which its leases are booked; empty before the first call."""
        return self._link.owner if self._link is not None else ""

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_link"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
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
        **media: None,
    ) -> TokenOutput:
        """Sample a completion.

        Args:
            request_id: the session; its turns go to the replica that holds their KV cache.
            prompt_ids: token ids, at least one, all in the vocabulary.
            sampling_params: by the engine's names. ``max_tokens`` bounds the tokens of all
                attempts together; without it the model's context does.
            priority: lower goes first, where turns wait for a replica and where the engine's
                scheduling policy heeds it.
            deadline_s: seconds from now after which the call is given up.
            media: ``image_data`` and the like, as agent loops for verl pass them; must be None.

        Raises:
            RequestError: the engine refuses the request; names the field.
            NoReplicaError: no replica was ready for too long; names the reason for each.
            NoProgressError: several attempts in a row brought nothing.
            DeadlineError: the deadline passed; says what kept the turn waiting, if it did.
        """
        for name, value in media.items():
            if value is not None:
                raise RequestError(name, "is not supported", allowed="None")
        generation = self._generation(request_id, prompt_ids, sampling_params, priority)
        async with deadline(deadline_s, generation), aclosing(self._attempts(generation)) as deltas:
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
        generation = self._generation(request_id, prompt_ids, sampling_params, priority)
        async with aclosing(self._attempts(generation)) as deltas:
            async for delta in deltas:
                yield delta

    def end_session(self, request_id: str) -> None:
        """Say that no further turn of this session will come."""
        if self._link is not None:
            self._link.desk.end_session(request_id)

    async def aclose(self) -> None:
        """Stop listening to the replicas; calls in flight end with :class:`PoolClosedError`.

        Idempotent; the client can be used again.
        """
        link, self._link = self._link, None
        if link is not None:
            await link.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    def _generation(
        self,
        session_id: str,
        prompt_ids: Sequence[int],
        sampling_params: SamplingParams,
        priority: int,
    ) -> Generation:
        return Generation(
            session_id,
            prompt_ids,
            sampling_params,
            priority,
            deterministic=self._deterministic,
            clock=asyncio.get_running_loop().time,
        )

    async def _attempts(self, generation: Generation) -> AsyncGenerator[TokenDelta, None]:
        link, stalled = self._own_link(), 0
        while not generation.finished:
            before = generation.num_tokens
            failure: ReplicaError | None = None
            try:
                async with aclosing(self._attempt(link, generation)) as deltas:
                    async for delta in deltas:
                        yield delta
            except ReplicaError as error:
                failure = error
            goes_on = failure is None and self._goes_on(generation)
            if failure or (goes_on and not generation.interrupted):
                stalled = stalled + 1 if generation.num_tokens == before else 0
                await self._back_off(stalled, failure)

    def _goes_on(self, generation: Generation) -> bool:
        """Whether a generation that seems to be over is resumed: new weights end no call."""
        if generation.interrupted:
            generation.resume()
        return generation.interrupted

    async def _attempt(
        self, link: Link, generation: Generation
    ) -> AsyncGenerator[TokenDelta, None]:
        """One try on one replica, under one lease."""
        desk, context_ids = link.desk, generation.context_ids
        lease = desk.take(generation.session_id, len(context_ids))
        if lease is None:
            try:
                lease = await desk.acquire(
                    generation.session_id, context_ids, priority=generation.priority
                )
            except asyncio.CancelledError:
                generation.waited_for = desk.book.waiting
                raise
        outcome, used = Outcome.LEFT, {}
        channel: Channel | None = None
        try:
            request = generation.begin_attempt(lease.replica_id)
            channel = await link.channel(lease.replica_id)
            async with aclosing(channel.run(request)) as deltas:
                async for delta in deltas:
                    generation.add(delta)
                    yield delta
            outcome, used = Outcome.OK, generation.attempt_usage()
        except ReplicaError as error:
            died = isinstance(error, ReplicaDiedError)
            outcome = Outcome.DIED if died else Outcome.FAILED
            await link.drop(lease.replica_id, channel, error)
            raise
        except RequestError:
            raise  # its own fault
        except Exception:
            outcome = Outcome.FAILED
            raise
        finally:
            desk.give_back(lease, outcome, **used)

    async def _back_off(self, stalled: int, failure: ReplicaError | None) -> None:
        if stalled >= self._max_stalled_attempts:
            raise NoProgressError(f"{stalled} attempts in a row brought no token") from failure
        if stalled:
            await asyncio.sleep(min(MAX_BACKOFF_S, self._backoff_s * 2 ** (stalled - 1)))

    def _own_link(self) -> Link:
        """The link on the running loop; on another loop than the last one, this client is new."""
        if self._link is not None and self._link.loop is not asyncio.get_running_loop():
            if self._link.busy:
                raise RuntimeError("this client is in use on another event loop; make another one")
            self._link = None
        if self._link is None:
            self._link = Link(self._balancer, new_id())
        return self._link
