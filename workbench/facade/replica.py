"""One replica from a cell: what it is doing, what we booked on it, what its log says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench.cluster.looking import check_lines
from workbench.errors import ConfigError
from workbench.showing import bundle, percent, table

if TYPE_CHECKING:
    from workbench.facade.reach import Reach
    from workbench.metrics.feed import Feed
    from workbench.types import EngineFigures, ReplicaLoad, ReplicaSnapshot, ReplicaStatus


class Replica:
    """A replica of a pool, looked at anew whenever it is asked."""

    def __init__(self, reach: Reach, replica_id: str) -> None:
        self._reach = reach
        self.replica_id = replica_id

    @property
    def feed(self) -> Feed:
        """The pool's figures over time."""
        return self._reach.feed

    def snapshot(self) -> ReplicaSnapshot:
        """Its three views side by side."""
        pool = self._reach.call(self._reach.manager.snapshot())
        found = {replica.status.replica_id: replica for replica in pool.replicas}
        if self.replica_id not in found:
            raise ConfigError("replica_id", f"{self.replica_id!r}", allowed=sorted(found))
        return found[self.replica_id]

    @property
    def status(self) -> ReplicaStatus:
        """Where it is in its life."""
        return self.snapshot().status

    @property
    def load(self) -> ReplicaLoad | None:
        """What the balancer has booked on it; None before it knows it."""
        return self.snapshot().load

    @property
    def engine(self) -> EngineFigures | None:
        """What its engine reports; None when it does not answer."""
        return self.snapshot().engine

    def log_tail(self, lines: int = 25) -> str:
        """The last lines of its log.

        Raises:
            ConfigError: ``lines`` is no whole number from 1.
            PoolError: its process does not answer.
        """
        check_lines(lines)
        return self._reach.call(self._reach.manager.log_tail(self.replica_id, lines))

    def __repr__(self) -> str:
        seen = self._look()
        if isinstance(seen, str):
            return f"Replica({self.replica_id!r}, {seen})"
        load, engine = seen.load, seen.engine
        booked = f"{load.in_flight} in flight" if load else "not booked"
        told = f"{engine.running} running" if engine else "no figures from its engine"
        return f"Replica({self.replica_id!r}, {seen.status.state}, {booked}, {told})"

    def _repr_html_(self) -> str:
        seen = self._look()
        title = f"Replica: {self.replica_id}"
        return table(title, [], seen) if isinstance(seen, str) else table(title, [_row(seen)])

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return bundle("replica", self, include, exclude)

    def _look(self) -> ReplicaSnapshot | str:
        pool = self._reach.look()
        if isinstance(pool, str):
            return pool
        mine = (r for r in pool.replicas if r.status.replica_id == self.replica_id)
        return next(mine, "not in the pool any more")


def replica_row(replica: ReplicaSnapshot) -> dict[str, object]:
    """A replica in a table: what we booked, and what its engine says."""
    load, engine = replica.load, replica.engine
    return {
        "replica": replica.status.replica_id,
        "state": str(replica.status.state),
        "in flight": load.in_flight if load else None,
        "sessions": load.sessions if load else None,
        "running": engine.running if engine else None,
        "waiting": engine.waiting if engine else None,
        "KV cache": percent(engine.kv_cache_usage if engine else None),
        "prefix hits": percent(engine.prefix_hit_rate if engine else None),
        "tokens sampled": engine.generation_tokens if engine else None,
        "started in s": replica.status.start_s and round(replica.status.start_s, 1),
    }


def _row(replica: ReplicaSnapshot) -> dict[str, object]:
    status = replica.status
    return replica_row(replica) | {
        "node": status.node,
        "process": status.pid,
        "log": status.log_path,
    }
