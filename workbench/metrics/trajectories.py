"""Trajectories as tables, and as parquet that keeps every token."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from workbench.errors import ConfigError
from workbench.trajectory import RolloutStatus, Segment, ToolCall, Trajectory, Turn
from workbench.types import FinishReason, VersionSpan

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SCHEMA_VERSION = 1
"""Of the parquet file; grows when a column changes its meaning."""


def trajectory_frame(trajectories: Sequence[Trajectory]) -> pd.DataFrame:
    """One row per rollout, without tokens: what one looks at first."""
    columns = {
        "rollout_id": "string", "group": "string", "index": "int64", "agent": "string",
        "status": "string", "reward": "Float64", "num_turns": "int64", "sampled_tokens": "int64",
        "tool_calls": "int64", "well_formed_calls": "int64", "segments": "int64",
        "prompt_tokens": "int64", "cached_tokens": "int64", "finish_reason": "string",
        "replica_id": "string", "wall_s": "float64", "error": "string",
    }  # fmt: skip
    rows = [_row(trajectory) for trajectory in trajectories]
    return pd.DataFrame(rows, columns=list(columns)).astype(columns)


def _row(trajectory: Trajectory) -> dict[str, object]:
    return {
        "rollout_id": trajectory.rollout_id,
        "group": trajectory.group,
        "index": trajectory.index,
        "agent": trajectory.agent,
        "status": str(trajectory.status),
        "reward": trajectory.reward,
        "num_turns": trajectory.num_turns,
        "sampled_tokens": trajectory.sampled_tokens,
        "tool_calls": len(trajectory.tool_calls),
        "well_formed_calls": sum(call.well_formed for call in trajectory.tool_calls),
        "segments": len(trajectory.segments),
        "prompt_tokens": sum(turn.prompt_tokens for turn in trajectory.turns),
        "cached_tokens": sum(turn.num_cached_tokens or 0 for turn in trajectory.turns),
        "finish_reason": str(trajectory.finish_reason) if trajectory.finish_reason else None,
        "replica_id": trajectory.turns[-1].replica_id if trajectory.turns else None,
        "wall_s": trajectory.wall_s,
        "error": trajectory.error,
    }


_VERSION_KEY = b"rollout_workbench_schema"
_IDS = pa.list_(pa.int64())
_SPAN = pa.struct([(name, pa.int64()) for name in ("version", "start", "end")])
_SEGMENT = pa.struct(
    {
        "prompt_ids": _IDS,
        "response_ids": _IDS,
        "response_mask": _IDS,
        "log_probs": pa.list_(pa.float64()),
        "version_spans": pa.list_(_SPAN),
        "fork_reason": pa.string(),
    }
)
"""A :class:`workbench.trajectory.Segment`, nested."""
_TURN = pa.struct(
    {
        **dict.fromkeys(("segment", "start", "end", "prompt_tokens"), pa.int64()),
        **dict.fromkeys(("num_cached_tokens", "attempts"), pa.int64()),
        **dict.fromkeys(("finish_reason", "replica_id"), pa.string()),
        **dict.fromkeys(("queue_s", "first_token_s", "total_s"), pa.float64()),
    }
)
"""A :class:`workbench.trajectory.Turn`, nested."""


def write_trajectories(path: Path, trajectories: Sequence[Trajectory]) -> None:
    """Write parquet that keeps every token.

    The columns of :func:`trajectory_frame`, and per rollout its ``segments`` (nested tokens, masks,
    log-probabilities, version spans), ``turns``, and as JSON its task, messages, tool calls and
    reward parts.
    """
    frame = trajectory_frame(trajectories).rename(columns={"segments": "num_segments"})
    table = pa.Table.from_pandas(frame, preserve_index=False)
    nested = {
        "segments": [[asdict(segment) for segment in t.segments] for t in trajectories],
        "turns": [[asdict(turn) for turn in t.turns] for t in trajectories],
        "traceback": [t.traceback for t in trajectories],
        "task_json": [json.dumps(t.task, default=str) for t in trajectories],
        "messages_json": [json.dumps(t.messages, default=str) for t in trajectories],
        "tool_calls_json": [
            json.dumps([asdict(call) for call in t.tool_calls], default=str) for t in trajectories
        ],
        "reward_parts_json": [json.dumps(t.reward_parts) for t in trajectories],
    }
    types = {"segments": pa.list_(_SEGMENT), "turns": pa.list_(_TURN)}
    for name, values in nested.items():
        table = table.append_column(name, pa.array(values, types.get(name, pa.string())))
    schema_version = {_VERSION_KEY: str(SCHEMA_VERSION).encode()}
    pq.write_table(table.replace_schema_metadata(schema_version), path)


def read_trajectories(path: Path) -> list[Trajectory]:
    """What :func:`write_trajectories` wrote, to the token.

    Tasks, messages and arguments come back as JSON has them: what it cannot hold is a text.

    Raises:
        ConfigError: the file is missing, damaged, or was written by something else.
    """
    try:
        table = pq.read_table(path)
        _check_version(table)
        return [_trajectory(row) for row in table.to_pylist()]
    except (OSError, KeyError, TypeError, ValueError, pa.ArrowException) as error:
        problem = f"{str(path)!r} cannot be read: {error}"
        raise ConfigError("path", problem, allowed="what write_trajectories wrote") from error


def _check_version(table: pa.Table) -> None:
    if (table.schema.metadata or {}).get(_VERSION_KEY) != str(SCHEMA_VERSION).encode():
        raise ValueError(f"it has no trajectories of schema version {SCHEMA_VERSION}")


def _trajectory(row: dict[str, Any]) -> Trajectory:
    same = ("rollout_id", "group", "index", "agent", "reward", "error", "traceback", "wall_s")
    return Trajectory(
        **{name: row[name] for name in same},
        status=RolloutStatus(row["status"]),
        task=json.loads(row["task_json"]),
        segments=tuple(_segment(segment) for segment in row["segments"]),
        turns=tuple(
            Turn(**turn | {"finish_reason": FinishReason(turn["finish_reason"])})
            for turn in row["turns"]
        ),
        tool_calls=tuple(ToolCall(**call) for call in json.loads(row["tool_calls_json"])),
        messages=tuple(json.loads(row["messages_json"])),
        reward_parts=json.loads(row["reward_parts_json"]),
    )


def _segment(row: dict[str, Any]) -> Segment:
    spans = tuple(VersionSpan(**span) for span in row["version_spans"])
    return Segment(**row | {"version_spans": spans})
