"""Records as an Arrow table: tokens nested in typed lists, free-form fields as JSON text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from workbench.records.schema import JSON_SUFFIX, SCHEMA_VERSION, from_record, to_record

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from workbench.trajectory import Trajectory

VERSION_KEY = b"rollout_workbench_schema"
"""In the file's metadata, so that its version is known before a row is read."""

FREE_FORM = ("reward_parts", "task", "messages", "extra")
"""Fields whose shape differs from row to row, which a typed column would fill up with nulls."""

_INT, _FLOAT, _TEXT = pa.int64(), pa.float64(), pa.string()
_SEGMENT = pa.struct(
    {
        **dict.fromkeys(("prompt_ids", "response_ids", "response_mask"), pa.list_(_INT)),
        "log_probs": pa.list_(_FLOAT),
        "version_spans": pa.list_(pa.struct(dict.fromkeys(("version", "start", "end"), _INT))),
        "fork_reason": _TEXT,
        **dict.fromkeys(("parent", "shared_tokens"), _INT),
    }
)
_TURN = pa.struct(
    {
        **dict.fromkeys(("segment", "start", "end"), _INT),
        **dict.fromkeys(("finish_reason", "replica_id"), _TEXT),
        **dict.fromkeys(("prompt_tokens", "num_cached_tokens", "attempts"), _INT),
        **dict.fromkeys(("queue_s", "first_token_s", "total_s"), _FLOAT),
        "num_preempted": _INT,
    }
)
_TOOL_CALL = pa.struct(
    {
        "turn": _INT,
        **dict.fromkeys(("name", "arguments_json", "result"), _TEXT),
        "well_formed": pa.bool_(),
        "error": _TEXT,
        "seconds_s": _FLOAT,
        "cut_characters": _INT,
    }
)
SCHEMA = pa.schema(
    {
        "schema": _INT,
        **dict.fromkeys(("rollout_id", "group"), _TEXT),
        "index": _INT,
        **dict.fromkeys(("agent", "status"), _TEXT),
        "reward": _FLOAT,
        **dict.fromkeys(("reward_parts_json", "ended_by", "error", "traceback"), _TEXT),
        "wall_s": _FLOAT,
        **dict.fromkeys(("attempts", "num_turns", "sampled_tokens"), _INT),
        "notes": pa.list_(_TEXT),
        **dict.fromkeys(("tokenizer", "task_json", "messages_json"), _TEXT),
        "tool_calls": pa.list_(_TOOL_CALL),
        "turns": pa.list_(_TURN),
        "segments": pa.list_(_SEGMENT),
        "extra_json": _TEXT,
    },
    {VERSION_KEY: str(SCHEMA_VERSION).encode()},
)
"""A column per field of the record, in its order."""


def to_table(trajectories: Iterable[Trajectory]) -> pa.Table:
    """A row per rollout."""
    return pa.Table.from_pylist([_row(to_record(t)) for t in trajectories], schema=SCHEMA)


def from_table(table: pa.Table) -> list[Trajectory]:
    """What :func:`to_table` made a table of.

    Raises:
        ConfigError: a row is no record; names what is wrong with it.
    """
    return [from_record(row) for row in table.to_pylist()]


def _row(record: dict[str, Any]) -> dict[str, Any]:
    row = _packed(record, FREE_FORM)
    for name in ("reward", "wall_s"):
        row[name] = None if row[name] is None else float(row[name])
    row["tool_calls"] = [_floats(_packed(call, ("arguments",))) for call in row["tool_calls"]]
    row["turns"] = [_floats(turn) for turn in row["turns"]]
    for segment in row["segments"]:
        segment["log_probs"] = list(map(float, segment["log_probs"]))
    return row


def _packed(record: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """The record with some of its fields as JSON text, each where it was."""
    return {
        (name + JSON_SUFFIX if name in names else name): (
            json.dumps(value, ensure_ascii=False, allow_nan=False) if name in names else value
        )
        for name, value in record.items()
    }


def _floats(row: dict[str, Any]) -> dict[str, Any]:
    """With numbers where a record has a text, because JSON lacks that number."""
    return {
        name: float(value) if name.endswith("_s") and value is not None else value
        for name, value in row.items()
    }
