"""What plays the rollouts of one :class:`Workbench`: its worker processes, or this process."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from workbench.cluster.workers import RayWorker
from workbench.decoding import remember
from workbench.errors import ConfigError
from workbench.models import resolve_model
from workbench.rollout.crew import Crew
from workbench.rollout.keeping import Keeper
from workbench.rollout.manager import prepare, try_making
from workbench.rollout.pace import Places
from workbench.rollout.rendering import Renderer, make_renderer
from workbench.rollout.stage import RenderStage
from workbench.rollout.worker import AgentLoopWorker
from workbench.stream.manager import FullyAsyncAgentLoopManager

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from workbench.client import LLMServerClient
    from workbench.engines.base import EngineLimits
    from workbench.rollout.crew import WorkerPort
    from workbench.rollout.run import Batch, RolloutRun
    from workbench.rollout.tasks import Tasks


class Players:
    """``count`` worker processes; with none of them, rollouts are played in this one.

    Raises:
        ConfigError: a count that is none.
    """

    def __init__(self, model: str, count: int) -> None:
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            raise ConfigError("workers", f"{count!r}", allowed="a whole number from 0")
        self._model = model
        self._count = count
        self._workers: list[WorkerPort] = []
        self._crew = Crew(self._workers)
        self._places: Places | None = None
        self._stage = RenderStage()
        """Of rollouts that are played in this process."""
        self._is_ready = False
        self._renderer: Renderer | None = None
        self._starting = asyncio.Lock()

    def load(self) -> None:
        """Start the processes, which read the tokenizer while the pool starts."""
        self._workers += [RayWorker(self._model) for _ in range(self._count)]

    async def ready(self, client: LLMServerClient) -> None:
        """Be able to play; starts what was not started. Idempotent.

        Raises:
            ConfigError: the model has no tokenizer, or no chat template.
        """
        async with self._starting:
            if self._is_ready:
                return
            if not self._workers:
                self.load()
            loaded = [worker for worker in self._workers if isinstance(worker, RayWorker)]
            await asyncio.gather(*(worker.connect(client) for worker in loaded))
            if not loaded:
                self._workers.append(AgentLoopWorker(client, await self.renderer(), self._stage))
            self._is_ready = True

    async def prepare(
        self, client: LLMServerClient, limits: EngineLimits, tasks: Tasks, options: dict[str, Any]
    ) -> Batch:
        """Check a batch; see :func:`workbench.rollout.manager.prepare`."""
        batch = prepare(tasks, model_tokens=limits.max_model_len, model=self._model, **options)
        try_making(batch.setup, client, await self.renderer())
        return batch

    async def begin(
        self,
        client: LLMServerClient,
        capacity: int,
        batch: Batch,
        keep: str | Path | None,
        *,
        retry_failed: bool = False,
    ) -> RolloutRun:
        """Begin a batch that was prepared. Its name is no other's.

        Args:
            client: samples.
            capacity: rollouts that the engines take at once.
            batch: what is played.
            keep: a file that they are written to as they end; what it has is not played again.
            retry_failed: but those that failed are.

        Raises:
            ConfigError: ``keep`` cannot be written, or is of another batch.
        """
        manager = await self.manager(client, capacity)
        name = f"{batch.setup.agent}-{secrets.token_hex(3)}"
        if keep is None:
            return manager.play(batch, name=name)
        keeper = await asyncio.to_thread(Keeper, keep)
        try:
            kept = await asyncio.to_thread(keeper.before, batch, retry_failed=retry_failed)
        except BaseException:
            keeper.close()
            raise
        known = {row.rollout_id for row in kept}
        rows = [*kept, *(row for row in batch.played if row.rollout_id not in known)]
        return manager.play(replace(batch, played=rows), name=name, keeper=keeper)

    async def manager(
        self,
        client: LLMServerClient,
        capacity: int,
        replicas: Callable[[], Awaitable[dict[str, Any]]] | None = None,
    ) -> FullyAsyncAgentLoopManager:
        """Who plays batches and groups, on the same workers and in the same places.

        Args:
            client: samples.
            capacity: rollouts that the engines take at once; later the pool's load says.
            replicas: of the pool: replica id → actor handle.
        """
        await self.ready(client)
        await self._crew.revive()
        self._places = self._places or Places(capacity)
        pad_id = (await self.renderer()).pad_id
        return FullyAsyncAgentLoopManager(
            self._crew, concurrency=self._places, pad_id=pad_id, replicas=replicas
        )

    async def renderer(self) -> Renderer:
        """The model's, read when it is first needed."""
        if self._renderer is None:
            model_dir = await asyncio.to_thread(resolve_model, self._model)
            self._renderer = await asyncio.to_thread(make_renderer, str(model_dir), self._model)
            remember(self._model, self._renderer.decode)
        return self._renderer

    def close(self) -> None:
        """End the processes."""
        self._stage.close()
        for worker in self._workers:
            if isinstance(worker, RayWorker):
                worker.close()
