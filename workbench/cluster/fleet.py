"""Starting and stopping replicas: each with a place, a process and the pool's current weights."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import RayError

from workbench.cluster import seats
from workbench.cluster.replica import ReplicaActor, ReplicaSpec
from workbench.cluster.room import find_seats
from workbench.errors import PoolError, ReplicaStartError, WorkbenchError
from workbench.types import ReplicaState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from workbench.cluster.introduction import Introduction
    from workbench.cluster.members import Member, Members
    from workbench.cluster.node import Nodes
    from workbench.cluster.placement import Seat
    from workbench.cluster.rollover import Rollover
    from workbench.config import PoolConfig
    from workbench.engines.base import EngineLimits

CLOSE_S = 15.0
"""How long a replica may take to stop by itself before it is killed."""

ANSWER_S = 2.0
"""How long a replica may take to say where it is in its start, or to show its log."""

PLACE_S = 30.0
"""How long a place may take to come free: that of a process that hangs is given back in 5 s."""

LOG_LINES = 25
"""Log lines in the error of a replica that did not start."""

MAX_CALLS = 10_000
"""Calls that a replica serves at once; one long poll per client and one call per batch."""


class Fleet:
    """Brings members up and takes them down. Whoever calls holds the member's lock."""

    def __init__(
        self,
        config: PoolConfig,
        members: Members,
        nodes: Nodes,
        introduction: Introduction,
        rollover: Rollover,
        key: str,
    ) -> None:
        self._config = config
        self._members = members
        self._nodes = nodes
        self._introduction = introduction
        self._rollover = rollover
        self._key = key

    async def bring_up(self, member: Member, seat: Seat | None = None) -> EngineLimits:
        """Start one that has no process; returns when it is in rotation.

        Raises:
            NoRoomError: there is no place for it.
            ConfigError: its model cannot be had.
            ReplicaStartError: it did not come up; says its last words. Nothing of it is left.
        """
        member.born_s = time.monotonic()
        member.note(state=ReplicaState.STARTING, stage="waiting for its place", address="")
        await self._introduction.tell()  # turns wait for it
        try:
            async with asyncio.timeout(self._config.start_timeout_s):
                await self._place(member, seat)
                limits = await self._load(member)
                await self._rollover.admit(member)
        except BaseException as error:  # noqa: BLE001 - raised again once all of it is gone
            failure = await self._failure(member, error)
            await self.take_down(member, ReplicaState.STOPPED, gently=False)
            raise failure from None
        await self._introduction.tell()
        started_s = time.monotonic() - member.born_s
        state = ReplicaState.PAUSED if member.is_paused else ReplicaState.READY
        member.note(state=state, stage="", start_s=started_s)
        return limits

    async def _place(self, member: Member, seat: Seat | None) -> None:
        if seat is None:
            taken = [other.node_id for other in self._members if other.node_id]
            (seat,) = await find_seats(self._config, 1, taken, PLACE_S)
        name = f"{self._config.name}-{member.replica_id}"
        member.group = await seats.reserve(seat, name, PLACE_S)
        actor: Any = ray.remote(ReplicaActor)
        member.handle = actor.options(
            max_concurrency=MAX_CALLS, **seats.options(member.group, seat)
        ).remote(self._spec(member, seat))

    async def _load(self, member: Member) -> EngineLimits:
        placed_s = time.monotonic() - member.born_s
        place = await member.handle.where.remote()
        process_s = time.monotonic() - member.born_s - placed_s
        member.note(stages=(("finding its place", placed_s), ("starting its process", process_s)))
        member.node_id = member.log_node_id = place.node_id
        member.note(pid=place.pid, node=place.node, log_path=place.log_path)
        limits: EngineLimits
        limits, address, stages = await member.handle.start.remote()
        member.note(address=address, stages=member.status.stages + stages)
        return limits

    def _spec(self, member: Member, seat: Seat) -> ReplicaSpec:
        config, replica_id = self._config, member.replica_id
        return ReplicaSpec(
            replica_id,
            config.name,
            config.model,
            config.engine,
            self._engine_args(seat.device),
            seat.device,
            seat.threads,
            config.seed + int(replica_id.rpartition("-")[2]),
            is_open=seats.spans_nodes(),
            key=self._key,
            openai_routes=config.openai_routes,
        )

    def _engine_args(self, device: str) -> Mapping[str, Any]:
        """Every request of a deterministic pool has a seed, which see ``VLLMEngine.add``."""
        config = self._config
        if config.engine == "vllm" and config.deterministic and device == "cpu":
            return {"enable_chunked_prefill": False} | dict(config.engine_args)
        return config.engine_args

    async def _failure(self, member: Member, error: BaseException) -> BaseException:
        """What somebody is told whose replica did not come up."""
        if isinstance(error, TimeoutError):
            limit_s = self._config.start_timeout_s
            problem = f"still {await self.stage(member)!r} after {limit_s:g} s"
        elif isinstance(error, RayError):
            cause = getattr(error, "cause", None)
            if isinstance(cause, WorkbenchError):
                return cause
            problem = _in_short(cause or error)
        else:
            return error
        try:
            log = await self.log_tail(member, LOG_LINES) if member.handle else ""
        except PoolError as unheard:
            log = f"({unheard})"
        return ReplicaStartError(member.replica_id, problem, log_tail=log)

    async def take_down(self, member: Member, state: ReplicaState, *, gently: bool = True) -> None:
        """Out of rotation, its process ended, its place given back. Takes bounded time.

        Args:
            member: one that may have no process any more.
            state: what it is in from now on.
            gently: let it end by itself first.
        """
        handle, group = member.handle, member.group
        was_told = member.is_known or member.status.state is ReplicaState.STARTING
        member.is_known = False
        member.handle = member.group = None
        member.is_lost = False
        member.node_id = ""
        member.note(state=state, stage="", address="", pid=None)
        try:
            if was_told:
                await self._introduction.tell()
            if handle is not None and gently:
                with contextlib.suppress(RayError, TimeoutError):
                    async with asyncio.timeout(CLOSE_S):
                        await handle.close.remote()
        finally:
            if handle is not None:
                ray.kill(handle)  # its guard sees to its children
            seats.release(group)

    async def stage(self, member: Member) -> str:
        """What it is doing while it starts."""
        if member.status.pid is None or member.status.state is not ReplicaState.STARTING:
            return member.status.stage
        try:
            async with asyncio.timeout(ANSWER_S):
                return str(await member.handle.stage.remote())
        except (RayError, TimeoutError, AttributeError):  # it is being taken down
            return member.status.stage

    async def log_tail(self, member: Member, lines: int) -> str:
        """The last lines of its log, also of a process that is gone.

        Raises:
            PoolError: neither it nor its node answers.
        """
        if member.handle is not None:
            with contextlib.suppress(RayError, TimeoutError):
                async with asyncio.timeout(ANSWER_S):
                    return str(await member.handle.log_tail.remote(lines))
        path = member.status.log_path
        if member.log_node_id and path:
            with contextlib.suppress(RayError, TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    node = self._nodes.on(member.log_node_id)
                    return str(await node.log_tail.remote(path, lines))
        raise PoolError(f"{member.replica_id} does not answer; see {path or 'no log yet'}")


def _in_short(error: BaseException) -> str:
    """Type and last lines of a message that may be pages long."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith("For further information")]
    return f"{type(error).__name__}: " + " ".join(told[-3:])
