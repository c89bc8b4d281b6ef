"""Ending a pool that nobody here owns, with the Ray head that was started for it."""

from __future__ import annotations

import asyncio

from workbench.cluster.head import stop_head
from workbench.cluster.lookup import find_pool, unknown_pool
from workbench.cluster.manager import LLMServerManager
from workbench.cluster.registry import PoolEntry, Registry
from workbench.errors import PoolError


def end_pool(name: str, address: str | None = None) -> PoolEntry:
    """End the pool of this name, whoever made it; nothing of it is left. Blocks.

    Args:
        name: the pool's.
        address: of its Ray cluster; else ``RAY_ADDRESS``, else pools of this machine are meant.

    Raises:
        ConfigError: no such pool; says which there are.
        PoolError: something of it does not end.
    """
    listed = None if address else Registry().find(name)
    found = None
    try:
        found = find_pool(name, address)
    except PoolError:
        if listed is None or listed.kind != "head":
            raise  # its controller hangs, and it is in a cluster that is not ours to end
    if found is None and listed is None:
        raise unknown_pool(name, address)
    entry = found.entry if found else listed
    assert entry is not None
    if found is not None:
        try:
            asyncio.run(_down(found.entry, found.controller))
        finally:
            found.connection.close()
    if entry.kind == "head":
        stop_head(entry.pid, entry.process_start)
    Registry().release(entry)
    return entry


async def _down(entry: PoolEntry, controller: object) -> None:
    manager = await LLMServerManager.of(entry, controller)
    await manager.down()
