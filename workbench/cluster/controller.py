"""The controller: the actor that owns a pool.

It starts the balancer and the replicas, so that they live and die with it. What it does is divided
over plain objects: a fleet (starting and stopping), a supervisor (replacing), a rollover (weights),
verbs (everything that a person may tell a replica) and a watch (looking).
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import ray

from workbench.aio import in_thread
from workbench.cluster import seats
from workbench.cluster.balancer import MAX_CALLS as BALANCER_CALLS
from workbench.cluster.balancer import BalancerActor
from workbench.cluster.exporter import Exporter
from workbench.cluster.fleet import CLOSE_S, Fleet
from workbench.cluster.holding import Holding
from workbench.cluster.host import ViewHosts
from workbench.cluster.introduction import Introduction
from workbench.cluster.members import Members
from workbench.cluster.node import Nodes
from workbench.cluster.registry import PoolEntry
from workbench.cluster.replica_verbs import ReplicaVerbs
from workbench.cluster.rollover import Rollover
from workbench.cluster.scaling import Scaling
from workbench.cluster.supervisor import Supervisor
from workbench.cluster.watch import PoolWatch
from workbench.errors import PoolClosedError
from workbench.metrics.recorder import Recorder
from workbench.types import PoolSnapshot, ReplicaState, ReplicaStatus

if TYPE_CHECKING:
    from workbench.cluster.host import HostedView
    from workbench.config import PoolConfig
    from workbench.engines.base import EngineLimits
    from workbench.metrics.history import HistoryPage
    from workbench.metrics.samples import RolloutSnapshot
    from workbench.trajectory import Trajectory
    from workbench.weights import PauseMode, WeightUpdate


class PoolController:
    """Becomes a Ray actor in :mod:`workbench.cluster.manager`; all its methods are async."""

    def __init__(self, config: PoolConfig, device: str, entry: PoolEntry) -> None:
        self._config = config
        if entry.kind == "detached":  # its end is its own
            entry = PoolEntry.of_process(entry.name, entry.model, entry.address, None, entry.kind)
        self._entry = entry
        self._limits: EngineLimits | None = None
        self._ready = asyncio.Event()
        self._closing = False
        self._epoch = 0
        self._restoring: asyncio.Task[None] | None = None
        self._myself = ray.get_runtime_context().current_actor
        self._key = secrets.token_urlsafe(24)
        self._members = Members()
        self._balancer = self._make_balancer()
        self._introduction = Introduction(self._balancer, self._members)
        self._nodes = Nodes(config.name, config.model)
        self._holding = Holding(self._nodes, checks=config.engine != "simulated")
        self._rollover = Rollover(
            self._members, self._holding, self._balancer, config.start_timeout_s
        )
        self._fleet = Fleet(
            config, self._members, self._nodes, self._introduction, self._rollover, self._key
        )
        self._supervisor = Supervisor(config.supervision, self._members, self._fleet)
        self._rollover.on_failure = self._supervisor.mend
        self._scaling = Scaling(
            config, self._members, self._fleet, self._introduction, self._balancer
        )
        self._scaling.take_over = self._supervisor.leave
        self._verbs = ReplicaVerbs(self._members, self._balancer)
        pool = PoolSnapshot(config.name, config.model, device, (), None)
        self._watch = PoolWatch(pool, self._balancer, lambda: self._members, config.sample_s)
        self._recorder = Recorder(self._watch.take, time.monotonic, config.sample_s)
        self._exporter = Exporter(self._recorder, lambda: self._members, config.name, self._key)
        self._views = ViewHosts(entry, self._myself)

    def _make_balancer(self) -> Any:
        actor: Any = ray.remote(BalancerActor)
        options = actor.options(num_cpus=0, max_restarts=-1, max_concurrency=BALANCER_CALLS)
        config = self._config
        return options.remote(
            self._myself, config.routing_rules, config.seed, asks_engines=config.openai_routes
        )

    # -- its own life -----------------------------------------------------------------------

    async def start(self) -> EngineLimits:
        """Start all replicas side by side.

        Raises:
            NoRoomError: the cluster cannot hold them.
            ReplicaStartError: one did not come up; those that did are stopped again.
        """
        try:
            await in_thread(lambda: seats.release_all(self._config.name))  # a former one's
            await self._introduction.tell()
            self._recorder.start()
            await self._exporter.start()
            self._limits = await self._scaling.first()
        except BaseException:
            await self.close()
            raise
        self._supervisor.start()
        self._ready.set()
        return self._limits

    async def owner(self) -> PoolEntry:
        """The pool's name and the process that it ends with; known from the first moment."""
        return self._entry

    async def pid(self) -> int:
        """Of its process."""
        return os.getpid()

    async def describe(self) -> tuple[PoolConfig, EngineLimits]:
        """What it was made from, and what its engines can take; waits while it starts."""
        await self._ready.wait()
        assert self._limits is not None
        return self._config, self._limits

    async def close(self) -> None:
        """Stop the replicas and give their places back. Idempotent, and it takes bounded time."""
        self._closing = True
        await self._supervisor.close()
        await self._recorder.close()
        await self._exporter.close()
        stopping = (self._fleet.take_down(member, ReplicaState.STOPPED) for member in self._members)
        await asyncio.gather(*stopping)
        await self._nodes.close(CLOSE_S)

    # -- the balancer -----------------------------------------------------------------------

    async def balancer(self) -> Any:
        """The balancer actor."""
        return self._balancer

    async def begin_epoch(self) -> int:
        """The balancer begins another life; after the first, it has to be told of the replicas."""
        self._epoch += 1
        if self._epoch > 1:
            self._restoring = asyncio.create_task(self._introduction.tell())
        return self._epoch

    async def set_state(self, replica_id: str, state: ReplicaState) -> None:
        """See :meth:`ReplicaVerbs.set_state`."""
        await self._verbs.set_state(replica_id, state)

    # -- replicas that come and go ----------------------------------------------------------

    async def add_replicas(self, count: int) -> list[str]:
        """See :meth:`Scaling.add`."""
        self._check_open()
        return await self._scaling.add(count)

    async def remove_replicas(self, replica_ids: list[str], *, drain_s: float) -> None:
        """See :meth:`Scaling.remove`."""
        self._check_open()
        await self._scaling.remove(replica_ids, drain_s=drain_s)

    async def scale(self, replicas: int, *, drain_s: float) -> list[str]:
        """See :meth:`Scaling.scale`."""
        self._check_open()
        return await self._scaling.scale(replicas, drain_s=drain_s)

    async def restart(self, replica_id: str, *, drain_s: float) -> None:
        """See :meth:`Scaling.restart`."""
        self._check_open()
        await self._scaling.restart(replica_id, drain_s=drain_s)

    def _check_open(self) -> None:
        if self._closing:
            raise PoolClosedError(f"the pool {self._config.name!r} was closed")

    # -- weights ----------------------------------------------------------------------------

    async def begin_weights(self, version: int | None) -> tuple[int, int]:
        """See :meth:`Rollover.begin`."""
        return self._rollover.begin(version)

    async def receive_weights(self, key: int, stored: list[Any]) -> None:
        """See :meth:`Holding.receive`."""
        await self._holding.receive(key, stored)

    async def discard_weights(self, key: int) -> None:
        """See :meth:`Holding.discard`."""
        await self._holding.discard(key)

    async def update_weights(
        self,
        source: str | None,
        key: int | None,
        version: int | None,
        mode: PauseMode,
        *,
        recompute: bool,
        transfer_s: float,
    ) -> WeightUpdate:
        """See :meth:`Rollover.update`."""
        return await self._rollover.update(
            source, key, version, mode, recompute=recompute, transfer_s=transfer_s
        )

    # -- verbs ------------------------------------------------------------------------------

    async def tell(self, verb: str, *args: Any) -> Any:
        """One of the :class:`ReplicaVerbs`."""
        return await getattr(self._verbs, verb)(*args)

    async def log_tail(self, replica_id: str, lines: int) -> str:
        """The last lines of a replica's log.

        Raises:
            ConfigError: unknown replica.
            PoolError: neither it nor its node answers.
        """
        return await self._fleet.log_tail(self._members.get(replica_id), lines)

    # -- looking ----------------------------------------------------------------------------

    async def statuses(self) -> list[ReplicaStatus]:
        """Each replica with its stage, while the pool starts and later."""
        members = list(self._members)
        stages = await asyncio.gather(*(self._fleet.stage(member) for member in members))
        return [
            replace(member.status, stage=stage)
            for member, stage in zip(members, stages, strict=True)
        ]

    async def handles(self) -> dict[str, Any]:
        """Replica id → actor, of those that serve."""
        return {member.replica_id: member.handle for member in self._members.ready()}

    async def scraped(self) -> tuple[str, str]:
        """Where the pool's own figures are served, and the key for them and the replicas'."""
        return self._exporter.address, self._key

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

    async def host(self, name: str, options: dict[str, Any]) -> HostedView:
        """Serve a view; see :class:`ViewHosts`."""
        return await self._views.host(name, options)

    async def stop_host(self, name: str) -> bool:
        """Take a view down."""
        return await self._views.stop(name)
