"""A stream as tables and as one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from workbench.metrics.aggregation import Aggregation, Declared, MeanBy, aggregate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workbench.metrics.streams import StreamSnapshot

GROUP_COLUMNS = {
    "position": "Int64", "attempt": "Int64", "state": "string", "start_version": "Int64",
    "oldest_version": "Int64", "staleness": "Int64", "rollouts": "Int64",
    "sampled_tokens": "Int64", "mean_reward": "Float64", "since_s": "Float64",
}  # fmt: skip
BATCH_COLUMNS = {
    "number": "Int64", "time_s": "Float64", "consumer": "string", "version": "Int64",
    "groups": "Int64", "rollouts": "Int64", "sampled_tokens": "Int64", "mean_reward": "Float64",
    "mean_staleness": "Float64", "max_staleness": "Int64", "queue_s": "Float64",
    "waited_s": "Float64", "committed": "boolean",
}  # fmt: skip
BATCH_AGGREGATION: Declared = {
    **dict.fromkeys(("number", "time_s", "consumer", "version"), Aggregation.LAST),
    **dict.fromkeys(("groups", "rollouts", "sampled_tokens", "waited_s"), Aggregation.SUM),
    "committed": Aggregation.SUM,
    "mean_reward": MeanBy("rollouts"),
    "mean_staleness": MeanBy("groups"),
    "max_staleness": Aggregation.MAX,
    "queue_s": MeanBy("groups"),
}
"""How the columns of batches are brought together."""

DROP_COLUMNS = {
    "cause": "string", "groups": "Int64", "rollouts": "Int64", "sampled_tokens": "Int64",
    "mean_longest_tokens": "Float64", "mean_reward": "Float64",
}  # fmt: skip
PUBLISH_COLUMNS = {
    "time_s": "Float64", "version": "Int64", "mode": "string", "stopped_s": "Float64",
    "total_s": "Float64", "error": "string", "replaced": "object",
}  # fmt: skip


def group_frame(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """One row per group that is on its way: ``GROUP_COLUMNS``."""
    return _frame(rows, GROUP_COLUMNS)


def batch_frame(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """One row per batch: ``BATCH_COLUMNS``."""
    return _frame(rows, BATCH_COLUMNS)


def batch_summary(frame: pd.DataFrame) -> pd.Series[Any]:
    """All batches as one, each column as it declares."""
    return aggregate(frame, BATCH_AGGREGATION)


def drop_frame(now: StreamSnapshot) -> pd.DataFrame:
    """One row per cause, and the first of what was handed out: ``DROP_COLUMNS``.

    ``mean_longest_tokens`` and ``mean_reward`` are means over the groups.
    """
    rows = [
        {
            "cause": drop.cause,
            "groups": drop.groups,
            "rollouts": drop.rollouts,
            "sampled_tokens": drop.sampled_tokens,
            "mean_longest_tokens": drop.longest_tokens / drop.groups if drop.groups else None,
            "mean_reward": drop.reward_sum / drop.rewarded if drop.rewarded else None,
        }
        for drop in (now.taken, *now.drops)
    ]
    return _frame(rows, DROP_COLUMNS)


def publish_frame(now: StreamSnapshot) -> pd.DataFrame:
    """One row per publish: ``PUBLISH_COLUMNS``."""
    rows = [{name: getattr(mark, name) for name in PUBLISH_COLUMNS} for mark in now.publishes]
    return _frame(rows, PUBLISH_COLUMNS)


def stream_text(name: str, now: StreamSnapshot | str) -> str:
    """One line."""
    if isinstance(now, str):
        return f"Stream({name!r}, {now})"
    waits = f", waits for {now.waits_for}" if now.waits_for else ""
    open_ = f", {now.uncommitted} not committed" if now.uncommitted else ""
    error = f", {now.error.splitlines()[0]}" if now.error else ""
    return (
        f"Stream({name!r}, {now.state}, version {now.version}, {now.in_flight} groups in flight, "
        f"{now.in_queue} queued, {now.consumed} taken{open_}{waits}{error})"
    )


def _frame(rows: Sequence[dict[str, Any]], columns: dict[str, str]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=list(columns)).astype(columns)
