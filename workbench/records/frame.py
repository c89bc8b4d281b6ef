"""Trajectories as a table to look at: a row per rollout, without tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from workbench.records.plain import text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workbench.trajectory import Trajectory

COLUMNS = {
    "rollout_id": "string", "group": "string", "index": "int64", "agent": "string",
    "status": "string", "reward": "Float64", "ended_by": "string", "attempts": "int64",
    "num_turns": "int64", "sampled_tokens": "int64",
    "tool_calls": "int64", "well_formed_calls": "int64", "failed_calls": "int64",
    "segments": "int64", "prompt_tokens": "int64", "cached_tokens": "int64",
    "finish_reason": "string", "replica_id": "string", "wall_s": "float64", "notes": "int64",
    "error": "string",
}  # fmt: skip
"""Fixed types, so that the frames of many batches go together."""


def trajectory_frame(trajectories: Sequence[Trajectory]) -> pd.DataFrame:
    """One row per rollout: what one looks at first.

    ``tool_calls`` counts all of them, ``failed_calls`` those that were not executed or raised,
    ``notes`` what was done to the rollout that its tokens do not show.
    """
    rows = [_row(trajectory) for trajectory in trajectories]
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)


def _row(trajectory: Trajectory) -> dict[str, object]:
    return {
        "rollout_id": text(trajectory.rollout_id),
        "group": text(trajectory.group),
        "index": trajectory.index,
        "agent": text(trajectory.agent),
        "status": str(trajectory.status),
        "reward": trajectory.reward,
        "ended_by": text(trajectory.ended_by),
        "attempts": trajectory.attempts,
        "num_turns": trajectory.num_turns,
        "sampled_tokens": trajectory.sampled_tokens,
        "tool_calls": len(trajectory.tool_calls),
        "well_formed_calls": sum(call.well_formed for call in trajectory.tool_calls),
        "failed_calls": sum(bool(call.error) for call in trajectory.tool_calls),
        "segments": len(trajectory.segments),
        "prompt_tokens": sum(turn.prompt_tokens for turn in trajectory.turns),
        "cached_tokens": sum(turn.num_cached_tokens or 0 for turn in trajectory.turns),
        "finish_reason": str(trajectory.finish_reason) if trajectory.finish_reason else None,
        "replica_id": trajectory.turns[-1].replica_id if trajectory.turns else None,
        "wall_s": trajectory.wall_s,
        "notes": len(trajectory.notes),
        "error": text(trajectory.error),
    }
