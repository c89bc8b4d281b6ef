"""Telling the balancer which replicas there are, whichever life of it that is."""

from __future__ import annotations

import asyncio
import itertools
import logging
from typing import TYPE_CHECKING, Any

from ray.exceptions import ActorUnavailableError, RayError

from workbench.types import ReplicaState

if TYPE_CHECKING:
    from workbench.cluster.members import Members

RETRY_S = 0.05
"""Pause between two attempts to reach a balancer that starts over."""

TELL_S = 15.0
"""A balancer that starts over takes seconds."""

logger = logging.getLogger(__name__)


class Introduction:
    """Says all that there is each time: what was said before, or lost, does not matter."""

    def __init__(self, balancer: Any, members: Members) -> None:
        self._balancer = balancer
        self._members = members
        self._numbers = itertools.count(1)
        self._lock = asyncio.Lock()
        """Held while the balancer is told: calls of an actor may overtake each other."""

    async def tell(self) -> None:
        """Returns when the balancer knows, also where it has to start over first.

        One that does not answer is not waited for longer than ``TELL_S``: it hears all of it the
        next time, and whoever calls has processes to end.
        """
        try:
            async with asyncio.timeout(TELL_S), self._lock:
                await self._until_told()
        except (RayError, TimeoutError) as error:
            logger.warning("the balancer did not hear of its replicas: %r", error)

    async def _until_told(self) -> None:
        while True:
            try:
                await self._balancer.restore.remote(next(self._numbers), *self._all())
            except ActorUnavailableError:
                await asyncio.sleep(RETRY_S)
            else:
                return

    def _all(self) -> tuple[dict[str, Any], dict[str, ReplicaState], list[str]]:
        known = {member.replica_id: member.handle for member in self._members.ready()}
        wanted = {m.replica_id: m.wanted for m in self._members.ready() if m.wanted}
        starting = [
            member.replica_id
            for member in self._members
            if member.status.state is ReplicaState.STARTING and not member.is_known
        ]
        return known, wanted, starting
