"""Two samples → the figures of the later one: readings of the moment, and rates in between.

Pure. Counters only grow; where one went down, its owner (an engine, the balancer) began anew, and
what happened in between has no value. Nor has what nobody reported: NaN, never zero.
"""

from __future__ import annotations

import math
from operator import sub
from typing import TYPE_CHECKING

import numpy as np

from workbench.metrics.buckets import quantile
from workbench.metrics.columns import POOL_COLUMNS, REPLICA_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from numpy.typing import NDArray

    from workbench.metrics.columns import Column
    from workbench.metrics.samples import Sample
    from workbench.types import EngineFigures, ReplicaLoad, RoutingSnapshot

Figures = dict[str, float]
"""By column; those that are missing have no value."""

LOAD_COUNTERS = ("acquired", "failures")
ENGINE_COUNTERS = (
    "prompt_tokens", "cached_prompt_tokens", "generation_tokens", "num_preempted", "finished",
)  # fmt: skip
BOOKS_COUNTERS = (
    "acquired", "sticky", "first_touch", "moves", "known_prompt_tokens", "predicted_cached_tokens",
)  # fmt: skip


def derive(
    before: Sample | None, after: Sample
) -> tuple[tuple[str, ...], NDArray[np.float32], NDArray[np.float32]]:
    """The figures at ``after``, with rates since ``before``.

    Returns:
        Replica ids, a row of ``REPLICA_COLUMNS`` for each of them, and the row of ``POOL_COLUMNS``.
    """
    if before is not None and before.time_s >= after.time_s:
        before = None
    elapsed_s = after.time_s - before.time_s if before else math.nan
    old = {r.status.replica_id: r for r in before.pool.replicas} if before else {}
    routing, old_routing = after.pool.routing, before.pool.routing if before else None
    if routing and old_routing and routing.epoch != old_routing.epoch:
        old_routing = None
    rows = []
    engines = []
    for replica in after.pool.replicas:
        then = old.get(replica.status.replica_id)
        row = _load(then.load if then and old_routing else None, replica.load, elapsed_s)
        if replica.engine:
            grown = _engine_growth(then.engine if then else None, replica.engine)
            row |= _engine(replica.engine, grown, elapsed_s)
            if grown:
                engines.append(grown)
        rows.append(row)
    pool = _routing(old_routing, routing, elapsed_s) | _engines(engines, elapsed_s)
    ids = tuple(replica.status.replica_id for replica in after.pool.replicas)
    return ids, _table(rows, REPLICA_COLUMNS), _table([pool], POOL_COLUMNS)[0]


def _load(before: ReplicaLoad | None, after: ReplicaLoad | None, elapsed_s: float) -> Figures:
    if after is None:
        return {}
    figures: Figures = {
        "in_flight": after.in_flight,
        "in_flight_tokens": after.in_flight_tokens,
        "sessions": after.sessions,
    }
    if grown := _growth(before, after, LOAD_COUNTERS):
        figures["turns_per_s"] = grown["acquired"] / elapsed_s
        figures["failures_per_s"] = grown["failures"] / elapsed_s
    return figures


def _engine(now: EngineFigures, grown: Mapping[str, Any], elapsed_s: float) -> Figures:
    figures: Figures = {
        "running": now.running,
        "waiting": now.waiting,
        "kv_cache_usage": now.kv_cache_usage,
    }
    if grown:
        figures["prompt_tokens_per_s"] = grown["prompt_tokens"] / elapsed_s
        figures["preemptions_per_s"] = grown["num_preempted"] / elapsed_s
        if "evicted_blocks" in grown:
            figures["evictions_per_s"] = grown["evicted_blocks"] / elapsed_s
        figures |= _shared(grown, elapsed_s)
    return figures


def _shared(grown: Mapping[str, Any], elapsed_s: float) -> Figures:
    """What is said of one engine as of all of them together."""
    figures: Figures = {"generation_tokens_per_s": grown["generation_tokens"] / elapsed_s}
    if asked := grown["prompt_tokens"]:
        figures["prefix_hit_rate"] = grown["cached_prompt_tokens"] / asked
    counts = grown.get("ttft_counts", ())
    p95_s = quantile((), counts, 0.95) if any(counts) else None
    return figures if p95_s is None else figures | {"ttft_p95_s": p95_s}


def _engines(grown: Sequence[Mapping[str, Any]], elapsed_s: float) -> Figures:
    """Of those that reported, together."""
    if not grown:
        return {}
    total: dict[str, Any] = {name: sum(one[name] for one in grown) for name in ENGINE_COUNTERS}
    counts = [one["ttft_counts"] for one in grown if "ttft_counts" in one]
    total["ttft_counts"] = [sum(bucket) for bucket in zip(*counts, strict=True)]
    return _shared(total, elapsed_s)


def _routing(
    before: RoutingSnapshot | None, after: RoutingSnapshot | None, elapsed_s: float
) -> Figures:
    if after is None:
        return {}
    figures: Figures = {
        "sessions": after.sessions,
        "queued": after.queued,
        "clients": after.clients,
    }
    if grown := _growth(before, after, BOOKS_COUNTERS):
        figures["turns_per_s"] = grown["acquired"] / elapsed_s
        figures["moves_per_s"] = grown["moves"] / elapsed_s
        if pinned := grown["acquired"] - grown["first_touch"]:
            figures["sticky_rate"] = grown["sticky"] / pinned
        if known := grown["known_prompt_tokens"]:
            figures["predicted_hit_rate"] = grown["predicted_cached_tokens"] / known
    return figures


def _engine_growth(before: EngineFigures | None, after: EngineFigures) -> dict[str, Any]:
    """Also of the counters that an engine may have or not."""
    grown: dict[str, Any] = _growth(before, after, ENGINE_COUNTERS)
    if before is None or not grown:
        return {}
    evicted, counts = 0, []
    if before.evicted_blocks is not None and after.evicted_blocks is not None:
        grown["evicted_blocks"] = evicted = after.evicted_blocks - before.evicted_blocks
    if before.ttft_counts and after.ttft_counts:
        grown["ttft_counts"] = counts = list(map(sub, after.ttft_counts, before.ttft_counts))
    return {} if min(evicted, *counts, 0) < 0 else grown


def _growth(before: object | None, after: object, names: Sequence[str]) -> dict[str, int]:
    """How far counters went up; empty where one went down, or there is nothing to compare with."""
    if before is None:
        return {}
    grown = {name: getattr(after, name) - getattr(before, name) for name in names}
    return {} if min(grown.values()) < 0 else grown


def _table(rows: Sequence[Figures], columns: Sequence[Column]) -> NDArray[np.float32]:
    names = [column.name for column in columns]
    values = [[row.get(name, math.nan) for name in names] for row in rows]
    return np.array(values, dtype=np.float32).reshape(len(rows), len(names))
