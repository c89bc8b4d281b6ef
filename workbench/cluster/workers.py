"""Rollout workers as Ray actors."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import ray

from workbench.cluster.ports import our_errors
from workbench.errors import PoolError
from workbench.models import resolve_model
from workbench.rollout.rendering import Renderer, make_renderer
from workbench.rollout.worker import AgentLoopWorker, RolloutSetup

if TYPE_CHECKING:
    from workbench.client import LLMServerClient
    from workbench.rollout.tasks import RolloutSpec
    from workbench.rollout.trajectory import Trajectory

MAX_ROLLOUTS = 10_000
"""Rollouts that one worker may have in flight."""


class _WorkerActor:
    """An :class:`AgentLoopWorker` in a process of its own; takes no core of the cluster's.

    It reads the tokenizer while the pool starts, which takes seconds, and gets its client when the
    pool is ready.
    """

    def __init__(self) -> None:
        self._renderer: Renderer | None = None
        self._worker: AgentLoopWorker | None = None

    async def load(self, model: str) -> None:
        self._renderer = make_renderer(str(resolve_model(model)), model)

    async def connect(self, client: LLMServerClient) -> None:
        assert self._renderer is not None
        self._worker = AgentLoopWorker(client, self._renderer)

    async def run(self, setup: RolloutSetup, spec: RolloutSpec) -> Trajectory:
        if self._worker is None:
            raise RuntimeError("the worker has no client yet")
        return await self._worker.run(setup, spec)


class RayWorker:
    """A worker actor as the manager sees it."""

    def __init__(self, model: str) -> None:
        actor: Any = ray.remote(_WorkerActor)
        self._handle = actor.options(num_cpus=0, max_concurrency=MAX_ROLLOUTS).remote()
        self._loading = self._handle.load.remote(model)
        self._setups: dict[int, tuple[RolloutSetup, Any]] = {}

    async def connect(self, client: LLMServerClient) -> None:
        """Give it its client; returns when it can play.

        Raises:
            ConfigError: the model has no tokenizer, or no chat template.
        """
        with our_errors(PoolError("a rollout worker died while it started")):
            await self._loading
            await self._handle.connect.remote(client)

    async def run(self, setup: RolloutSetup, spec: RolloutSpec) -> Trajectory:
        """Play a rollout there; a batch's setup travels once."""
        ref = self._handle.run.remote(self._sent(setup), spec)
        try:
            with our_errors(PoolError("the worker that played this rollout died")):
                trajectory: Trajectory = await ref
        except asyncio.CancelledError:
            ray.cancel(ref)
            raise
        return trajectory

    def _sent(self, setup: RolloutSetup) -> Any:
        if id(setup) not in self._setups:
            self._setups.clear()  # one batch at a time is the rule; another one is sent again
            self._setups[id(setup)] = (setup, ray.put(setup))
        return self._setups[id(setup)][1]

    def close(self) -> None:
        """End the actor."""
        ray.kill(self._handle)
