"""Ray actors behind the client's protocols, with Ray's errors turned into ours."""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from ray.exceptions import ActorUnavailableError, RayActorError, RayTaskError

from workbench.errors import (
    PoolClosedError,
    ReplicaDiedError,
    ReplicaLostError,
    WorkbenchError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from workbench.types import GenerateRequest, Lease, TokenDelta


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
    except RayActorError as error:
        raise on_death from error
    except RayTaskError as error:
        if isinstance(error.cause, Exception):
            raise error.cause from None
        raise


class RayReplica:
    """A replica actor as the client sees it."""

    def __init__(self, replica_id: str, handle: Any) -> None:
        self.replica_id = replica_id
        self._handle = handle

    async def submit(
        self, channel_id: str, requests: Sequence[GenerateRequest]
    ) -> Sequence[Exception | None]:
        """One call for all of them."""
        with self._errors():
            answer: list[Exception | None] = await self._handle.submit.remote(
                channel_id, list(requests)
            )
        return answer

    async def collect(self, channel_id: str, delivered: int) -> tuple[int, list[TokenDelta]]:
        """The long poll."""
        with self._errors():
            answer: tuple[int, list[TokenDelta]] = await self._handle.collect.remote(
                channel_id, delivered
            )
        return answer

    def _errors(self) -> AbstractContextManager[None]:
        return our_errors(
            ReplicaDiedError(self.replica_id, "its actor is gone"),
            ReplicaLostError(f"{self.replica_id} cannot be reached"),
        )

    def abort(self, request_ids: Sequence[str]) -> None:
        """Sent and not waited for."""
        self._handle.abort.remote(list(request_ids))

    def close_channel(self, channel_id: str) -> None:
        """Sent and not waited for."""
        self._handle.close_channel.remote(channel_id)


class RayBalancer:
    """The balancer actor as the client sees it; keeps the replicas' handles it has seen."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._replicas: dict[str, RayReplica] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(RayBalancer, self._handle), ()

    async def acquire(self, session_id: str, owner: str) -> Lease:
        """One round trip."""
        with our_errors(PoolClosedError("the pool's balancer is gone: the pool was closed")):
            lease: Lease = await self._handle.acquire.remote(session_id, owner)
        return lease

    async def replica(self, replica_id: str) -> RayReplica:
        """A round trip at first, from memory afterwards."""
        if replica_id not in self._replicas:
            with our_errors(PoolClosedError("the pool's balancer is gone: the pool was closed")):
                handle = await self._handle.handle.remote(replica_id)
            self._replicas[replica_id] = RayReplica(replica_id, handle)
        return self._replicas[replica_id]

    def release(self, lease: Lease) -> None:
        """Sent and not waited for."""
        self._handle.release_server.remote(lease)

    def report_death(self, lease: Lease) -> None:
        """Sent and not waited for."""
        self._replicas.pop(lease.replica_id, None)
        self._handle.report_death.remote(lease)

    def end_session(self, session_id: str) -> None:
        """Sent and not waited for."""
        self._handle.end_session.remote(session_id)
