"""Snapshots as tables for people: one row per replica, one per batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Mapping

    from workbench.metrics.samples import RolloutSnapshot
    from workbench.types import PoolSnapshot

REPLICA_COLUMNS = {
    "replica_id": "string", "state": "string", "requests": "Int64", "prompt_tokens": "Int64",
    "cached_tokens": "Int64", "generation_tokens": "Int64", "tokens_per_s": "Float64",
    "peak_in_flight": "Int64", "sessions": "Int64", "kv_cache_usage": "Float64",
}  # fmt: skip
LOAD_COLUMNS = {
    "t_s": "float64", "replica_id": "string", "in_flight": "Int64", "running": "Int64",
    "waiting": "Int64", "kv_cache_usage": "Float64",
}  # fmt: skip


def replica_frame(
    pool: PoolSnapshot, since: PoolSnapshot | None = None, wall_s: float | None = None
) -> pd.DataFrame:
    """One row per replica; figures that nobody reported are missing, not zero.

    Args:
        pool: the pool now.
        since: count from then on instead of from the replicas' start.
        wall_s: the seconds in between; ``tokens_per_s`` is missing without them.
    """
    before = {r.status.replica_id: r for r in since.replicas} if since else {}
    rows = []
    for replica in pool.replicas:
        engine, load = replica.engine, replica.load
        old = before.get(replica.status.replica_id)
        old_engine, old_load = (old.engine, old.load) if old else (None, None)

        def grown(name: str, now: object = engine, then: object = old_engine) -> int | None:
            if now is None:
                return None
            count, before = int(getattr(now, name)), int(getattr(then, name, 0))
            return count - before if count >= before else count  # it was replaced meanwhile

        tokens = grown("generation_tokens")
        rows.append(
            {
                "replica_id": replica.status.replica_id,
                "state": str(replica.status.state),
                "requests": grown("acquired", load, old_load),
                "prompt_tokens": grown("prompt_tokens"),
                "cached_tokens": grown("cached_prompt_tokens"),
                "generation_tokens": tokens,
                "tokens_per_s": tokens / wall_s if tokens is not None and wall_s else None,
                "peak_in_flight": load.peak_in_flight if load else None,
                "sessions": load.sessions if load else None,
                "kv_cache_usage": engine.kv_cache_usage if engine else None,
            }
        )
    return pd.DataFrame(rows, columns=list(REPLICA_COLUMNS)).astype(REPLICA_COLUMNS)


def load_rows(t_s: float, pool: PoolSnapshot) -> list[dict[str, object]]:
    """One row per replica for a history of load: ``LOAD_COLUMNS``."""
    return [
        {
            "t_s": t_s,
            "replica_id": replica.status.replica_id,
            "in_flight": replica.load.in_flight if replica.load else None,
            "running": replica.engine.running if replica.engine else None,
            "waiting": replica.engine.waiting if replica.engine else None,
            "kv_cache_usage": replica.engine.kv_cache_usage if replica.engine else None,
        }
        for replica in pool.replicas
    ]


def load_frame(rows: list[dict[str, object]]) -> pd.DataFrame:
    """A history of load with fixed columns."""
    return pd.DataFrame(rows, columns=list(LOAD_COLUMNS)).astype(LOAD_COLUMNS)


def batch_row(name: str, snapshot: RolloutSnapshot, rollouts: pd.DataFrame) -> Mapping[str, object]:
    """What there is to say of one batch."""
    calls = int(rollouts["tool_calls"].sum())
    called = int((rollouts["well_formed_calls"] > 0).sum())
    uses_tools = snapshot.agent == "tool" or calls > 0
    return {
        "batch": name,
        "agent": snapshot.agent,
        "rollouts": snapshot.total,
        "failed": snapshot.failed,
        "mean_reward": snapshot.mean_reward,
        "mean_turns": float(rollouts["num_turns"].mean()) if len(rollouts) else None,
        "tool_calls": calls if uses_tools else None,
        "well_formed_share": int(rollouts["well_formed_calls"].sum()) / calls if calls else None,
        "rollouts_that_called_share": (
            called / len(rollouts) if uses_tools and len(rollouts) else None
        ),
        "sampled_tokens": snapshot.sampled_tokens,
        "tokens_per_s": snapshot.tokens_per_s,
        "wall_s": snapshot.wall_s,
    }
