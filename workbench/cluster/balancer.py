"""The balancer as a Ray actor that restarts by itself."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import ray

from workbench.balancer import BalancerHost, GlobalRequestLoadBalancer

if TYPE_CHECKING:
    from workbench.config import RoutingConfig
    from workbench.routing.messages import Reply
    from workbench.types import EngineFigures

MAX_CALLS = 10_000
"""Calls at once; each client keeps one long poll."""


class BalancerActor(GlobalRequestLoadBalancer):
    """Becomes a Ray actor in :mod:`workbench.cluster.controller`.

    All its calls run on one event loop, and only :meth:`watch` waits: each is atomic. Every life
    has an epoch of its own. After a restart it asks the controller for the replicas; clients say
    what they hold when they hear of the new epoch.
    """

    def __init__(self, controller: Any, rules: RoutingConfig, seed: int) -> None:
        again = ray.get_runtime_context().was_current_actor_reconstructed
        super().__init__(seed=seed, rules=rules, epoch=time.time_ns(), recovering=again)
        self._host = BalancerHost(self, _ask)
        if again:
            controller.restore_balancer.remote()

    async def watch(self, owner: str, cursor: int) -> Reply:
        """See :meth:`BalancerHost.watch`."""
        return await self._host.watch(owner, cursor)

    async def start(self) -> None:
        """Let time pass."""
        self._host.start()

    async def restore(self, replicas: dict[str, Any]) -> None:
        """The replicas that a former life knew; those that it knows again are passed over."""
        known = self.get_all_servers()
        self.add_servers({name: handle for name, handle in replicas.items() if name not in known})
        self._host.start()

    async def pid(self) -> int:
        """Of its process."""
        return os.getpid()


async def _ask(replica: Any) -> EngineFigures:
    figures: EngineFigures = await replica.probe.remote()
    return figures
