"""The server manager: a proxy to a pool whose state lives in the cluster.

It can be thrown away, pickled or made anew without the pool noticing. What ends the pool is
:meth:`close` of the one that created it, or the end of the process that did.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import ray

from workbench.client import LLMServerClient
from workbench.cluster.connection import cluster_address, free_resources, has_gpus
from workbench.cluster.controller import PoolController
from workbench.cluster.joining import NAMESPACE
from workbench.cluster.lookup import find_pool, name_taken, unknown_pool
from workbench.cluster.placement import GIB, Placement, plan
from workbench.cluster.ports import RayBalancer, balancer_errors, our_errors
from workbench.cluster.registry import PoolEntry, Registry
from workbench.cluster.remote import Remote
from workbench.engines.simulated import SimulatedArgs
from workbench.engines.vllm_args import check_engine_args
from workbench.errors import PoolClosedError, PoolError
from workbench.models import check_model
from workbench.routing.policies import make_policy
from workbench.showing import bundle, table
from workbench.types import PoolSnapshot, ReplicaState, ReplicaStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from workbench.cluster.connection import Connection
    from workbench.cluster.host import HostedView
    from workbench.config import PoolConfig
    from workbench.engines.base import EngineLimits
    from workbench.metrics.feed import Feed
    from workbench.metrics.history import HistoryPage
    from workbench.metrics.samples import RolloutSnapshot
    from workbench.trajectory import Trajectory

ClientT = TypeVar("ClientT", bound=LLMServerClient)
OnProgress = Callable[[Sequence[ReplicaStatus]], None]

PROGRESS_S = 0.25
"""How often the replicas are asked for their stage while they start."""

REPLICA_BYTES = int(2.7 * GIB)
"""Host memory of one CPU replica: 2.6 GiB measured with 135M parameters (1 of KV cache, 0.3 of
weights, the rest libraries in two processes). A larger model needs more than is booked for it."""


class LLMServerManager:
    """Life cycle of a pool's replicas, and clients for it."""

    def __init__(
        self,
        controller: Remote,
        config: PoolConfig,
        limits: EngineLimits,
        entry: PoolEntry,
        *,
        attached: bool,
    ) -> None:
        self._controller = controller
        self.config = config
        self.limits = limits
        self.entry = entry
        self.attached = attached
        """Whether it came to a pool that another one owns."""
        self.feed: Feed | None = None
        """Of the object that this is the manager of, where there is one."""
        self._balancer: Remote | None = None
        self._connection: Connection | None = None
        self._closed = False

    @classmethod
    async def create(
        cls, config: PoolConfig, *, on_progress: OnProgress | None = None
    ) -> LLMServerManager:
        """Start a pool in the cluster that this process is in; wait until every replica is ready.

        Raises:
            ConfigError: the configuration is wrong, or the name is taken; nothing was started.
            NoRoomError: the cluster cannot hold it; nothing was started.
            ReplicaStartError: a replica did not come up; nothing is left running.
        """
        check_config(config)
        placement = check_room(config)
        entry = PoolEntry.of_this_process(config.name, config.model, cluster_address())
        actor: Any = ray.remote(PoolController)
        named = actor.options(num_cpus=0, name=config.name, namespace=NAMESPACE)
        try:
            controller = Remote(named.remote(config, placement, entry))
        except ValueError as error:  # Ray's word for a name that is taken
            raise name_taken(config.name) from error
        try:
            Registry().claim(entry)
            limits = await _start(controller, on_progress)
        except BaseException:
            Registry().release(entry)
            controller.kill()
            raise
        return cls(controller, config, limits, entry, attached=False)

    @classmethod
    async def attach(cls, name: str, address: str | None = None) -> LLMServerManager:
        """A proxy to a pool that somebody else owns; joins its cluster, which blocks for a moment.

        Args:
            name: the pool's.
            address: of its Ray cluster; else ``RAY_ADDRESS``, else pools of this machine are meant.

        Raises:
            ConfigError: no such pool; says which there are.
            PoolClosedError: it ended just now.
        """
        found = find_pool(name, address)
        if found is None:
            raise unknown_pool(name, address)
        try:
            manager = await cls.of(found.entry, found.controller)
        except BaseException:
            found.connection.close()
            raise
        manager._connection = found.connection
        return manager

    @classmethod
    async def of(cls, entry: PoolEntry, controller: Any) -> LLMServerManager:
        """A proxy to a pool in the cluster that this process is in; waits while it starts.

        Raises:
            PoolClosedError: it ended just now.
        """
        remote = Remote(controller)
        with our_errors(PoolClosedError(f"the pool {entry.name!r} was closed")):
            config, limits = await remote.ask("describe")
        return cls(remote, config, limits, entry, attached=True)

    def __getstate__(self) -> dict[str, Any]:
        own = {"_connection": None, "feed": None}  # which no other process can have
        return self.__dict__ | own

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{self.config.replicas} replicas"
        attached = ", attached" if self.attached else ""
        return f"LLMServerManager({self.config.name!r}, {self.config.model!r}, {state}{attached})"

    def _repr_html_(self) -> str:
        row = {
            "pool": self.config.name,
            "replicas": self.config.replicas,
            "engine": self.config.engine,
            "policy": str(self.config.routing_rules.policy),
            "owner": f"process {self.entry.pid} on {self.entry.host}",
            "Ray": self.entry.address,
        }
        facts = "closed" if self._closed else "attached" if self.attached else ""
        return table(f"LLMServerManager: {self.config.model}", [row], facts)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return bundle("pool", self, include, exclude)

    async def get_client(
        self, client_cls: type[ClientT] | None = None, **kwargs: Any
    ) -> ClientT | LLMServerClient:
        """A token client; ``client_cls(balancer, **kwargs)`` for a class of one's own."""
        balancer = RayBalancer(await self._ask("balancer"))
        if self.config.deterministic:
            kwargs.setdefault("deterministic", True)
        return (client_cls or LLMServerClient)(balancer, **kwargs)

    async def get_replicas(self) -> dict[str, Any]:
        """Replica id → actor handle, of those that are ready."""
        replicas: dict[str, Any] = await self._ask("handles")
        return replicas

    async def get_balancer(self) -> Any:
        """The balancer actor: :class:`GlobalRequestLoadBalancer` by ``.remote`` calls."""
        return await self._ask("balancer")

    async def ask_balancer(self, method: str, *args: Any) -> Any:
        """Call a method of the balancer.

        Raises:
            BalancerLostError: it cannot be reached just now.
        """
        if self._balancer is None or self._closed:
            self._balancer = Remote(await self.get_balancer())
        with balancer_errors():
            return await self._balancer.ask(method, *args)

    async def set_state(self, replica_id: str, state: ReplicaState) -> None:
        """Drain a replica, pause it, or take it back.

        Raises:
            ConfigError: unknown replica.
        """
        await self._ask("set_state", replica_id, state)

    async def statuses(self) -> list[ReplicaStatus]:
        """Each replica's state."""
        statuses: list[ReplicaStatus] = await self._ask("statuses")
        return statuses

    async def snapshot(self) -> PoolSnapshot:
        """The pool at this moment."""
        snapshot: PoolSnapshot = await self._ask("snapshot")
        return snapshot

    # -- watching ---------------------------------------------------------------------------

    async def read_history(self, cursor: int) -> HistoryPage:
        """What was recorded after ``cursor``; see :class:`workbench.metrics.history.History`."""
        page: HistoryPage = await self._ask("read_history", cursor)
        return page

    async def note_rollouts(
        self, snapshot: RolloutSnapshot, trajectories: Sequence[Trajectory]
    ) -> None:
        """Tell the pool where a batch stands, and what ended in it since it was told last."""
        await self._ask("note_rollouts", snapshot, list(trajectories))

    async def rollouts(self, name: str) -> list[Trajectory]:
        """Of one batch: the last that ended, in that order, as far as they are kept."""
        trajectories: list[Trajectory] = await self._ask("rollouts", name)
        return trajectories

    async def log_tail(self, replica_id: str, lines: int) -> str:
        """The last lines of a replica's log.

        Raises:
            ConfigError: unknown replica.
        """
        return str(await self._ask("log_tail", replica_id, lines))

    async def host(self, name: str, options: Mapping[str, Any]) -> HostedView:
        """Serve a view of the pool from its cluster, where it ends with the pool.

        One that is served with these options already is found again.

        Raises:
            ConfigError: there is no such view, or it refuses the options.
        """
        hosted: HostedView = await self._ask("host", name, dict(options))
        return hosted

    async def stop_host(self, name: str) -> bool:
        """Take a view down, whatever its options; whether it was there."""
        return bool(await self._ask("stop_host", name))

    # -- ending -----------------------------------------------------------------------------

    async def close(self) -> None:
        """Stop the pool, or leave it alone where it is somebody else's. Idempotent."""
        if self._closed:
            return
        if not self.attached:
            try:
                with contextlib.suppress(PoolError):  # it is ended next, whatever it says
                    await self._ask("close")
            finally:
                self._controller.kill()
                Registry().release(self.entry)
                self._closed = True
        self._closed = True
        if self._connection is not None:
            self._connection.close()

    async def _ask(self, method: str, *args: Any) -> Any:
        gone = PoolClosedError(f"the pool {self.config.name!r} was closed")
        if self._closed:
            raise gone
        away = PoolError(f"the pool {self.config.name!r} cannot be reached just now")
        with our_errors(gone, away):
            return await self._controller.ask(method, *args)


def check_config(config: PoolConfig) -> None:
    """Refuse what is wrong whatever the cluster has; needs no cluster.

    Raises:
        ConfigError: names the field and what is allowed.
    """
    make_policy(config.routing_rules.policy, random.Random())
    if config.engine == "simulated":
        fields = SimulatedArgs.__dataclass_fields__
        check_engine_args(config.engine_args, fields, "SimulatedArgs")
    else:
        check_engine_args(config.engine_args)
    check_model(config.model)


def check_room(config: PoolConfig) -> Placement:
    """Where the replicas will go.

    Raises:
        NoRoomError: the cluster cannot hold them.
    """
    if config.engine == "simulated":
        return Placement("cpu", {}, threads=1)
    return plan(
        free_resources(),
        on_gpu=has_gpus(),
        replicas=config.replicas,
        devices=config.devices_per_replica,
        memory_bytes=REPLICA_BYTES,
    )


async def _start(controller: Remote, on_progress: OnProgress | None) -> EngineLimits:
    """Start the pool, showing the replicas' stages meanwhile."""
    gone = PoolClosedError("the pool's controller died while it started")
    with our_errors(gone):
        starting = asyncio.ensure_future(controller.ask("start"))
        while not starting.done():
            await asyncio.wait({starting}, timeout=PROGRESS_S)
            if on_progress:
                on_progress(await controller.ask("statuses"))
        limits: EngineLimits = starting.result()
    return limits
