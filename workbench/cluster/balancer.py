"""The balancer as a Ray actor that restarts by itself."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import ray

from workbench.balancer import BalancerHost, GlobalRequestLoadBalancer
from workbench.cluster.ports import our_errors
from workbench.errors import PoolError

if TYPE_CHECKING:
    from workbench.config import RoutingConfig
    from workbench.routing.messages import Reply
    from workbench.types import EngineFigures, ReplicaState

MAX_CALLS = 10_000
"""Calls at once; each client keeps one long poll."""


class BalancerActor(GlobalRequestLoadBalancer):
    """Becomes a Ray actor in :mod:`workbench.cluster.controller`.

    All its calls run on one event loop, and only :meth:`watch` waits: each is atomic. Every life
    has an epoch of its own, which the controller counts. After a restart the controller says which
    replicas there are; clients say what they hold when they hear of the new epoch.
    """

    def __init__(
        self, controller: Any, rules: RoutingConfig, seed: int, *, asks_engines: bool = False
    ) -> None:
        epoch: int = ray.get(controller.begin_epoch.remote()) if controller else 1
        super().__init__(seed=seed, rules=rules, epoch=epoch, recovering=epoch > 1)
        self._told = 0
        """Number of the last news of the replicas."""
        self._host = BalancerHost(self, _ask, asks_engines=asks_engines)

    async def watch(self, owner: str, cursor: int) -> Reply:
        """See :meth:`BalancerHost.watch`."""
        return await self._host.watch(owner, cursor)

    async def start(self) -> None:
        """Let time pass."""
        self._host.start()

    async def restore(
        self,
        number: int,
        replicas: dict[str, Any],
        states: dict[str, ReplicaState],
        starting: list[str],
    ) -> None:
        """All replicas that there are, the states that somebody wants, and who is about to come.

        One that has another handle than before is another replica. What was said before, by its
        ``number``, changes nothing if it comes late. Lets time pass.
        """
        if number <= self._told:
            return
        self._told = number
        known = self.handles()
        self.remove_servers(name for name in known if known[name] != replicas.get(name))
        known = self.handles()
        self.expect(starting)
        self.add_servers({name: handle for name, handle in replicas.items() if name not in known})
        for replica_id, state in states.items():
            self.set_state(replica_id, state)
        self._host.start()

    async def pid(self) -> int:
        """Of its process."""
        return os.getpid()


async def _ask(replica: Any) -> EngineFigures:
    with our_errors(PoolError("its process is gone"), PoolError("its process cannot be reached")):
        figures: EngineFigures = await replica.probe.remote()
    return figures
