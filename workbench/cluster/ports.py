"""Ray actors behind the client's protocols, with Ray's errors turned into ours."""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from ray.exceptions import (
    ActorUnavailableError,
    OutOfMemoryError,
    RayActorError,
    RayTaskError,
)

from workbench.cluster.remote import Remote
from workbench.cluster.vigil import ClusterGoneError
from workbench.errors import (
    BalancerLostError,
    PoolClosedError,
    ReplicaDiedError,
    ReplicaLostError,
    WorkbenchError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from workbench.routing.messages import Reply, Report
    from workbench.types import GenerateRequest, TokenDelta


@contextmanager
def our_errors(
    on_death: WorkbenchError, on_absence: WorkbenchError | None = None
) -> Iterator[None]:
    """Raise what the actor raised as it was.

    ``on_death`` when the actor is gone; ``on_absence``, where given, when it cannot be reached
    just now and may be back.
    """
    try:
        yield
    except ActorUnavailableError as error:
        raise on_absence or on_death from error
    except (RayActorError, OutOfMemoryError, ClusterGoneError) as error:
        raise on_death from error
    except RayTaskError as error:
        if isinstance(error.cause, Exception):
            raise error.cause from None
        raise


class RayReplica:
    """A replica actor as the client sees it."""

    def __init__(self, replica_id: str, handle: Any) -> None:
        self.replica_id = replica_id
        self._actor = Remote(handle)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RayReplica) and self._actor == other._actor

    def __hash__(self) -> int:
        return hash(self._actor)

    async def submit(
        self, channel_id: str, requests: Sequence[GenerateRequest]
    ) -> Sequence[Exception | None]:
        """One call for all of them."""
        with self._errors():
            answer: list[Exception | None] = await self._actor.ask(
                "submit", channel_id, list(requests)
            )
        return answer

    async def collect(self, channel_id: str, delivered: int) -> tuple[int, list[TokenDelta]]:
        """The long poll."""
        with self._errors():
            answer: tuple[int, list[TokenDelta]] = await self._actor.ask(
                "collect", channel_id, delivered
            )
        return answer

    def _errors(self) -> AbstractContextManager[None]:
        return our_errors(
            ReplicaDiedError(self.replica_id, "its actor is gone"),
            ReplicaLostError(f"{self.replica_id} cannot be reached"),
        )

    def abort(self, request_ids: Sequence[str]) -> None:
        """Sent and not waited for."""
        self._actor.tell("abort", list(request_ids))

    def close_channel(self, channel_id: str) -> None:
        """Sent and not waited for."""
        self._actor.tell("close_channel", channel_id)


class RayBalancer:
    """The balancer actor as the client sees it."""

    def __init__(self, handle: Any) -> None:
        self._actor = Remote(handle)

    async def exchange(self, report: Report) -> Reply:
        """One round trip."""
        with balancer_errors():
            reply: Reply = await self._actor.ask("exchange", report)
        return reply

    async def watch(self, owner: str, cursor: int) -> Reply:
        """The long poll."""
        with balancer_errors():
            reply: Reply = await self._actor.ask("watch", owner, cursor)
        return reply

    async def replica(self, replica_id: str) -> RayReplica:
        """One round trip."""
        with balancer_errors():
            handle = await self._actor.ask("handle", replica_id)
        return RayReplica(replica_id, handle)

    def leave(self, report: Report) -> None:
        """Sent and not waited for."""
        self._actor.tell("leave", report)


def balancer_errors() -> AbstractContextManager[None]:
    """Around calls of the balancer, which restarts when it dies."""
    return our_errors(
        PoolClosedError("the pool's balancer is gone: the pool was closed"),
        BalancerLostError("the pool's balancer cannot be reached just now"),
    )
