"""What the controller tells replicas on somebody's behalf: pause, abort, caches, sleep, traces."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from ray.exceptions import ActorUnavailableError

from workbench.cluster.ports import balancer_errors, our_errors
from workbench.errors import ConfigError, ReplicaDiedError
from workbench.types import ReplicaState
from workbench.weights import check_mode

if TYPE_CHECKING:
    from workbench.cluster.members import Member, Members


class ReplicaVerbs:
    """Each takes a replica's id, or None for all that serve."""

    def __init__(self, members: Members, balancer: Any) -> None:
        self._members = members
        self._balancer = balancer

    async def set_state(self, replica_id: str, state: ReplicaState) -> None:
        """Drain a replica, or take it back; the balancer keeps to it after a restart.

        Raises:
            ConfigError: unknown replica, or it does not serve.
        """
        (member,) = self._serving(replica_id)
        with balancer_errors():
            await self._balancer.set_state.remote(replica_id, state)
        member.wanted = state

    async def pause(self, replica_id: str | None, mode: str) -> None:
        """Engines stand still until :meth:`resume`.

        What is sent to the whole pool waits in the engines; where one of several is paused, turns
        go elsewhere.

        Raises:
            ConfigError: unknown replica or mode.
        """
        checked, members = check_mode(mode), self._serving(replica_id)
        if replica_id is not None and len(self._members.ready()) > 1:
            await self.set_state(replica_id, ReplicaState.PAUSED)
        for member in members if replica_id else self._members:
            member.is_paused = True  # what starts meanwhile, or anew, stays paused too
        await self._each(members, "pause", checked)
        for member in members:
            if member.is_known and member.is_paused:
                member.note(state=ReplicaState.PAUSED)

    async def resume(self, replica_id: str | None) -> None:
        """Paused engines go on. Idempotent.

        Raises:
            ConfigError: unknown replica.
        """
        members = self._members.some(replica_id)
        for member in members:
            member.is_paused = False  # also of one that is just being replaced
        await self._each([member for member in members if member.is_known], "resume")
        for member in members:
            was_out = member.wanted is ReplicaState.PAUSED
            if was_out:
                member.wanted = None
            if member.is_known and not member.is_paused:
                member.note(state=ReplicaState.READY)
                if was_out:
                    await self.set_state(member.replica_id, ReplicaState.READY)

    async def abort(self, session_id: str | None) -> int:
        """End the requests of one session, or of all, with what they have; how many those were."""
        counts = await self._each(self._serving(None), "abort_all", session_id)
        return sum(counts.values())

    async def clear_kv_cache(self, replica_id: str | None) -> None:
        """Drop all KV blocks; requests that run compute theirs again."""
        members = self._serving(replica_id)
        await self._each(members, "clear_cache")
        with contextlib.suppress(ActorUnavailableError):  # its next life knows of no blocks
            await self._balancer.forget_caches.remote([member.replica_id for member in members])

    async def sleep(self, replica_id: str | None, level: int) -> dict[str, bool]:
        """Give the devices' memory back: replica id → whether there was any to give.

        Raises:
            ConfigError: unknown replica or level.
        """
        if level not in {1, 2}:
            raise ConfigError("level", f"{level!r}", allowed="1 (weights to the host), 2 (dropped)")
        slept = await self._each(self._serving(replica_id), "sleep", level)
        for replica_id, did in slept.items():
            member = self._members.get(replica_id)
            member.is_asleep = did
            if did:
                member.note(state=ReplicaState.PAUSED)
        return slept

    async def wake(self, replica_id: str | None) -> dict[str, bool]:
        """The opposite of :meth:`sleep`."""
        woke = await self._each(self._serving(replica_id), "wake")
        for replica_id in woke:
            member = self._members.get(replica_id)
            member.is_asleep = False
            if not member.is_paused:
                member.note(state=ReplicaState.READY)
        return woke

    async def start_profile(self, replica_id: str | None) -> None:
        """Record traces until :meth:`stop_profile`."""
        await self._each(self._serving(replica_id), "start_profile")

    async def stop_profile(self, replica_id: str | None) -> dict[str, dict[str, bytes]]:
        """Replica id → file name → content."""
        return await self._each(self._serving(replica_id), "stop_profile")

    def _serving(self, replica_id: str | None) -> list[Member]:
        """Those that are meant, and serve.

        Raises:
            ConfigError: unknown, or the one that is named does not serve.
        """
        members = [m for m in self._members.some(replica_id) if m.is_known]
        if replica_id is not None and not members:
            state = self._members.get(replica_id).status.state
            serving = [member.replica_id for member in self._members.ready()]
            raise ConfigError("replica_id", f"{replica_id!r} is {state}", allowed=serving)
        return members

    async def _each(self, members: list[Member], method: str, *args: Any) -> dict[str, Any]:
        """What each answers. One that dies meanwhile is replaced, and has nothing to answer."""
        answers = await asyncio.gather(
            *(_call(member, method, args) for member in members), return_exceptions=True
        )
        told = dict(zip([m.replica_id for m in members], answers, strict=True))
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, ReplicaDiedError):
                raise answer
        return {name: a for name, a in told.items() if not isinstance(a, ReplicaDiedError)}


async def _call(member: Member, method: str, args: tuple[Any, ...]) -> Any:
    gone = ReplicaDiedError(member.replica_id, "its process is gone")
    if member.handle is None:  # it is being replaced
        raise gone
    with our_errors(gone):
        return await getattr(member.handle, method).remote(*args)
