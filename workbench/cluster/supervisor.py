"""Watching over a pool's replicas: whoever is gone, or hangs, is replaced."""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from typing import TYPE_CHECKING, Any

from ray.exceptions import ActorUnavailableError, RayError, RayTaskError

from workbench.aio import end_task
from workbench.errors import WorkbenchError
from workbench.types import ReplicaState

if TYPE_CHECKING:
    from workbench.cluster.fleet import Fleet
    from workbench.cluster.members import Member, Members
    from workbench.supervision import SupervisionConfig
    from workbench.types import EngineFigures

BEAT_S = 1.0
"""How often each replica is asked whether it is well; Ray says at once that a process is gone."""

logger = logging.getLogger(__name__)


class Supervisor:
    """Owns one task that asks, one per question, and one per replica that is being replaced."""

    def __init__(
        self,
        rules: SupervisionConfig,
        members: Members,
        fleet: Fleet,
    ) -> None:
        self._rules = rules
        self._members = members
        self._fleet = fleet
        self._asking: dict[Any, asyncio.Task[None]] = {}
        """By handle: who has not answered yet is not asked again."""
        self._mending: dict[Member, asyncio.Task[None]] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin. Idempotent."""
        if self._task is None:
            self._task = asyncio.create_task(self._watch(), name="supervisor")

    async def close(self) -> None:
        """Stop; whoever is being replaced stays as it is at that moment. Idempotent."""
        await end_task(self._task)
        for task in [*self._asking.values(), *self._mending.values()]:
            await end_task(task)

    async def _watch(self) -> None:
        while True:
            for member in self._members.ready():
                handle = member.handle
                if handle not in self._asking and member not in self._mending:
                    task = asyncio.create_task(self._ask(member, handle))
                    self._asking[handle] = task
                    task.add_done_callback(functools.partial(self._asked, handle))
            await asyncio.sleep(BEAT_S)

    def _asked(self, handle: Any, _: asyncio.Task[None]) -> None:
        self._asking.pop(handle, None)

    async def _ask(self, member: Member, handle: Any) -> None:
        try:
            problem = await self._problem(handle)
        except Exception:  # the watch goes on, whatever this was
            logger.exception("cannot tell how %s is", member.replica_id)
            return
        if member.handle is not handle:
            return
        if problem:
            self.mend(member, handle, problem)
        else:
            member.budget.well(time.monotonic())
            member.note(restarts=member.budget.used)

    async def _problem(self, handle: Any) -> str:
        """Why a replica is not well; empty when it is."""
        limit_s = self._rules.hang_s
        try:
            async with asyncio.timeout(limit_s):
                figures = await _beat(handle)
        except TimeoutError:
            return f"it hung: no answer for {limit_s:g} s"
        except RayTaskError as error:
            cause = error.cause
            return str(cause) if isinstance(cause, WorkbenchError) else f"it broke: {cause}"
        except RayError:
            return "its process is gone"
        if figures.stalled_s >= limit_s:
            return f"its engine hung: no step for {figures.stalled_s:.0f} s"
        return ""

    def mend(self, member: Member, handle: Any, problem: str) -> None:
        """Replace a replica that cannot be used any more, unless that was done or is under way.

        ``handle``: the actor that failed; it may be another one's by now.
        """
        if handle is not None and member.handle is handle and member not in self._mending:
            member.is_lost = True  # who drains it, and holds its lock, need not wait
            task = asyncio.create_task(self._replace(member, handle, problem), name="mend")
            self._mending[member] = task
            task.add_done_callback(functools.partial(self._mended, member))

    def _mended(self, member: Member, task: asyncio.Task[None]) -> None:
        if self._mending.get(member) is task:
            del self._mending[member]

    async def leave(self, member: Member) -> None:
        """Replace it no further: somebody else sees to it now, who then gets its lock."""
        await end_task(self._mending.get(member))

    async def _replace(self, member: Member, handle: Any, problem: str) -> None:
        async with member.lock:
            if member not in self._members or member.handle is not handle:
                return  # somebody stopped it meanwhile
            logger.warning("%s: %s", member.replica_id, problem)
            while True:
                delay_s = member.budget.failed()
                member.note(error=problem, restarts=member.budget.used)
                given_up = delay_s is None
                state = ReplicaState.UNHEALTHY if given_up else ReplicaState.STARTING
                await self._fleet.take_down(member, state, gently=False)
                if delay_s is None:
                    member.note(error=f"given up after {member.budget.used} restarts: {problem}")
                    logger.error("%s: %s", member.replica_id, member.status.error)
                    return
                member.note(stage=f"it is replaced in {delay_s:g} s: {problem}")
                await asyncio.sleep(delay_s)
                try:
                    await self._fleet.bring_up(member)
                except Exception as error:  # noqa: BLE001 - one more failure of this replica
                    problem = str(error).splitlines()[0]
                else:
                    member.note(error=problem)
                    return


async def _beat(handle: Any) -> EngineFigures:
    """What it says, as soon as it can be reached."""
    while True:
        try:
            figures: EngineFigures = await handle.probe.remote()
        except ActorUnavailableError:
            await asyncio.sleep(BEAT_S)
        else:
            return figures
