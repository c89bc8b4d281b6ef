"""Finding a pool by name: in the cluster that this process is in or is told, or on this machine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError

from workbench.cluster.connection import connect
from workbench.cluster.joining import NAMESPACE
from workbench.cluster.registry import PoolEntry, Registry
from workbench.errors import ConfigError, PoolError

if TYPE_CHECKING:
    from workbench.cluster.connection import Connection

ANSWER_S = 10.0
"""How long a controller may take to say whose it is."""


@dataclass(frozen=True, slots=True)
class Found:
    """A pool that lives, and this process's place in its cluster."""

    entry: PoolEntry
    controller: Any
    connection: Connection


def find_pool(name: str, address: str | None = None) -> Found | None:
    """The living pool of this name; the caller closes the connection. Joins its cluster.

    Without an ``address``, without ``RAY_ADDRESS`` and outside of Ray, pools of this machine's user
    are looked through. Blocks for a moment.

    Raises:
        ConfigError: the address is wrong, or the pool is in another cluster than this process.
    """
    listed = None if address or os.environ.get("RAY_ADDRESS") else Registry().find(name)
    if listed is None and not (address or os.environ.get("RAY_ADDRESS") or ray.is_initialized()):
        return None
    connection = connect(address or (listed.address if listed else None))
    try:
        controller = _controller(name)
        entry = _owner(controller)
    except BaseException:
        connection.close()
        raise
    if controller is None or entry is None:
        connection.close()
        return None
    return Found(entry, controller, connection)


def pools(address: str | None = None) -> list[PoolEntry]:
    """The living pools: of the cluster at ``address`` or ``RAY_ADDRESS``, else of this machine."""
    if not (address or os.environ.get("RAY_ADDRESS")):
        return Registry().entries()
    connection = connect(address)
    try:
        untyped: Any = ray
        named = untyped.util.list_named_actors(all_namespaces=True)
        names = sorted(actor["name"] for actor in named if actor["namespace"] == NAMESPACE)
        return [entry for name in names if (entry := _owner(_controller(name)))]
    finally:
        connection.close()


def unknown_pool(name: str, address: str | None = None) -> ConfigError:
    """What somebody is told who asked for a pool that is not there."""
    there = [entry.name for entry in pools(address)]
    where = f" in the Ray cluster at {address}" if address else ""
    return ConfigError("name", f"no pool {name!r} runs{where}", allowed=there or "there is none")


def name_taken(name: str) -> ConfigError:
    """What somebody is told whose pool cannot have this name in the cluster they are in."""
    entry = _owner(_controller(name))
    return entry.taken() if entry else ConfigError("name", f"{name!r} is just being given up")


def _controller(name: str) -> Any:
    """None where there is none of this name."""
    try:
        return ray.get_actor(name, namespace=NAMESPACE)
    except ValueError:
        return None


def _owner(controller: Any) -> PoolEntry | None:
    """None where the pool is about to end."""
    if controller is None:
        return None
    try:
        entry: PoolEntry = ray.get(controller.owner.remote(), timeout=ANSWER_S)
    except (RayActorError, AttributeError):  # gone, or somebody else's actor in our namespace
        return None
    except GetTimeoutError as error:
        raise PoolError(f"the pool's controller does not answer within {ANSWER_S:g} s") from error
    return entry
