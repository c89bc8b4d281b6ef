"""The server manager: a proxy to a pool whose state lives in the cluster.

It can be thrown away, pickled or made anew without the pool noticing. What ends the pool is
:meth:`close` of the one that created it, or the end of the process that did.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import ray

from workbench.aio import in_thread
from workbench.cluster import seats
from workbench.cluster.connection import cluster_address, has_gpus
from workbench.cluster.controller import PoolController
from workbench.cluster.joining import NAMESPACE
from workbench.cluster.lookup import find_pool, name_taken, unknown_pool
from workbench.cluster.ports import our_errors
from workbench.cluster.proxy import PoolProxy
from workbench.cluster.registry import PoolEntry, Registry
from workbench.cluster.remote import Remote
from workbench.cluster.room import find_seats
from workbench.engines.simulated import SimulatedArgs
from workbench.engines.vllm_args import check_engine_args
from workbench.errors import PoolClosedError, PoolError
from workbench.models import check_model
from workbench.routing.policies import make_policy
from workbench.showing import bundle, table
from workbench.types import ReplicaStatus

if TYPE_CHECKING:
    from workbench.cluster.connection import Connection
    from workbench.config import PoolConfig
    from workbench.engines.base import EngineLimits
    from workbench.metrics.feed import Feed

OnProgress = Callable[[Sequence[ReplicaStatus]], None]

DIED = "the pool's controller died while it started"

CLOSE_S = 60.0
"""How long a pool may take to end by itself; then its controller is killed, and all with it."""

MAX_CALLS = 1000
"""Calls of a pool at once: of those who look, and of orders that take minutes."""

PROGRESS_S = 0.25
"""How often the replicas are asked for their stage while they start."""


class LLMServerManager(PoolProxy):
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
        super().__init__(controller, config)
        self.limits = limits
        self.entry = entry
        self.attached = attached
        """Whether it came to a pool that another one owns."""
        self.feed: Feed | None = None
        """Of the object that this is the manager of, where there is one."""
        self._connection: Connection | None = None

    @classmethod
    async def create(
        cls,
        config: PoolConfig,
        *,
        entry: PoolEntry | None = None,
        on_progress: OnProgress | None = None,
    ) -> LLMServerManager:
        """Start a pool in the cluster that this process is in; wait until every replica is ready.

        Args:
            config: what it is made from.
            entry: whose end is the pool's; this process's by default.
            on_progress: called with the replicas' states while they start.

        Raises:
            ConfigError: the configuration is wrong, or the name is taken; nothing was started.
            NoRoomError: the cluster cannot hold it; nothing is left running.
            ReplicaStartError: a replica did not come up; nothing is left running.
        """
        check_config(config)
        await find_seats(config, config.replicas)
        entry = entry or PoolEntry.of_process(config.name, config.model, cluster_address())
        controller = _make_controller(config, entry)
        try:
            with our_errors(PoolClosedError(DIED)):
                entry = await controller.ask("owner")
            Registry().claim(entry)
            limits = await _start(controller, on_progress)
        except BaseException:
            Registry().release(entry)
            await _end(controller, config.name)
            raise
        return cls(controller, config, limits, entry, attached=entry.kind != "owned")

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
        state = "closed" if self._closed else self.entry.phrase
        attached = ", attached" if self.attached else ""
        return f"LLMServerManager({self.config.name!r}, {self.config.model!r}, {state}{attached})"

    def _repr_html_(self) -> str:
        row = {
            "pool": self.config.name,
            "engine": self.config.engine,
            "policy": str(self.config.routing_rules.policy),
            "owner": self.entry.phrase,
            "Ray": self.entry.address,
        }
        facts = "closed" if self._closed else "attached" if self.attached else ""
        return table(f"LLMServerManager: {self.config.model}", [row], facts)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return bundle("pool", self, include, exclude)

    # -- ending -----------------------------------------------------------------------------

    async def close(self) -> None:
        """Stop the pool, or leave it alone where it is not this object's. Idempotent."""
        if not self._closed and not self.attached:
            await self.down()
        self._closed = True
        if self._connection is not None:
            self._connection.close()

    async def down(self) -> None:
        """Stop the pool, whoever made it: nothing of it is left in its cluster. Idempotent.

        Those who are attached get :class:`PoolClosedError`. A Ray head that was started for the
        pool is another matter; see :func:`workbench.cluster.ending.end_pool`.
        """
        if self._closed:
            return
        try:
            with contextlib.suppress(PoolError, TimeoutError):  # it is ended next, whatever it says
                async with asyncio.timeout(CLOSE_S):
                    await self._ask("close")
        finally:
            await _end(self._controller, self.config.name)
            Registry().release(self.entry)
            self._closed = True


async def _end(controller: Remote, pool: str) -> None:
    """End the actor, and what Ray keeps of it while the process that made it lives: its places."""
    controller.kill()
    if not controller.gone:
        await in_thread(lambda: seats.release_all(pool))


def _make_controller(config: PoolConfig, entry: PoolEntry) -> Remote:
    """The actor, of the pool's name.

    Raises:
        ConfigError: the name is taken.
    """
    actor: Any = ray.remote(PoolController)
    named = actor.options(
        num_cpus=0,
        name=config.name,
        namespace=NAMESPACE,
        max_concurrency=MAX_CALLS,
        lifetime=None if entry.kind == "owned" else "detached",
    )
    device = "gpu" if has_gpus() and config.engine != "simulated" else "cpu"
    try:
        return Remote(named.remote(config, device, entry))
    except ValueError as error:  # Ray's word for a name that is taken
        raise name_taken(config.name) from error


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


async def _start(controller: Remote, on_progress: OnProgress | None) -> EngineLimits:
    """Start the pool, showing the replicas' stages meanwhile."""
    with our_errors(PoolClosedError(DIED)):
        starting = asyncio.ensure_future(controller.ask("start"))
        while not starting.done():
            await asyncio.wait({starting}, timeout=PROGRESS_S)
            if on_progress:
                on_progress(await controller.ask("statuses"))
        limits: EngineLimits = starting.result()
    return limits
