"""The façade: a pool of vLLM replicas as one object, blocking where a cell wants it to be.

It holds no state of the pool, which lives in the cluster. Everything that it starts ends when it is
closed, when its ``with`` block is left, or when its process ends, however it ends.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import itertools
import os
import weakref
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self, TypeVar

from workbench.aio import LoopThread, polite
from workbench.client import LLMServerClient
from workbench.cluster.connection import Connection, connect
from workbench.cluster.manager import LLMServerManager, check_config, check_room
from workbench.cluster.workers import RayWorker
from workbench.config import DEFAULT_POLICY, PoolConfig, RoutingConfig
from workbench.errors import ConfigError, NoRoomError, PoolClosedError
from workbench.facade.handle import Rollout
from workbench.facade.html import percent, table
from workbench.facade.progress import Progress
from workbench.facade.routing import Routing
from workbench.models import resolve_model
from workbench.rollout.manager import AgentLoopManager, RolloutRun, WorkerPort, try_making
from workbench.rollout.rendering import Message, Renderer, make_renderer, task_messages
from workbench.rollout.worker import AgentLoopWorker
from workbench.types import PoolSnapshot, ReplicaState, SamplingParams, TokenOutput

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping, Sequence

    from workbench.engines.base import EngineLimits
    from workbench.rollout.loop import AgentLoopBase
    from workbench.rollout.rewards import Reward
    from workbench.rollout.tasks import Tasks

T = TypeVar("T")

_open: weakref.WeakSet[Workbench] = weakref.WeakSet()
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer in words, with the tokens it was made of."""

    text: str
    prompt_ids: list[int]
    output: TokenOutput

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Reply({self.text!r}, {len(self.prompt_ids)} prompt tokens, {self.output})"


class Workbench:
    """A pool of replicas of one model, ready when the constructor returns.

    Args:
        model: packaged name (``smollm2-135m``), local directory, or hub id.
        replicas: each gets GPUs of its own, or CPU cores where the cluster has no GPU.
        name: shown everywhere.
        engine_args: passed to vLLM's ``AsyncEngineArgs`` untouched.
        policy: how sessions find their replica: a name, an object or a class with ``choose``.
        routing: everything else about routing (capacity, health, delays).
        deterministic: the same session ids get the same replicas and seeds in every process.
        workers: processes that play agent loops; 0 plays them in this one.
        address: a Ray cluster; else ``RAY_ADDRESS``, else Ray is started here.
        engine: ``vllm``; ``simulated`` is for tests and overhead measurements.
        start_timeout_s: seconds after which a start is given up.
        seed: of the choice among equally loaded replicas, and of the engines.
        progress: show progress, on standard error or below the cell.

    Raises:
        ConfigError: something is wrong with the arguments; nothing was started.
        NoRoomError: the cluster cannot hold the replicas; nothing is left running.
        ReplicaStartError: a replica did not come up; nothing is left running.
    """

    def __init__(
        self,
        model: str = "smollm2-135m",
        replicas: int = 1,
        *,
        name: str | None = None,
        engine_args: Mapping[str, Any] | None = None,
        policy: Any = None,
        routing: RoutingConfig | None = None,
        deterministic: bool = False,
        workers: int = 1,
        address: str | None = None,
        engine: str = "vllm",
        start_timeout_s: float = 600.0,
        seed: int = 0,
        progress: bool = True,
    ) -> None:
        if not isinstance(workers, int) or workers < 0:
            raise ConfigError("workers", f"{workers!r}", allowed="a whole number from 0")
        self.config = PoolConfig(
            model=model,
            replicas=replicas,
            name=name or f"pool-{os.getpid()}-{next(_numbers)}",
            engine_args={} if engine_args is None else engine_args,
            routing=_routing(routing, policy),
            deterministic=deterministic,
            engine=engine,
            start_timeout_s=start_timeout_s,
            seed=seed,
        )
        check_config(self.config)
        self._progress = progress
        self._workers: list[WorkerPort] = []
        self._rollouts: weakref.WeakSet[Rollout] = weakref.WeakSet()
        self._renderer: Renderer | None = None
        self._own_client: LLMServerClient | None = None
        self._manager: LLMServerManager | None = None
        self._closed = False
        self._loop = LoopThread()
        self._connection: Connection | None = None
        try:
            self._connection = connect(address)
            self._call(self._start(workers))
        except BaseException:
            self.close()
            raise
        _open.add(self)

    async def _start(self, workers: int) -> None:
        """The pool; the workers start beside it."""
        try:
            check_room(self.config)
        except NoRoomError as error:
            if held := ", ".join(sorted(bench.config.name for bench in _open)):
                hint = f"{error}. Open in this process: {held}; close() gives their places back"
                raise NoRoomError(hint) from None
            raise
        players = [RayWorker(self.config.model) for _ in range(workers)]
        self._workers += players
        shown = Progress(enabled=self._progress)
        self._manager = await LLMServerManager.create(self.config, on_progress=shown.replicas)
        client = self._own_client = await self._manager.get_client()
        if players:
            await asyncio.gather(*(player.connect(client) for player in players))
        else:
            self._workers.append(AgentLoopWorker(client, await self._render()))

    # -- asking -----------------------------------------------------------------------------

    def generate(
        self, prompt: str | Sequence[Message], *, session: str | None = None, **sampling: Any
    ) -> Reply:
        """Answer a prompt, or go on with a conversation.

        Args:
            prompt: what the user says, or a list of messages.
            session: turns with the same one go to the same replica. Nothing is remembered: a
                conversation goes on by sending all of its messages.
            sampling: by the engine's names; 256 tokens at most unless ``max_tokens`` says more.
        """
        return self._call(self._generate(prompt, session, sampling))

    async def agenerate(
        self, prompt: str | Sequence[Message], *, session: str | None = None, **sampling: Any
    ) -> Reply:
        """:meth:`generate` for an ``await``."""
        asked = self._while_open(self._generate(prompt, session, sampling))
        return await polite(self._loop.submit(asked))

    async def _generate(
        self, prompt: str | Sequence[Message], session: str | None, sampling: dict[str, Any]
    ) -> Reply:
        renderer = await self._render()
        asked = {"prompt": prompt} if isinstance(prompt, str) else {"messages": prompt}
        prompt_ids = renderer.prompt(task_messages(asked))
        output = await self._client().generate(
            session or f"ask-{next(_numbers)}",
            prompt_ids=prompt_ids,
            sampling_params={"max_tokens": 256, **sampling},
        )
        return Reply(renderer.parse(output.token_ids).text, prompt_ids, output)

    def client(
        self, client_cls: type[LLMServerClient] = LLMServerClient, **kwargs: Any
    ) -> LLMServerClient:
        """A token client for this pool; for the event loop that first uses it."""
        return self._call(self.manager.get_client(client_cls, **kwargs))

    def rollout(
        self,
        tasks: Tasks,
        agent: str | type[AgentLoopBase] = "single_turn",
        *,
        n: int = 1,
        sampling_params: SamplingParams | None = None,
        reward: Reward | None = None,
        timeout_s: float | None = None,
        **loop_args: Any,
    ) -> Rollout:
        """Begin a batch of rollouts and return its handle at once.

        Args:
            tasks: strings, mappings or a DataFrame.
            agent: ``single_turn``, ``tool``, another registered name, or a loop class.
            n: rollouts per task.
            sampling_params: by the engine's names.
            reward: of a finished trajectory.
            timeout_s: wall time of one rollout.
            loop_args: settings of the agent loop (``tools``, ``preamble``, ``limits``, …).

        Raises:
            ConfigError: unknown agent, or a setting that it does not have.
            TaskError: a task lacks a field that the agent needs.
        """
        run = self._call(
            self._start_rollout(
                tasks,
                agent=agent,
                n=n,
                sampling_params=sampling_params,
                reward=reward,
                timeout_s=timeout_s,
                **loop_args,
            )
        )
        rollout = Rollout(run, self._loop, self.manager.snapshot, progress=self._progress)
        self._rollouts.add(rollout)
        return rollout

    async def _start_rollout(self, tasks: Tasks, **options: Any) -> RolloutRun:
        renderer = await self._render()
        client = self._client()
        self._workers = [await self._living(worker, client) for worker in self._workers]
        manager = AgentLoopManager(
            self._workers, concurrency=self._concurrency(), pad_id=renderer.pad_id
        )
        setup, specs = manager.prepare(tasks, **options)
        try_making(setup, client, renderer)
        return manager.play(setup, specs)

    async def _living(self, worker: WorkerPort, client: LLMServerClient) -> WorkerPort:
        """The worker, or a new one in the place of one that died."""
        if not isinstance(worker, RayWorker) or await worker.lives():
            return worker
        fresh = RayWorker(self.config.model)
        await fresh.connect(client)
        return fresh

    def _concurrency(self) -> int:
        """As many rollouts as the engines' batches hold, so that none waits inside an engine."""
        return self.limits.max_num_seqs * self.config.replicas

    def _client(self) -> LLMServerClient:
        """This object's own client, on its own loop."""
        assert self._own_client is not None, "the constructor makes it"
        return self._own_client

    async def _render(self) -> Renderer:
        if self._renderer is None:
            model_dir = await asyncio.to_thread(resolve_model, self.config.model)
            self._renderer = await asyncio.to_thread(
                make_renderer, str(model_dir), self.config.model
            )
        return self._renderer

    # -- looking ----------------------------------------------------------------------------

    @property
    def manager(self) -> LLMServerManager:
        """The pool's manager.

        Raises:
            PoolClosedError: the pool was closed.
        """
        if self._manager is None or self._closed:
            raise PoolClosedError(f"the pool {self.config.name!r} was closed")
        return self._manager

    @property
    def limits(self) -> EngineLimits:
        """What the engines can take."""
        return self.manager.limits

    @property
    def routing(self) -> Routing:
        """The balancer: sessions, events, moves and drains."""
        return Routing(self.manager, self._call)

    def snapshot(self) -> PoolSnapshot:
        """The pool at this moment."""
        return self._call(self.manager.snapshot())

    def __repr__(self) -> str:
        if self._closed:
            return f"Workbench({self.config.model!r}, closed)"
        pool = self.snapshot()
        ready = sum(r.status.state is ReplicaState.READY for r in pool.replicas)
        in_flight = pool.routing.in_flight if pool.routing else 0
        return (
            f"Workbench({self.config.model!r}, {ready}/{len(pool.replicas)} replicas ready "
            f"on {pool.device}, {in_flight} in flight)"
        )

    def _repr_html_(self) -> str:
        if self._closed:
            return table(f"Workbench: {self.config.model}", [], "closed")
        pool = self.snapshot()
        rows = [
            {
                "replica": replica.status.replica_id,
                "state": str(replica.status.state),
                "in flight": replica.load.in_flight if replica.load else None,
                "sessions": replica.load.sessions if replica.load else None,
                "running": replica.engine.running if replica.engine else None,
                "waiting": replica.engine.waiting if replica.engine else None,
                "KV cache": percent(replica.engine.kv_cache_usage if replica.engine else None),
                "prefix hits": percent(replica.engine.prefix_hit_rate if replica.engine else None),
                "tokens sampled": replica.engine.generation_tokens if replica.engine else None,
                "started in s": replica.status.start_s and round(replica.status.start_s, 1),
            }
            for replica in pool.replicas
        ]
        return table(f"Workbench: {pool.model}", rows, f"{pool.name}, on {pool.device}")

    # -- ending -----------------------------------------------------------------------------

    def close(self) -> None:
        """Stop the pool and all that came with it. Idempotent.

        Rollouts that have not ended become cancelled rows. A step that fails or is interrupted
        keeps none of the others from being taken.
        """
        if self._closed:
            return
        self._closed = True
        _open.discard(self)
        with contextlib.ExitStack() as steps:  # taken from the last to the first
            if self._connection is not None:
                steps.callback(self._connection.close)
            steps.callback(self._loop.close)
            if self._manager is not None:
                steps.callback(lambda manager: self._loop.run(manager.close()), self._manager)
            for worker in self._workers:
                if isinstance(worker, RayWorker):
                    steps.callback(worker.close)
            if self._own_client is not None:
                steps.callback(lambda client: self._loop.run(client.aclose()), self._own_client)
            for rollout in list(self._rollouts):
                steps.callback(rollout.cancel)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _call(self, coro: Coroutine[Any, Any, T]) -> T:
        return self._loop.run(self._while_open(coro))

    def _while_open(self, coro: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        if self._closed:
            coro.close()
            raise PoolClosedError(f"the pool {self.config.name!r} was closed")
        return coro


def _routing(routing: RoutingConfig | None, policy: Any) -> RoutingConfig:
    rules = routing or RoutingConfig()
    if policy is not None and rules.policy != DEFAULT_POLICY:
        raise ConfigError("policy", "is given twice", allowed="policy=, or routing=, not both")
    return rules if policy is None else replace(rules, policy=policy)


@atexit.register
def _close_all() -> None:
    for bench in list(_open):
        bench.close()
