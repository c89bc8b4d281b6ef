"""Getting to a Ray cluster: the one this process is in, the one it is told, or one of its own."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ray

if TYPE_CHECKING:
    from workbench.cluster.placement import Resources

OBJECT_STORE_BYTES = 512 * 2**20
"""Enough for tokens; a laptop's shared memory is small."""


@dataclass(frozen=True, slots=True)
class Connection:
    """A connected process. Closing ends only what was begun here."""

    own: bool
    """Whether Ray was started (or joined) by this connection."""

    def close(self) -> None:
        """Leave the cluster; a Ray that was started here ends. Idempotent."""
        if self.own and ray.is_initialized():
            ray.shutdown()


def connect(address: str | None = None) -> Connection:
    """Join the cluster at ``address`` or ``RAY_ADDRESS``; without either start Ray here.

    A process that is in a cluster already stays in it.
    """
    if ray.is_initialized():
        return Connection(own=False)
    address = address or os.environ.get("RAY_ADDRESS")
    if address:
        # Replicas write logs of their own; what Ray's workers say adds nothing to a cell.
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    else:
        ray.init(
            address="local",  # not one that somebody once started here
            include_dashboard=False,
            _node_ip_address="127.0.0.1",  # a pool of this machine alone serves nobody else
            log_to_driver=False,
            logging_level=logging.ERROR,
            object_store_memory=OBJECT_STORE_BYTES,
        )
    return Connection(own=True)


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
