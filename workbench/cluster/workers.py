"""Rollout workers as Ray actors."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import sys
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import ray

from workbench.aio import LoopThread
from workbench.cluster.ports import our_errors
from workbench.cluster.remote import Remote
from workbench.cluster.sending import packed, pickled
from workbench.errors import DeadlineError, PoolError, WorkerDiedError
from workbench.ids import new_id
from workbench.models import resolve_model
from workbench.rollout.rendering import Renderer, make_renderer
from workbench.rollout.stage import RenderStage
from workbench.rollout.worker import AgentLoopWorker, RolloutSetup

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from workbench.client import LLMServerClient
    from workbench.rollout.tasks import RolloutSpec
    from workbench.rollout.trajectory import Trajectory

MAX_ROLLOUTS = 10_000
"""Rollouts that one worker may have in flight."""

MESSAGE_BYTES = 2**20
"""A setup that is larger goes through the cluster's shared memory, once for all rollouts."""

KEPT_SETUPS = 8
"""Of batches and streams that are played at the same time."""

SWITCH_S = 0.0005
"""How long the thread that renders keeps the interpreter when the event loop wants it, which does
so after every call that goes out; Python's own 5 ms would add up."""

CANCEL_S = 10.0
"""How long a cancelled rollout may take to come back with what it has."""

GRACE_S = 8.0
"""How long the event loop of the rollouts may be blocked once a time limit of theirs is over, or
one of them was cancelled; shorter than a cancelled one is waited for."""

ANSWER_S = 5.0
"""How long a worker may take to say that it lives; one that does not is replaced."""


class _WorkerActor:
    """An :class:`AgentLoopWorker` in a process of its own; takes no core of the cluster's.

    It reads the tokenizer while the pool starts, which takes seconds, and gets its client when the
    pool is ready. Rollouts are played on an event loop of their own, so that the actor's answers
    whatever they do.
    """

    def __init__(self) -> None:
        sys.setswitchinterval(SWITCH_S)
        self._renderer: Renderer | None = None
        self._stage = RenderStage()
        self._worker: AgentLoopWorker | None = None
        self._setups: OrderedDict[bytes, Any] = OrderedDict()
        """Those that came last, as they came and as they are."""
        self._loop = LoopThread("rollouts")
        self._playing: dict[str, asyncio.Task[Trajectory]] = {}
        """Changed on the rollouts' loop only, as is the next."""
        self._stopped: set[str] = set()
        self._is_blocked = False

    async def load(self, model: str) -> None:
        self._renderer = make_renderer(str(resolve_model(model)), model)

    async def connect(self, client: LLMServerClient) -> None:
        assert self._renderer is not None
        self._worker = AgentLoopWorker(client, self._renderer, self._stage)

    async def run(self, key: str, setup: bytes, spec: RolloutSpec) -> bytes:
        """The trajectory, packed.

        Raises:
            DeadlineError: it blocks the event loop of the rollouts beyond its time limit.
            WorkerDiedError: a task does that is not its own, of whichever rollout; this process is
                of no use any more.
        """
        if setup not in self._setups:
            keep(self._setups, setup, pickle.loads(setup))
        rules: RolloutSetup = self._setups[setup]
        playing = asyncio.wrap_future(self._loop.submit(self._play(key, rules, spec)))
        done, _ = await asyncio.wait({playing}, timeout=_longest_s(rules))
        while not done:  # its time is over, and its loop may clean up as long as it takes
            if not await self._answers(_nothing()):
                raise self._blocked(key, rules)
            done, _ = await asyncio.wait({playing}, timeout=GRACE_S)
        return packed(playing.result())

    async def cancel(self, key: str) -> None:
        """The rollout ends as a cancelled one, with what it has sampled."""
        self._is_blocked |= not await self._answers(self._cancel(key))

    async def can_play(self) -> bool:
        """Whether no rollout was found to block the others."""
        return not self._is_blocked

    async def _play(self, key: str, setup: RolloutSetup, spec: RolloutSpec) -> Trajectory:
        assert self._worker is not None
        playing = asyncio.create_task(self._worker.run(setup, spec))
        self._playing[key] = playing
        try:
            await asyncio.sleep(0)  # it has begun: if it is cancelled now, its row comes back
            if key in self._stopped:
                playing.cancel()
            return await playing
        finally:
            del self._playing[key]
            self._stopped.discard(key)

    async def _cancel(self, key: str) -> None:
        if playing := self._playing.get(key):
            playing.cancel()
        else:
            self._stopped.add(key)  # calls may overtake each other

    async def _answers(self, asked: Coroutine[Any, Any, None]) -> bool:
        """Whether the rollouts' loop gets to this."""
        answer = asyncio.wrap_future(self._loop.submit(asked))
        done, _ = await asyncio.wait({answer}, timeout=GRACE_S)
        return bool(done)

    def _blocked(self, key: str, setup: RolloutSetup) -> Exception:
        self._is_blocked = True
        if key in self._playing and self._loop.running() is self._playing[key]:
            return DeadlineError(
                f"the rollout took longer than {setup.timeout_s:g} s, and blocks its worker's "
                "event loop: await asyncio.to_thread(...) is for calls that take long"
            )
        return WorkerDiedError("a task blocks the event loop of the worker that played this")


def keep(known: OrderedDict[Any, Any], key: Any, value: Any) -> None:
    """One more of the last few: a batch and some streams at a time."""
    known[key] = value
    while len(known) > KEPT_SETUPS:
        known.popitem(last=False)


def _longest_s(setup: RolloutSetup) -> float | None:
    """What a rollout and its reward may take; None for no limit."""
    limits = 1 if setup.reward is None else 2
    return None if setup.timeout_s is None else limits * setup.timeout_s


async def _nothing() -> None:
    return


class RayWorker:
    """A worker actor as the manager sees it."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._client: LLMServerClient | None = None
        self._setups: OrderedDict[int, tuple[RolloutSetup, Any]] = OrderedDict()
        self._reviving = asyncio.Lock()
        self._closed = False
        self._start()

    def _start(self) -> None:
        actor: Any = ray.remote(_WorkerActor)
        handle = actor.options(
            num_cpus=0, max_concurrency=MAX_ROLLOUTS, scheduling_strategy="SPREAD"
        ).remote()
        self._actor = Remote(handle)
        self._loading = handle.load.remote(self._model)

    async def connect(self, client: LLMServerClient) -> None:
        """Give it its client; returns when it can play.

        Raises:
            ConfigError: the model has no tokenizer, or no chat template.
        """
        with our_errors(PoolError("a rollout worker died while it started")):
            await self._actor.answer(self._loading)
            await self._actor.ask("connect", client)
        self._client = client

    async def revive(self) -> None:
        """Have an actor that can play: the one that there is, or another in its place.

        Raises:
            PoolError: the new one died, too, or there is no cluster any more to start it in.
        """
        async with self._reviving:
            if self._client is None or self._closed or await self.lives():
                return
            if self._actor.gone:
                raise PoolError("the cluster that the rollout workers ran in is gone")
            self._actor.kill()  # what it plays comes back as the error of a worker that died
            self._start()
            await self.connect(self._client)

    async def lives(self) -> bool:
        """Whether the actor answers, and can play."""
        try:
            async with asyncio.timeout(ANSWER_S):
                with our_errors(PoolError("the worker died")):
                    return bool(await self._actor.ask("can_play"))
        except (PoolError, TimeoutError):
            return False

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
            sent: bytes = await self._actor.ask("run", key, self._sent(setup), spec)
        trajectory: Trajectory = pickle.loads(sent)
        return trajectory

    def _sent(self, setup: RolloutSetup) -> Any:
        """The setup as it is sent: pickled once, and by itself where it is large."""
        if id(setup) not in self._setups:
            sent = pickled(setup)
            stored = sent if len(sent) <= MESSAGE_BYTES else ray.put(sent)
            keep(self._setups, id(setup), (setup, stored))
        return self._setups[id(setup)][1]

    def close(self) -> None:
        """End the actor."""
        self._closed = True
        self._actor.kill()
