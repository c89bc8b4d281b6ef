"""What plays the rollouts of one :class:`Workbench`: its worker processes, or this process."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Any

from workbench.cluster.workers import RayWorker
from workbench.errors import ConfigError
from workbench.models import resolve_model
from workbench.rollout.manager import AgentLoopManager, RolloutRun, WorkerPort, try_making
from workbench.rollout.rendering import Renderer, make_renderer
from workbench.rollout.worker import AgentLoopWorker

if TYPE_CHECKING:
    from workbench.client import LLMServerClient
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
                self._workers.append(AgentLoopWorker(client, await self.renderer()))
            self._is_ready = True

    async def begin(
        self, client: LLMServerClient, concurrency: int, tasks: Tasks, options: dict[str, Any]
    ) -> RolloutRun:
        """Begin a batch; see :meth:`AgentLoopManager.prepare`. Its name is no other's."""
        renderer = await self.renderer()
        await self.ready(client)
        self._workers = [await self._living(worker, client) for worker in self._workers]
        manager = AgentLoopManager(self._workers, concurrency=concurrency, pad_id=renderer.pad_id)
        setup, specs = manager.prepare(tasks, **options)
        try_making(setup, client, renderer)
        return manager.play(setup, specs, name=f"{setup.agent}-{secrets.token_hex(3)}")

    async def renderer(self) -> Renderer:
        """The model's, read when it is first needed."""
        if self._renderer is None:
            model_dir = await asyncio.to_thread(resolve_model, self._model)
            self._renderer = await asyncio.to_thread(make_renderer, str(model_dir), self._model)
        return self._renderer

    async def _living(self, worker: WorkerPort, client: LLMServerClient) -> WorkerPort:
        """The worker, or a new one in the place of one that died."""
        if not isinstance(worker, RayWorker) or await worker.lives():
            return worker
        fresh = RayWorker(self._model)
        await fresh.connect(client)
        return fresh

    def close(self) -> None:
        """End the processes."""
        for worker in self._workers:
            if isinstance(worker, RayWorker):
                worker.close()
