"""Samples of pools that tests make up."""

from __future__ import annotations

from workbench.metrics.samples import Sample
from workbench.types import (
    EngineFigures,
    PoolSnapshot,
    ReplicaLoad,
    ReplicaSnapshot,
    ReplicaState,
    ReplicaStatus,
    RoutingSnapshot,
)

START_S = 1_764_453_600.0
"""A full minute."""


def a_load(replica_id="replica-0", **figures):
    known = {"in_flight": 0, "peak_in_flight": 9, "sessions": 0, "acquired": 0} | figures
    return ReplicaLoad(replica_id, ReplicaState.READY, **known)


def a_replica(replica_id="replica-0", *, load=None, engine=None):
    """``load`` and ``engine`` by their fields; None for neither."""
    return ReplicaSnapshot(
        ReplicaStatus(replica_id, ReplicaState.READY, ""),
        None if load is None else a_load(replica_id, **load),
        None if engine is None else EngineFigures(**engine),
    )


def a_routing(loads=(), **books):
    known = {"epoch": 1, "sessions": 0, "acquired": 0, "sticky": 0, "first_touch": 0, "moves": 0}
    return RoutingSnapshot(policy="sticky-least-loaded", replicas=tuple(loads), **known | books)


def a_sample(time_s, *replicas, books=None, **known):
    """``books`` by their fields; None where the balancer did not answer."""
    loads = [replica.load for replica in replicas if replica.load]
    routing = None if books is None else a_routing(loads, **books)
    return Sample(time_s, PoolSnapshot("lab", "tiny", "cpu", replicas, routing), **known)
