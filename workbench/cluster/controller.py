"""The controller: the actor that owns a pool.

It starts the balancer and the replicas, so that they live and die with it, and it knows the state
of each. It dies with the process that made it, and so does everything that it owns.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import ActorUnavailableError, RayError

from workbench.cluster.balancer import MAX_CALLS as BALANCER_CALLS
from workbench.cluster.balancer import BalancerActor
from workbench.cluster.replica import ReplicaActor, ReplicaSpec
from workbench.errors import ReplicaStartError, WorkbenchError
from workbench.types import (
    EngineFigures,
    PoolSnapshot,
    ReplicaLoad,
    ReplicaSnapshot,
    ReplicaState,
    ReplicaStatus,
    RoutingSnapshot,
)

if TYPE_CHECKING:
    from workbench.cluster.placement import Placement
    from workbench.config import PoolConfig
    from workbench.engines.base import EngineLimits

FIGURES_S = 2.0
"""A replica that does not answer within this is shown without figures."""

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
    born_s: float = field(default_factory=time.monotonic)


class PoolController:
    """Becomes a Ray actor in :mod:`workbench.cluster.manager`; all its methods are async."""

    def __init__(self, config: PoolConfig, placement: Placement) -> None:
        self._config = config
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
                await self._balancer.start.remote()
                limits = await asyncio.gather(*(self._start(r) for r in self._replicas.values()))
        except BaseException as error:  # noqa: BLE001 - raised again once all is stopped
            failure = await self._start_failure(error)
            await self.close()
            raise failure from None
        return limits[0]

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
        await self._balancer.add_servers.remote({replica_id: replica.handle})
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
        log = ""
        if replica.handle is not None:
            try:
                async with asyncio.timeout(FIGURES_S):
                    log = await replica.handle.log_tail.remote(LOG_LINES)
            except (RayError, TimeoutError):
                log = f"(its process does not answer; see {replica.status.log_path})"
        return ReplicaStartError(replica.status.replica_id, problem, log_tail=log)

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
            self._restoring = asyncio.create_task(self._restore_balancer())
        return self._epoch

    async def _restore_balancer(self) -> None:
        while True:
            try:
                await self._balancer.restore.remote(await self.handles(), self._wanted)
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
        """Life, books and engine figures, each replica's side by side."""
        routing: RoutingSnapshot = await self._balancer.snapshot.remote()
        loads = {load.replica_id: load for load in routing.replicas}
        replicas = list(self._replicas.values())
        figures = await asyncio.gather(*(self._figures(replica) for replica in replicas))
        return PoolSnapshot(
            name=self._config.name,
            model=self._config.model,
            device=self._placement.device,
            replicas=tuple(
                _side_by_side(r.status, loads.get(r.status.replica_id), engine)
                for r, engine in zip(replicas, figures, strict=True)
            ),
            routing=routing,
        )

    async def _figures(self, replica: _Replica) -> EngineFigures | None:
        if replica.handle is None:
            return None
        try:
            async with asyncio.timeout(FIGURES_S):
                figures: EngineFigures = await replica.handle.figures.remote()
        except (RayError, TimeoutError):
            return None
        return figures

    async def close(self) -> None:
        """Stop the replicas and give their places back. Idempotent, and it takes bounded time."""
        await asyncio.gather(*(self._stop(replica) for replica in self._replicas.values()))

    async def _stop(self, replica: _Replica) -> None:
        handle, replica.handle = replica.handle, None
        if handle is not None:
            try:
                async with asyncio.timeout(CLOSE_S):
                    await handle.close.remote()
            except (RayError, TimeoutError):
                pass  # it is killed next, and its guard sees to its children
            ray.kill(handle)
        replica.status = replace(replica.status, state=ReplicaState.STOPPED, stage="")


def _side_by_side(
    status: ReplicaStatus, load: ReplicaLoad | None, engine: EngineFigures | None
) -> ReplicaSnapshot:
    """One replica's views; whether one that was started takes work is the balancer's to say."""
    if load is not None and status.state is ReplicaState.READY:
        status = replace(status, state=load.state)
    return ReplicaSnapshot(status, load, engine)


def _in_short(error: BaseException) -> str:
    """Type and last lines of a message that may be pages long."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith("For further information")]
    return f"{type(error).__name__}: " + " ".join(told[-3:])
