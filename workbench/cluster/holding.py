"""Where a pool's current weights are, so that a replica that starts finds them on its node."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from typing import TYPE_CHECKING, Any

from ray.exceptions import RayError

from workbench.cluster.ports import our_errors
from workbench.errors import PoolError, WeightsError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from workbench.cluster.node import Nodes, Stamp

GONE = PoolError("a node of the pool is gone; try again once its replicas were replaced")


class Holding:
    """A directory that all nodes read, or a state dict that some of them hold in memory.

    Args:
        nodes: the pool's.
        checks: whether the engines have weights that can be wrong.
    """

    def __init__(self, nodes: Nodes, *, checks: bool) -> None:
        self._nodes = nodes
        self._checks = checks
        self._keys = itertools.count(1)
        self._transfers: dict[int, list[str]] = {}
        """Key → nodes that get the parts."""
        self._directory: str | None = None
        self._stamp: Stamp = ()
        """Of the directory, when it was looked at."""
        self._looked: Stamp = ()
        """Of what was checked last."""
        self._key: int | None = None
        self._holders: dict[str, None] = {}
        """Nodes that have the state dict of that key, in order."""

    # -- coming in --------------------------------------------------------------------------

    def begin(self, node_ids: Iterable[str]) -> int:
        """A state dict is about to come, for these nodes; its key."""
        key = next(self._keys)
        self._transfers[key] = list(dict.fromkeys(node_ids))
        return key

    async def receive(self, key: int, stored: list[Any]) -> None:
        """One part of it. Each node pulls it once. ``stored``: where it is in the object store."""
        nodes = [self._nodes.on(node_id) for node_id in self._transfers.get(key, ())]
        with our_errors(GONE):
            await asyncio.gather(*(node.write.remote(key, *stored) for node in nodes))

    async def discard(self, key: int) -> None:
        """It is not wanted any more. Idempotent."""
        for node_id in self._transfers.pop(key, ()):
            with contextlib.suppress(RayError):
                await self._nodes.on(node_id).forget.remote(key)

    async def check(
        self, source: str | None, key: int | None, node_ids: Iterable[str]
    ) -> dict[str, str]:
        """Node id → where it finds the new weights, which are good there.

        Raises:
            CheckpointError: they are not.
            PoolError: a node is gone.
        """
        nodes = dict.fromkeys(node_ids)
        with our_errors(GONE):
            if key is not None:
                await self._finish(key)
                found = {node_id: await self._bring(key, node_id) for node_id in nodes}
            else:
                found = dict.fromkeys(nodes, source or "")
            if self._checks:  # the values of a state dict were looked at where it came from
                checking = [
                    self._nodes.on(node_id).check.remote(directory, values=key is None)
                    for node_id, directory in found.items()
                ]
                self._looked = (await asyncio.gather(*checking))[0]
        return found

    async def _finish(self, key: int) -> None:
        receivers = self._transfers.get(key, [])
        await asyncio.gather(*(self._nodes.on(n).finish.remote(key) for n in receivers))

    # -- staying ----------------------------------------------------------------------------

    def keep(self, source: str | None, key: int | None) -> None:
        """What was checked last is current from now on."""
        self._directory, self._key = source, key
        self._stamp = self._looked if source and self._checks else ()
        self._holders = dict.fromkeys(self._transfers.pop(key, ())) if key is not None else {}

    async def forget_others(self) -> None:
        """Former weights are of no use to anybody."""
        last = self._key if self._key is not None else next(self._keys)
        for node in self._nodes.all():
            with contextlib.suppress(RayError):
                await node.forget.remote(last, before=True)

    async def directory_on(self, node_id: str) -> str:
        """Where a node finds the current weights; brings them there if it has to.

        Raises:
            WeightsError: nobody has them any more, or they changed since they were checked.
        """
        if self._key is not None:
            return await self._bring(self._key, node_id)
        directory = self._directory or ""
        with our_errors(GONE):
            if self._stamp and await self._nodes.on(node_id).stamp.remote(directory) != self._stamp:
                raise WeightsError(f"{directory} is not any more what it was when it was checked")
        return directory

    async def _bring(self, key: int, node_id: str) -> str:
        node = self._nodes.on(node_id)
        with our_errors(GONE):
            if there := await node.holds.remote(key):
                return str(there)
        holders = self._holders if key == self._key else self._transfers.get(key, ())
        for holder in [name for name in holders if name != node_id]:
            parts: list[Any] = []
            with contextlib.suppress(RayError):
                parts = await self._nodes.on(holder).parts.remote(key)
            if parts:
                with our_errors(GONE):
                    for part in parts:
                        await node.write.remote(key, part)
                    directory = str(await node.finish.remote(key))
                if key == self._key:
                    self._holders[node_id] = None
                return directory
        raise WeightsError("no node has these weights any more")
