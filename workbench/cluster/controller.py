"""The controller: the actor that owns a pool.

It starts the balancer and the replicas, so that they live and die with it, and it knows the state
of each. It dies with the process that made it, and so does everything that it owns.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import ActorUnavailableError, RayError

from workbench.cluster.balancer import MAX_CALLS as BALANCER_CALLS
from workbench.cluster.balancer import BalancerActor
from workbench.cluster.host import ViewHosts
from workbench.cluster.replica import ReplicaActor, ReplicaSpec
from workbench.cluster.watch import FIGURES_S, PoolWatch
from workbench.errors import ConfigError, PoolError, ReplicaStartError, WorkbenchError
from workbench.metrics.recorder import Recorder
from workbench.types import PoolSnapshot, ReplicaState, ReplicaStatus

if TYPE_CHECKING:
    from workbench.cluster.host import HostedView
    from workbench.cluster.placement import Placement
    from workbench.cluster.registry import PoolEntry
    from workbench.config import PoolConfig
    from workbench.engines.base import EngineLimits
    from workbench.metrics.history import HistoryPage
    from workbench.metrics.samples import RolloutSnapshot
    from workbench.trajectory import Trajectory

CLOSE_S = 15.0
"""How long a replica may take to stop by itself before it is killed."""

RESTORE_S = 0.05
"""Pause between two attempts to reach a balancer that starts over."""

LOG_LINES = 25
"""Log lines in the error of a replica that did not start."""

MAX_CALLS = 10_000
"""Calls that a replica serves at once; one long poll per client and one call per batch."""


@dataclass(slots=True)
class _Replica:
    status: ReplicaStatus
    handle: Any = None
    is_known: bool = False
    """Whether the balancer has to know it."""
    born_s: float = field(default_factory=time.monotonic)


class PoolController:
    """Becomes a Ray actor in :mod:`workbench.cluster.manager`; all its methods are async."""

    def __init__(self, config: PoolConfig, placement: Placement, entry: PoolEntry) -> None:
        self._config = config
        self._entry = entry
        self._limits: EngineLimits | None = None
        self._ready = asyncio.Event()
        self._placement = placement
        self._replicas: dict[str, _Replica] = {}
        self._wanted: dict[str, ReplicaState] = {}
        """What somebody wants a replica's state to be, where that is not for itself to say."""
        self._epoch = 0
        self._restoring: asyncio.Task[None] | None = None
        balancer: Any = ray.remote(BalancerActor)
        myself = ray.get_runtime_context().current_actor
        self._balancer = balancer.options(
            num_cpus=0, max_restarts=-1, max_concurrency=BALANCER_CALLS
        ).remote(myself, config.routing_rules, config.seed)
        pool = PoolSnapshot(config.name, config.model, placement.device, (), None)
        self._watch = PoolWatch(pool, self._balancer, self._replicas.values, config.sample_s)
        self._recorder = Recorder(self._watch.take, time.monotonic, config.sample_s)
        self._views = ViewHosts(entry, myself)

    async def start(self) -> EngineLimits:
        """Start all replicas side by side.

        Raises:
            ReplicaStartError: one did not come up; those that did are stopped again.
        """
        for index in range(self._config.replicas):
            replica_id = f"replica-{index}"
            status = ReplicaStatus(replica_id, ReplicaState.STARTING, "waiting for its place")
            self._replicas[replica_id] = _Replica(status)
        try:
            async with asyncio.timeout(self._config.start_timeout_s):
                await self._introduce()
                self._recorder.start()
                limits = await asyncio.gather(*(self._start(r) for r in self._replicas.values()))
        except BaseException as error:  # noqa: BLE001 - raised again once all is stopped
            failure = await self._start_failure(error)
            await self.close()
            raise failure from None
        self._limits = limits[0]
        self._ready.set()
        return self._limits

    async def owner(self) -> PoolEntry:
        """The pool's name and the process that it ends with; known from the first moment."""
        return self._entry

    async def describe(self) -> tuple[PoolConfig, EngineLimits]:
        """What it was made from, and what its engines can take; waits while it starts."""
        await self._ready.wait()
        assert self._limits is not None
        return self._config, self._limits

    async def _start(self, replica: _Replica) -> EngineLimits:
        replica_id = replica.status.replica_id
        actor: Any = ray.remote(ReplicaActor)
        replica.handle = actor.options(max_concurrency=MAX_CALLS, **self._resources()).remote(
            self._spec(replica_id)
        )
        try:
            pid, node, log_path = await replica.handle.where.remote()
            replica.status = replace(replica.status, pid=pid, node=node, log_path=log_path)
            limits: EngineLimits = await replica.handle.start.remote()
        except RayError as error:
            cause = getattr(error, "cause", None)
            if isinstance(cause, WorkbenchError):
                raise cause from None
            told = cause or error
            raise await self._with_log(replica, _in_short(told)) from None
        replica.is_known = True
        await self._introduce()
        replica.status = replace(
            replica.status,
            state=ReplicaState.READY,
            stage="",
            start_s=time.monotonic() - replica.born_s,
        )
        return limits

    def _resources(self) -> dict[str, Any]:
        """What the replica's actor asks Ray for."""
        if self._config.engine == "simulated":
            return {"num_cpus": 0}
        bundle = self._placement.bundle
        return {
            "num_cpus": bundle["CPU"],
            "num_gpus": bundle.get("GPU", 0),
            "memory": bundle.get("memory"),
        }

    def _spec(self, replica_id: str) -> ReplicaSpec:
        config = self._config
        return ReplicaSpec(
            replica_id,
            config.name,
            config.model,
            config.engine,
            config.engine_args,
            self._placement.device,
            self._placement.threads,
            config.seed + int(replica_id.rpartition("-")[2]),
        )

    async def _start_failure(self, error: BaseException) -> BaseException:
        if not isinstance(error, TimeoutError):
            return error
        late = [r for r in self._replicas.values() if r.status.state is ReplicaState.STARTING]
        stage = await self._stage(late[0])
        limit = self._config.start_timeout_s
        return await self._with_log(late[0], f"still {stage!r} after {limit:g} s")

    async def _with_log(self, replica: _Replica, problem: str) -> ReplicaStartError:
        try:
            log = await self._log_tail(replica, LOG_LINES) if replica.handle else ""
        except PoolError as error:
            log = f"({error})"
        return ReplicaStartError(replica.status.replica_id, problem, log_tail=log)

    async def _log_tail(self, replica: _Replica, lines: int) -> str:
        if replica.handle is not None:
            with contextlib.suppress(RayError, TimeoutError):
                async with asyncio.timeout(FIGURES_S):
                    return str(await replica.handle.log_tail.remote(lines))
        raise PoolError(f"its process does not answer; see {replica.status.log_path}")

    async def _stage(self, replica: _Replica) -> str:
        if replica.status.pid is None or replica.status.state is not ReplicaState.STARTING:
            return replica.status.stage
        try:
            async with asyncio.timeout(FIGURES_S):
                return str(await replica.handle.stage.remote())
        except (RayError, TimeoutError):
            return replica.status.stage

    async def balancer(self) -> Any:
        """The balancer actor."""
        return self._balancer

    async def begin_epoch(self) -> int:
        """The balancer begins another life; after the first, it has to be told of the replicas."""
        self._epoch += 1
        if self._epoch > 1:
            self._restoring = asyncio.create_task(self._introduce())
        return self._epoch

    async def _introduce(self) -> None:
        """Tell the balancer of the replicas that it has to know, also while it starts over."""
        while True:
            known = {name: r.handle for name, r in self._replicas.items() if r.is_known}
            try:
                await self._balancer.restore.remote(known, self._wanted)
            except ActorUnavailableError:
                await asyncio.sleep(RESTORE_S)
            else:
                return

    async def set_state(self, replica_id: str, state: ReplicaState) -> None:
        """Drain a replica, pause it, or take it back; the balancer keeps to it after a restart.

        Raises:
            ConfigError: unknown replica.
        """
        await self._balancer.set_state.remote(replica_id, state)
        self._wanted[replica_id] = state

    async def statuses(self) -> list[ReplicaStatus]:
        """Each replica with its stage, while the pool starts and later."""
        replicas = list(self._replicas.values())
        stages = await asyncio.gather(*(self._stage(replica) for replica in replicas))
        return [
            replace(replica.status, stage=stage)
            for replica, stage in zip(replicas, stages, strict=True)
        ]

    async def handles(self) -> dict[str, Any]:
        """Replica id → actor, of those that are ready."""
        return {
            replica_id: replica.handle
            for replica_id, replica in self._replicas.items()
            if replica.status.state is ReplicaState.READY
        }

    async def snapshot(self) -> PoolSnapshot:
        """The pool at this moment."""
        return await self._watch.snapshot()

    async def read_history(self, cursor: int) -> HistoryPage:
        """What was recorded after ``cursor``."""
        return self._recorder.read(cursor)

    async def note_rollouts(
        self, snapshot: RolloutSnapshot, trajectories: list[Trajectory]
    ) -> None:
        """A batch that somebody plays: where it stands, and what just ended in it."""
        self._recorder.runs.note(replace(snapshot, heard_s=time.time()), trajectories)

    async def rollouts(self, name: str) -> list[Trajectory]:
        """Of one batch, as far as they are kept."""
        return self._recorder.runs.trajectories(name)

    async def log_tail(self, replica_id: str, lines: int) -> str:
        """The last lines of a replica's log.

        Raises:
            ConfigError: unknown replica.
            PoolError: it does not answer.
        """
        replica = self._replicas.get(replica_id)
        if replica is None:
            raise ConfigError("replica_id", f"{replica_id!r}", allowed=sorted(self._replicas))
        return await self._log_tail(replica, lines)

    async def host(self, name: str, options: dict[str, Any]) -> HostedView:
        """Serve a view; see :class:`ViewHosts`."""
        return await self._views.host(name, options)

    async def stop_host(self, name: str) -> bool:
        """Take a view down."""
        return await self._views.stop(name)

    async def close(self) -> None:
        """Stop the replicas and give their places back. Idempotent, and it takes bounded time."""
        await self._recorder.close()
        await asyncio.gather(*(self._stop(replica) for replica in self._replicas.values()))

    async def _stop(self, replica: _Replica) -> None:
        handle, replica.handle, replica.is_known = replica.handle, None, False
        if handle is not None:
            try:
                async with asyncio.timeout(CLOSE_S):
                    await handle.close.remote()
            except (RayError, TimeoutError):
                pass  # it is killed next, and its guard sees to its children
            ray.kill(handle)
        replica.status = replace(replica.status, state=ReplicaState.STOPPED, stage="")


def _in_short(error: BaseException) -> str:
    """Type and last lines of a message that may be pages long."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith("For further information")]
    return f"{type(error).__name__}: " + " ".join(told[-3:])
