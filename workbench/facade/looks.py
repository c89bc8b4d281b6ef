"""A pool as a notebook shows it, in a line and as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.facade.replica import replica_row
from workbench.showing import table
from workbench.types import ReplicaState

if TYPE_CHECKING:
    from workbench.config import PoolConfig
    from workbench.types import PoolSnapshot


def pool_text(model: str, pool: PoolSnapshot | str, *, attached_to: str = "") -> str:
    """One line; ``pool`` may be words that say why it cannot be seen."""
    attached = f", attached to {attached_to!r}" if attached_to else ""
    if isinstance(pool, str):
        return f"Workbench({model!r}, {pool}{attached})"
    ready = sum(r.status.state is ReplicaState.READY for r in pool.replicas)
    in_flight = f"{pool.routing.in_flight} in flight" if pool.routing else "no books"
    return (
        f"Workbench({model!r}, {ready}/{len(pool.replicas)} replicas ready "
        f"on {pool.device}, {in_flight}{attached})"
    )


def pool_html(config: PoolConfig, pool: PoolSnapshot | str, *, attached: bool) -> str:
    """A row for each replica."""
    title = f"Workbench: {config.model}"
    suffix = ", attached" if attached else ""
    if isinstance(pool, str):
        return table(title, [], f"{config.name}{suffix}, {pool}")
    facts = f"{pool.name}{suffix}, on {pool.device}"
    return table(title, [replica_row(replica) for replica in pool.replicas], facts)
