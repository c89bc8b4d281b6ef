"""Rollout workers as Ray actors."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import sys
from typing import TYPE_CHECKING, Any

import ray

from workbench.cluster.ports import our_errors
from workbench.cluster.remote import Remote
from workbench.errors import PoolError, WorkerDiedError
from workbench.ids import new_id
from workbench.models import resolve_model
from workbench.rollout.rendering import Renderer, make_renderer
from workbench.rollout.stage import RenderStage
from workbench.rollout.worker import AgentLoopWorker, RolloutSetup

if TYPE_CHECKING:
    from workbench.client import LLMServerClient
    from workbench.rollout.tasks import RolloutSpec
    from workbench.rollout.trajectory import Trajectory

MAX_ROLLOUTS = 10_000
"""Rollouts that one worker may have in flight."""

MESSAGE_BYTES = 2**20
"""A setup that is larger goes through the cluster's shared memory, once for all rollouts."""

SWITCH_S = 0.0005
"""How long the thread that renders keeps the interpreter when the event loop wants it, which does
so after every call that goes out; Python's own 5 ms would add up."""

CANCEL_S = 10.0
"""How long a cancelled rollout may take to come back with what it has."""


class _WorkerActor:
    """An :class:`AgentLoopWorker` in a process of its own; takes no core of the cluster's.

    It reads the tokenizer while the pool starts, which takes seconds, and gets its client when the
    pool is ready.
    """

    def __init__(self) -> None:
        sys.setswitchinterval(SWITCH_S)
        self._renderer: Renderer | None = None
        self._stage = RenderStage()
        self._worker: AgentLoopWorker | None = None
        self._setup: tuple[bytes, Any] = b"", None
        """The one that came last, as it came and as it is."""
        self._playing: dict[str, asyncio.Task[Any]] = {}
        self._stopped: set[str] = set()

    async def load(self, model: str) -> None:
        self._renderer = make_renderer(str(resolve_model(model)), model)

    async def connect(self, client: LLMServerClient) -> None:
        assert self._renderer is not None
        self._worker = AgentLoopWorker(client, self._renderer, self._stage)

    async def run(self, key: str, setup: bytes, spec: RolloutSpec) -> Trajectory:
        assert self._worker is not None
        if setup != self._setup[0]:
            self._setup = setup, pickle.loads(setup)
        playing = asyncio.create_task(self._worker.run(self._setup[1], spec))
        self._playing[key] = playing
        try:
            await asyncio.sleep(0)  # it has begun: if it is cancelled now, its row comes back
            if key in self._stopped:
                playing.cancel()
            return await playing
        finally:
            del self._playing[key]
            self._stopped.discard(key)

    async def cancel(self, key: str) -> None:
        """The rollout ends as a cancelled one, with what it has sampled."""
        if playing := self._playing.get(key):
            playing.cancel()
        else:
            self._stopped.add(key)  # calls may overtake each other

    async def ping(self) -> None:
        """Answers while it lives."""


class RayWorker:
    """A worker actor as the manager sees it."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._client: LLMServerClient | None = None
        self._setups: dict[int, tuple[RolloutSetup, Any]] = {}
        self._reviving = asyncio.Lock()
        self._closed = False
        self._start()

    def _start(self) -> None:
        actor: Any = ray.remote(_WorkerActor)
        handle = actor.options(num_cpus=0, max_concurrency=MAX_ROLLOUTS).remote()
        self._actor = Remote(handle)
        self._loading = handle.load.remote(self._model)

    async def connect(self, client: LLMServerClient) -> None:
        """Give it its client; returns when it can play.

        Raises:
            ConfigError: the model has no tokenizer, or no chat template.
        """
        with our_errors(PoolError("a rollout worker died while it started")):
            await self._loading
            await self._actor.ask("connect", client)
        self._client = client

    async def revive(self) -> None:
        """Have an actor that can play: the one that there is, or another in its place.

        Raises:
            PoolError: the new one died, too.
        """
        async with self._reviving:
            if self._client is not None and not self._closed and not await self.lives():
                self._start()
                await self.connect(self._client)

    async def lives(self) -> bool:
        """Whether the actor answers."""
        try:
            with our_errors(PoolError("the worker died")):
                await self._actor.ask("ping")
        except PoolError:
            return False
        return True

    async def run(self, setup: RolloutSetup, spec: RolloutSpec) -> Trajectory:
        """Play a rollout there.

        A cancelled wait stops the rollout and still brings back what it had sampled.
        """
        key = new_id()
        playing = asyncio.ensure_future(self._play(key, setup, spec))
        try:
            return await asyncio.shield(playing)
        except asyncio.CancelledError:
            self._actor.tell("cancel", key)
            with contextlib.suppress(Exception):  # then nothing came back but that it is cancelled
                async with asyncio.timeout(CANCEL_S):
                    return await playing
            raise

    async def _play(self, key: str, setup: RolloutSetup, spec: RolloutSpec) -> Trajectory:
        with our_errors(WorkerDiedError("the worker that played this rollout died")):
            trajectory: Trajectory = await self._actor.ask("run", key, self._sent(setup), spec)
        return trajectory

    def _sent(self, setup: RolloutSetup) -> Any:
        """The setup as it is sent: pickled once, and by itself where it is large."""
        if id(setup) not in self._setups:
            self._setups.clear()  # one batch at a time is the rule; another one is pickled again
            untyped: Any = ray
            pickled: bytes = untyped.cloudpickle.dumps(setup)
            self._setups[id(setup)] = (
                setup,
                pickled if len(pickled) <= MESSAGE_BYTES else ray.put(pickled),
            )
        return self._setups[id(setup)][1]

    def close(self) -> None:
        """End the actor."""
        self._closed = True
        self._actor.kill()
