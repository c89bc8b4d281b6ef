"""The server manager: a proxy to a pool whose state lives in the cluster.

It can be thrown away, pickled or made anew without the pool noticing; only :meth:`close` and the
end of the process that created the pool end it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import ray

from workbench.client import LLMServerClient
from workbench.cluster.connection import free_resources, has_gpus
from workbench.cluster.controller import PoolController
from workbench.cluster.placement import GIB, Placement, plan
from workbench.cluster.ports import RayBalancer, balancer_errors, our_errors
from workbench.engines.simulated import SimulatedArgs
from workbench.engines.vllm_args import check_engine_args
from workbench.errors import PoolClosedError, PoolError
from workbench.models import check_model
from workbench.routing.policies import make_policy
from workbench.types import PoolSnapshot, ReplicaState, ReplicaStatus

if TYPE_CHECKING:
    from workbench.config import PoolConfig
    from workbench.engines.base import EngineLimits

ClientT = TypeVar("ClientT", bound=LLMServerClient)
OnProgress = Callable[[Sequence[ReplicaStatus]], None]

PROGRESS_S = 0.25
"""How often the replicas are asked for their stage while they start."""

REPLICA_BYTES = int(2.7 * GIB)
"""Host memory of one CPU replica: 2.6 GiB measured with 135M parameters (1 of KV cache, 0.3 of
weights, the rest libraries in two processes). A larger model needs more than is booked for it."""


class LLMServerManager:
    """Life cycle of a pool's replicas, and clients for it."""

    def __init__(self, controller: Any, config: PoolConfig, limits: EngineLimits) -> None:
        self._controller = controller
        self.config = config
        self.limits = limits
        self._balancer: Any = None
        self._closed = False

    @classmethod
    async def create(
        cls, config: PoolConfig, *, on_progress: OnProgress | None = None
    ) -> LLMServerManager:
        """Start a pool and wait until every replica is ready.

        Raises:
            ConfigError: the configuration is wrong; nothing was started.
            NoRoomError: the cluster cannot hold it; nothing was started.
            ReplicaStartError: a replica did not come up; nothing is left running.
        """
        check_config(config)
        placement = check_room(config)
        actor: Any = ray.remote(PoolController)
        controller = actor.options(num_cpus=0).remote(config, placement)
        try:
            limits = await _start(controller, on_progress)
        except BaseException:
            ray.kill(controller)
            raise
        return cls(controller, config, limits)

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{self.config.replicas} replicas"
        return f"LLMServerManager({self.config.name!r}, {self.config.model!r}, {state})"

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
        if self._balancer is None:
            self._balancer = await self.get_balancer()
        with balancer_errors():
            return await getattr(self._balancer, method).remote(*args)

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

    async def close(self) -> None:
        """Stop the pool. Idempotent."""
        if self._closed:
            return
        try:
            await self._ask("close")
            ray.kill(self._controller)
        except PoolClosedError:
            pass  # it is gone already, which is what was wanted
        self._closed = True

    async def _ask(self, method: str, *args: Any) -> Any:
        gone = PoolClosedError(f"the pool {self.config.name!r} was closed")
        if self._closed:
            raise gone
        away = PoolError(f"the pool {self.config.name!r} cannot be reached just now")
        with our_errors(gone, away):
            return await getattr(self._controller, method).remote(*args)


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


async def _start(controller: Any, on_progress: OnProgress | None) -> EngineLimits:
    """Start the pool, showing the replicas' stages meanwhile."""
    gone = PoolClosedError("the pool's controller died while it started")
    with our_errors(gone):
        starting = asyncio.ensure_future(controller.start.remote())
        while not starting.done():
            await asyncio.wait({starting}, timeout=PROGRESS_S)
            if on_progress:
                on_progress(await controller.statuses.remote())
        limits: EngineLimits = starting.result()
    return limits
