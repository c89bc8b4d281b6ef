"""More replicas, fewer replicas, and a replica anew."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ray.exceptions import RayError

from workbench.cluster.room import find_seats
from workbench.errors import ConfigError
from workbench.supervision import RestartBudget
from workbench.types import ReplicaState

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from workbench.cluster.fleet import Fleet
    from workbench.cluster.introduction import Introduction
    from workbench.cluster.members import Member, Members
    from workbench.cluster.placement import Seat
    from workbench.config import PoolConfig
    from workbench.engines.base import EngineLimits

LOOK_S = 0.1
"""How often a draining replica is looked at."""


class Scaling:
    """What somebody wants of the number of replicas."""

    def __init__(
        self,
        config: PoolConfig,
        members: Members,
        fleet: Fleet,
        introduction: Introduction,
        balancer: Any,
    ) -> None:
        self._config = config
        self._introduction = introduction
        self.take_over: Callable[[Member], Awaitable[None]] = _nobody
        """Called before a member's lock is taken, so that whoever replaces it lets go of it."""
        self._members = members
        self._fleet = fleet
        self._balancer = balancer
        self._lock = asyncio.Lock()
        """One change of the number at a time."""

    async def first(self) -> EngineLimits:
        """Start those that the pool begins with; what their engines can take.

        Raises:
            NoRoomError: the cluster cannot hold them.
            ReplicaStartError: one did not come up.
        """
        began, errors = await self._bring_up(self._config.replicas)
        if errors:
            raise errors[0]
        return began[0]

    async def scale(self, replicas: int, *, drain_s: float) -> list[str]:
        """As many as that; the newest leave first. The ids of those that there are then.

        Raises:
            ConfigError: ``replicas`` is no whole number from 1.
            NoRoomError: the cluster cannot hold so many.
            ReplicaStartError: one did not come up; the others did.
        """
        _check_count("replicas", replicas)
        async with self._lock:
            surplus = len(self._members) - replicas
            if surplus > 0:
                newest_first = [*self._members][::-1]
                newest_first.sort(key=_is_well)  # those that were given up before all others
                await self._remove(newest_first[:surplus], drain_s)
            elif surplus < 0:
                await self._add(-surplus)
            return [member.replica_id for member in self._members]

    async def add(self, count: int) -> list[str]:
        """Start so many more, side by side; their ids once they serve.

        Raises:
            ConfigError: ``count`` is no whole number from 1.
            NoRoomError: the cluster cannot hold them; none was started.
            ReplicaStartError: one did not come up; the others stay.
        """
        _check_count("count", count)
        async with self._lock:
            return await self._add(count)

    async def _add(self, count: int) -> list[str]:
        before = set(self._members)
        _, errors = await self._bring_up(count)
        if errors:
            raise errors[0]
        return [member.replica_id for member in self._members if member not in before]

    async def _bring_up(self, count: int) -> tuple[list[EngineLimits], list[BaseException]]:
        taken = [member.node_id for member in self._members if member.node_id]
        found = await find_seats(self._config, count, taken)
        starting = [self._one(seat) for seat in found]
        results = await asyncio.gather(*starting, return_exceptions=True)
        errors = [result for result in results if isinstance(result, BaseException)]
        return [r for r in results if not isinstance(r, BaseException)], errors

    async def _one(self, seat: Seat) -> EngineLimits:
        serving = self._members.ready()
        member = self._members.make(RestartBudget(self._config.supervision))
        member.is_paused = bool(serving) and all(other.is_paused for other in serving)
        async with member.lock:
            try:
                return await self._fleet.bring_up(member, seat)
            except BaseException:
                self._members.forget(member)
                await self._introduction.tell()  # nobody waits for it any more
                raise

    async def remove(self, replica_ids: list[str], *, drain_s: float) -> None:
        """Take replicas out of the pool.

        Args:
            replica_ids: which.
            drain_s: how long they may take to finish what they have, without new work; what is
                left then goes on elsewhere. 0 takes them out at once.

        Raises:
            ConfigError: unknown replica, or no other would be left.
        """
        async with self._lock:
            leaving = self._members.some(replica_ids)
            if len(leaving) >= len(self._members):
                problem, allowed = f"names all {len(leaving)}", "leave one; or close()"
                raise ConfigError("replica_ids", problem, allowed=allowed)
            await self._remove(leaving, drain_s)

    async def _remove(self, leaving: list[Member], drain_s: float) -> None:
        await asyncio.gather(*(self._leave(member, drain_s) for member in leaving))

    async def _leave(self, member: Member, drain_s: float) -> None:
        await self.take_over(member)
        async with member.lock:
            if member in self._members:
                await self._drain(member, drain_s)
                await self._fleet.take_down(member, ReplicaState.STOPPED)
                self._members.forget(member)

    async def restart(self, replica_id: str, *, drain_s: float) -> None:
        """Stop a replica and start it anew under its name, also one that was given up.

        Raises:
            ConfigError: unknown replica.
            NoRoomError: there is no place for it any more.
            ReplicaStartError: it did not come up again; it stays as one that was given up.
        """
        member = self._members.get(replica_id)
        await self.take_over(member)
        async with member.lock:
            if member not in self._members:
                raise ConfigError("replica_id", f"{replica_id!r} was removed just now")
            await self._drain(member, drain_s)
            member.wanted, member.is_paused = None, False
            member.budget = RestartBudget(self._config.supervision)
            member.note(error="", restarts=0)
            await self._fleet.take_down(member, ReplicaState.STARTING)
            try:
                await self._fleet.bring_up(member)
            except Exception as error:
                member.note(state=ReplicaState.UNHEALTHY, error=str(error).splitlines()[0])
                await self._introduction.tell()
                raise

    async def _drain(self, member: Member, limit_s: float) -> None:
        """No new work for it, until it has none left, or is lost."""
        if not (member.is_known and limit_s):
            return
        replica_id, member.wanted = member.replica_id, ReplicaState.DRAINING
        try:
            async with asyncio.timeout(limit_s):
                await self._balancer.set_state.remote(replica_id, ReplicaState.DRAINING)
                while not member.is_lost:
                    if not await self._balancer.get_inflight_count.remote(replica_id):
                        return
                    await asyncio.sleep(LOOK_S)
        except (RayError, TimeoutError):
            return  # what it has goes on elsewhere


async def _nobody(_: Member) -> None:
    pass


def _is_well(member: Member) -> bool:
    """Those that were given up leave first."""
    return member.status.state is not ReplicaState.UNHEALTHY


def _check_count(name: str, count: int) -> None:
    if type(count) is not int or count < 1:
        raise ConfigError(name, f"{count!r}", allowed="a whole number from 1")
