"""What one client holds on one event loop: its leases, and its channels to the replicas."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from workbench.client.channel import Channel
from workbench.client.desk import RETRY_S, LeaseDesk
from workbench.errors import BalancerLostError, PoolClosedError

if TYPE_CHECKING:
    from workbench.client.channel import ReplicaPort
    from workbench.client.desk import BalancerPort
    from workbench.errors import ReplicaError


class Link:
    """See the module. Once closed it stays closed."""

    def __init__(self, balancer: BalancerPort, owner: str) -> None:
        self.owner = owner
        self.loop = asyncio.get_running_loop()
        self.desk = LeaseDesk(balancer, owner, on_void=self._doubt)
        self._balancer = balancer
        self._channels: dict[str, Channel] = {}
        self._doubtful: set[str] = set()
        """Replicas of whose name another one may have come."""
        self._closed = False

    @property
    def busy(self) -> bool:
        """Whether a request is open."""
        return any(channel.busy for channel in self._channels.values())

    async def channel(self, replica_id: str) -> Channel:
        """The channel to a replica.

        Raises:
            ReplicaDiedError: there is none of this name any more.
            PoolClosedError: the pool or the client was closed.
        """
        while replica_id in self._doubtful or replica_id not in self._channels:
            self._doubtful.discard(replica_id)
            port = await self._port(replica_id)
            if self._closed:
                raise PoolClosedError("the client was closed during this call")
            known = self._channels.get(replica_id)
            if known is None or known.port != port:  # what runs on the old one ends there
                self._channels[replica_id] = Channel(port, self.owner)
        return self._channels[replica_id]

    async def _port(self, replica_id: str) -> ReplicaPort:
        while True:
            try:
                return await self._balancer.replica(replica_id)
            except BalancerLostError:
                await asyncio.sleep(RETRY_S)

    def _doubt(self, replica_id: str) -> None:
        self._doubtful |= {replica_id} if replica_id else self._channels.keys()

    async def drop(self, replica_id: str, channel: Channel | None, failure: ReplicaError) -> None:
        """End a channel, unless another call did; its calls go on elsewhere."""
        if channel is not None and self._channels.get(replica_id) is channel:
            del self._channels[replica_id]
            await channel.aclose(failure)

    async def aclose(self) -> None:
        """End the channels and the desk; what is open ends with :class:`PoolClosedError`."""
        self._closed = True
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.aclose(PoolClosedError("the client was closed during this call"))
        await self.desk.aclose()
