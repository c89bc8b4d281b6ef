"""Groups one by one, on the workers and in the places that batches use too."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError
from workbench.rollout.manager import AgentLoopManager, prepare
from workbench.rollout.tasks import RolloutSpec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from workbench.rollout.batch import RolloutBatch
    from workbench.rollout.crew import Crew, WorkerPort
    from workbench.rollout.pace import Places
    from workbench.rollout.run import Batch, RolloutRun
    from workbench.rollout.tasks import Task


class FullyAsyncAgentLoopManager(AgentLoopManager):
    """Plays single groups as well as batches; each rollout goes to the worker that has fewest.

    Args:
        workers: at least one; or a crew, which others share.
        concurrency: rollouts in flight, at most; or places, which others share.
        pad_id: fills the batch tensors.
        replicas: gives replica id → actor handle.
    """

    def __init__(
        self,
        workers: Sequence[WorkerPort] | Crew,
        *,
        concurrency: int | Places,
        pad_id: int,
        replicas: Callable[[], Awaitable[dict[str, Any]]] | None = None,
    ) -> None:
        super().__init__(workers, concurrency=concurrency, pad_id=pad_id)
        self._replicas = replicas
        self._groups = 0

    @property
    def pad_id(self) -> int:
        """Fills the batch tensors."""
        return self._pad_id

    async def get_replicas(self) -> dict[str, Any]:
        """Replica id → actor handle, of those that are ready; none without a pool."""
        return await self._replicas() if self._replicas is not None else {}

    def begin(
        self,
        template: Batch,
        task: Task,
        position: int,
        attempt: int = 1,
        *,
        on_change: Callable[[], None] | None = None,
    ) -> RolloutRun:
        """Begin the group of one task.

        Args:
            template: what all groups share; its own tasks are not played.
            task: has what its loop needs.
            position: tells its group from others.
            attempt: tells a group that is played again from what came of it before.
            on_change: called as each of its rollouts gets its place, and as it ends.
        """
        group = f"task-{position}"
        indices = range(template.n + template.rules.spare)
        again = f"#{attempt}" if attempt > 1 else ""
        specs = [RolloutSpec(f"{group}/{index}{again}", group, index, task) for index in indices]
        return self.play(replace(template, specs=specs), name=group, on_change=on_change)

    async def generate_sequences_single(self, task: str | Task, **options: Any) -> RolloutBatch:
        """Play the rollouts of one task to their end; options as in :func:`prepare`.

        Cancelling it stops them.

        Raises:
            ConfigError: it is several tasks, or an option is wrong.
            TaskError: the task lacks a field.
        """
        tasks = [task] if isinstance(task, str) or hasattr(task, "keys") else list(task)
        if len(tasks) != 1:
            raise ConfigError("task", f"are {len(tasks)} tasks", allowed="one task")
        batch = prepare(tasks, **options)
        number = self._groups
        self._groups += 1
        run = self.begin(batch, batch.specs[0].task, number)
        try:
            await run
        except asyncio.CancelledError:
            run.cancel()
            await run
            raise
        return run.batch()
