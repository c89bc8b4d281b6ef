"""Getting to a Ray cluster: the one this process is in, the one it is told, or one of its own."""

from __future__ import annotations

import logging
import os
import socket
from typing import TYPE_CHECKING, Any

import ray

from workbench.errors import ConfigError

if TYPE_CHECKING:
    from workbench.cluster.placement import Resources

OBJECT_STORE_BYTES = 512 * 2**20
"""Enough for tokens; a laptop's shared memory is small."""


ANSWER_S = 10.0
"""How long a cluster's head may take to answer."""

_open: list[Connection] = []
"""Connections of this process. One of them is in charge of leaving what was joined here."""


class Connection:
    """This process's place in a cluster.

    Closing ends only what was begun here, and only once nobody else in this process uses it.
    """

    def __init__(self, *, joined: bool) -> None:
        self._in_charge = joined
        _open.append(self)

    def close(self) -> None:
        """Give the place up. Idempotent."""
        if self not in _open:
            return
        _open.remove(self)
        if self._in_charge and _open:
            _open[0]._in_charge = True
        elif self._in_charge:
            ray.shutdown()


def connect(address: str | None = None) -> Connection:
    """Join the cluster at ``address`` or ``RAY_ADDRESS``; without either start Ray here.

    A process that is in a cluster already stays in it.

    Raises:
        ConfigError: no cluster answers at the address.
    """
    address = address or os.environ.get("RAY_ADDRESS")
    if address:
        check_address(address)
    is_new = not ray.is_initialized()
    if is_new:
        _join(address)
    return Connection(joined=is_new)


def check_address(address: str) -> None:
    """Refuse an address at which no cluster answers; Ray itself would go on trying.

    Raises:
        ConfigError: says what is wrong with it.
    """
    if address in {"auto", "local"}:
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ConfigError("address", f"{address!r}", allowed="host:port of a Ray head, or auto")
    try:
        socket.create_connection((host, int(port)), timeout=ANSWER_S).close()
    except OSError as error:
        raise ConfigError("address", f"nothing answers at {address!r}: {error}") from error


def _join(address: str | None) -> None:
    # Replicas write logs of their own; what Ray's workers say adds nothing to a cell.
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address:
        ray.init(address=address, **quiet)
        return
    ray.init(
        address="local",  # not one that somebody once started here
        include_dashboard=False,
        _node_ip_address="127.0.0.1",  # a pool of this machine alone serves nobody else
        object_store_memory=OBJECT_STORE_BYTES,
        **quiet,
    )


def free_resources() -> list[Resources]:
    """What is free on each live node."""
    untyped: Any = ray
    free = untyped._private.state.available_resources_per_node()
    alive = [node["NodeID"] for node in untyped.nodes() if node["Alive"]]
    return [free.get(node_id, {}) for node_id in alive]


def has_gpus() -> bool:
    """Whether the cluster has a GPU, free or not."""
    untyped: Any = ray
    return bool(untyped.cluster_resources().get("GPU", 0))
