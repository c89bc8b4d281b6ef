"""Whether a pool fits into the cluster, and where its replicas go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.cluster import seats
from workbench.cluster.connection import has_gpus
from workbench.cluster.placement import GIB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workbench.cluster.placement import Seat
    from workbench.config import PoolConfig

PATIENCE_S = 5.0

REPLICA_BYTES = int(2.7 * GIB)
"""Host memory of one CPU replica: 2.6 GiB measured with 135M parameters (1 of KV cache, 0.3 of
weights, the rest libraries in two processes). A larger model needs more than is booked for it."""


async def find_seats(
    config: PoolConfig, count: int, taken: Sequence[str] = (), patience_s: float = PATIENCE_S
) -> list[Seat]:
    """Places for so many more replicas.

    Args:
        config: the pool's.
        count: replicas to place.
        taken: node ids of those that it has.
        patience_s: how long places may take to come free that somebody is just giving up.

    Raises:
        NoRoomError: the cluster cannot hold them; says what it has.
    """
    is_simulated = config.engine == "simulated"
    return await seats.find_room(
        on_gpu=has_gpus() and not is_simulated,
        replicas=count,
        devices=0 if is_simulated else config.devices_per_replica,
        memory_bytes=0 if is_simulated else REPLICA_BYTES,
        strategy=config.placement,
        oversubscribe=config.oversubscribe,
        taken=taken,
        patience_s=patience_s,
    )
