"""From tasks to groups in the queue: begins as many as queue and pool allow, plays, tells.

Every ticket that the queue gives is told of exactly once: its group was put, or it left with a
cause. A failing rollout is data; groups that fail in a row stop the stream, with their error.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from workbench.aio import in_thread
from workbench.errors import StreamEndedError, StreamError, TaskError
from workbench.rollout.summary import OF_THE_POOL, cause_of
from workbench.stream.failures import FailureStreak, failed_row
from workbench.stream.groups import Group, GroupHeader, Ticket
from workbench.stream.packing import pack
from workbench.stream.source import digest
from workbench.stream.tally import Tally
from workbench.trajectory import RolloutStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from workbench.rollout.run import Batch, RolloutRun
    from workbench.rollout.tasks import Task
    from workbench.stream.manager import FullyAsyncAgentLoopManager
    from workbench.stream.source import TaskSource
    from workbench.trajectory import Trajectory

MANY_TOKENS = 50_000
"""A group that has more is packed apart from the event loop."""

ADMIT_S = 5.0
"""How long one question for tickets waits at the queue."""


STILL_S = 1.0
"""What begins has so long to get its task and its place before it is told that it waits for it."""


class AdmittingPort(Protocol):
    """The queue, as whoever fills it needs it; see :class:`workbench.stream.queue.StreamQueue`."""

    async def admit(self, held: Sequence[Ticket], most: int, wait_s: float) -> list[Ticket]: ...
    async def put(self, header: GroupHeader, blob: bytes) -> bool: ...
    async def leave(self, header: GroupHeader, cause: str, *, replay: bool) -> None: ...
    async def source_ended(self, total: int) -> None: ...
    async def fail(self, error: str) -> None: ...


@dataclass(slots=True)
class _Play:
    """A group in flight."""

    task: asyncio.Task[None]
    since_s: float
    """When it began, by the loop's clock."""
    run: RolloutRun | None = None
    cause: str = ""
    """Why it was cancelled as a whole."""

    @property
    def waiting(self) -> int:
        """Rollouts that have no place yet."""
        return 1 if self.run is None else self.run.waiting

    def cancel(self, cause: str) -> None:
        self.cause = cause
        if self.run is not None:
            self.run.cancel()
        else:
            self.task.cancel()  # it waits for its task, which may take for ever


class Rollouter:
    """Fills a queue until its tasks are used up, or it is stopped.

    Args:
        queue: gives tickets, takes groups.
        source: has the tasks.
        manager: plays groups.
        template: what all groups share.
        max_failures: see :class:`workbench.stream.rules.StreamRules`.
        keeps: whether a group is worth queueing. Called on the event loop: it has to be quick.
    """

    def __init__(
        self,
        queue: AdmittingPort,
        source: TaskSource,
        manager: FullyAsyncAgentLoopManager,
        template: Batch,
        *,
        max_failures: int,
        keeps: Callable[[Group], bool],
    ) -> None:
        self._queue = queue
        self._source = source
        self._manager = manager
        self._template = template
        self._keeps = keeps
        self._streak = FailureStreak(max_failures)
        self._plays: dict[Ticket, _Play] = {}
        self._changed = asyncio.Event()
        self._problem = ""
        self._stopped_for = ""
        self._filtered = 0
        """Groups in a row that the filter did not keep."""
        self._broken_off: list[Ticket] = []
        """Tickets whose play raised: nobody was told of their end."""
        self.tally = Tally()
        """Of the rollouts that ended."""

    async def run(self) -> None:
        """Play until there is nothing more to begin, and all has ended.

        Raises:
            StreamError: it cannot go on; the queue was told.
        """
        try:
            if self._source.total is not None:
                await self._queue.source_ended(self._source.total)
            with contextlib.suppress(StreamEndedError):
                await self._fill()
            await self.idle()
        except StreamError as error:
            self._give_up(str(error))
        except Exception as error:  # noqa: BLE001 - a crash is no end of the data
            self._give_up(f"the rollouter crashed: {type(error).__name__}: {error}")
        finally:
            left = await self._end_all()
        if self._problem:
            with contextlib.suppress(Exception):  # what went wrong first is told
                await self._queue.fail(self._problem)
                for ticket in (*left, *self._broken_off):
                    await self._leave_unplayed(ticket, "stopped", replay=True)
            raise StreamError(self._problem)

    async def idle(self) -> None:
        """Return when no group is in flight, or the stream cannot go on."""
        while self._plays and not self._problem:
            await self._changed.wait()

    def cancel_groups(self, tickets: Iterable[Ticket], cause: str) -> None:
        """Stop the groups of these tickets; their tasks are played again."""
        for ticket in tickets:
            if play := self._plays.get(ticket):
                play.cancel(cause)

    def stop(self, cause: str) -> None:
        """Stop all groups; their tasks are played again, by whoever goes on with the stream."""
        self._stopped_for = cause  # also those whose tickets are on their way
        self.cancel_groups(list(self._plays), cause)

    def cancel(self, rollout_id: str) -> bool:
        """Stop one rollout, which becomes a cancelled row of its group; whether it is in flight."""
        for play in self._plays.values():
            if play.run is not None and rollout_id in play.run.unended():
                play.run.stop([rollout_id])
                return True
        return False

    def in_flight(self) -> list[RolloutRun]:
        """The groups that are being played."""
        return [play.run for play in self._plays.values() if play.run is not None]

    def waits_for(self, window: int) -> str:
        """What the groups in flight cannot go on without, in words; empty while they go on.

        Args:
            window: so many groups in a row that the filter did not keep are told of.
        """
        plays = [play for play in self._plays.values() if not play.cause]
        runs = [play.run for play in plays if play.run is not None]
        stands = bool(plays) and all(_now_s() - play.since_s >= STILL_S for play in plays)
        if stands and not runs:
            count = f"{len(plays)} groups" if len(plays) > 1 else "1 group"
            return f"the task source, which has not given the tasks of {count}"
        if stands and any(run.waiting for run in runs) and not any(run.running for run in runs):
            return f"room in the pool: all of its {self._manager.limit} places are taken"
        if self._filtered >= window:
            return f"a group that the filter keeps: it kept none of the last {self._filtered}"
        return ""

    # -- beginning --------------------------------------------------------------------------

    async def _fill(self) -> None:
        while not self._problem:
            if any(play.waiting for play in self._plays.values()):
                await self._changed.wait()  # what has its ticket begins first
                continue
            most = max(1, self._manager.free // self._template.n)
            for ticket in await self._queue.admit(list(self._plays), most, ADMIT_S):
                if ticket not in self._plays:
                    task = asyncio.create_task(self._play(ticket), name=f"task-{ticket.position}")
                    self._plays[ticket] = _Play(task, _now_s(), cause=self._stopped_for)

    def _give_up(self, problem: str) -> None:
        """For the first problem that there was; none is empty."""
        self._problem = self._problem or problem

    def _change(self) -> None:
        """Wake all who wait for one."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def _end_all(self) -> list[Ticket]:
        """Nothing plays on where nobody would hear of it; what was in flight."""
        left = list(self._plays)
        tasks = [play.task for play in self._plays.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return left

    # -- one group --------------------------------------------------------------------------

    async def _play(self, ticket: Ticket) -> None:
        play = self._plays[ticket]
        try:
            await self._to_the_end(ticket, play)
        except asyncio.CancelledError:
            if not play.cause:
                raise
            await self._leave_unplayed(ticket, play.cause, replay=True)
        except TaskError as error:
            await self._leave_unplayed(ticket, "failed", replay=False)
            self._give_up(self._streak.add("TaskError", f"TaskError: {error}"))
        except Exception as error:  # noqa: BLE001 - it stops the stream, with its words
            self._broken_off.append(ticket)
            known = isinstance(error, StreamError)
            self._give_up(str(error) if known else f"{type(error).__name__}: {error}")
        finally:
            if play.run is not None:
                play.run.cancel()
            del self._plays[ticket]
            self._change()

    async def _to_the_end(self, ticket: Ticket, play: _Play) -> None:
        task = await self._source.task(ticket.position)
        if task is None:
            await self._queue.source_ended(self._source.total or 0)
            return
        play.run = self._manager.begin(
            self._template, task, ticket.position, ticket.attempt, on_change=self._change
        )
        if play.cause:
            play.run.cancel()
        rows = await play.run
        self.tally.add(rows)
        await self._settle(ticket, task, rows, play.cause)

    async def _settle(
        self, ticket: Ticket, task: Task, rows: Sequence[Trajectory], cause: str
    ) -> None:
        header = GroupHeader.of(ticket, rows, digest(task))
        if cause:
            await self._queue.leave(header, cause, replay=True)
        elif (failed := failed_row(rows)) is not None:
            kind = cause_of(failed)
            is_lost = kind in OF_THE_POOL
            await self._queue.leave(header, "lost" if is_lost else "failed", replay=is_lost)
            told = f"{failed.error}\n{failed.traceback}".rstrip()
            self._give_up(self._streak.add(kind, told))
        elif not any(row.status is RolloutStatus.DONE for row in rows):
            await self._queue.leave(header, "cancelled", replay=False)
        elif not self._is_kept(Group(header, tuple(rows))):
            self._streak.end()
            self._filtered += 1
            await self._queue.leave(header, "filtered", replay=False)
        else:
            self._streak.end()
            self._filtered = 0
            await self._queue.put(header, await _packed(rows))

    def _is_kept(self, group: Group) -> bool:
        try:
            return self._keeps(group)
        except Exception as error:
            told = f"the filter raised on the group at position {group.position}"
            raise StreamError(f"{told}: {type(error).__name__}: {error}") from error

    async def _leave_unplayed(self, ticket: Ticket, cause: str, *, replay: bool) -> None:
        await self._queue.leave(GroupHeader.of(ticket, ()), cause, replay=replay)


def _now_s() -> float:
    return asyncio.get_running_loop().time()


async def _packed(rows: Sequence[Trajectory]) -> bytes:
    tokens = sum(len(s.prompt_ids) + len(s.response_ids) for row in rows for s in row.segments)
    return await in_thread(lambda: pack(rows)) if tokens > MANY_TOKENS else pack(rows)
