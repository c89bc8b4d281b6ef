"""The record of a trajectory: a dict that any JSON writer takes, and the way back.

docs/trajectories.md describes every field. A record holds the trajectory to the token; what JSON
has no form for is as :func:`workbench.records.plain.plain` says.

Pure: no I/O, no clock.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from workbench.errors import ConfigError
from workbench.records.plain import number, plain, text
from workbench.trajectory import RolloutStatus, Segment, ToolCall, Trajectory, Turn
from workbench.types import FinishReason, VersionSpan

SCHEMA_VERSION = 2
"""Grows when a field changes its meaning; a reader refuses every other."""

JSON_SUFFIX = "_json"
"""Ends the names of columns that hold a free-form field as JSON text."""


def to_record(trajectory: Trajectory) -> dict[str, Any]:
    """The trajectory as JSON has it, field by field, with the version of the schema."""
    t = trajectory
    return {
        "schema": SCHEMA_VERSION,
        "rollout_id": text(t.rollout_id),
        "group": text(t.group),
        "index": int(t.index),
        "agent": text(t.agent),
        "status": str(t.status),
        "reward": _optional(t.reward),
        "reward_parts": plain(t.reward_parts),
        "ended_by": text(t.ended_by),
        "error": text(t.error),
        "traceback": text(t.traceback),
        "wall_s": number(t.wall_s),
        "attempts": int(t.attempts),
        "num_turns": t.num_turns,
        "sampled_tokens": int(t.sampled_tokens),
        "notes": [text(note) for note in t.notes],
        "tokenizer": text(t.tokenizer),
        "task": plain(t.task),
        "messages": plain(t.messages),
        "tool_calls": [_fields(call) for call in t.tool_calls],
        "turns": [_fields(turn) for turn in t.turns],
        "segments": [_segment_record(segment) for segment in t.segments],
        "extra": plain(t.extra),
    }


def _optional(value: float | None) -> float | str | None:
    return None if value is None else number(value)


def _fields(value: Turn | ToolCall | VersionSpan) -> dict[str, Any]:
    return {field.name: plain(getattr(value, field.name)) for field in fields(value)}


def _segment_record(segment: Segment) -> dict[str, Any]:
    return {
        "prompt_ids": [int(token) for token in segment.prompt_ids],
        "response_ids": [int(token) for token in segment.response_ids],
        "response_mask": [int(mask) for mask in segment.response_mask],
        "log_probs": [number(log_prob) for log_prob in segment.log_probs],
        "version_spans": [_fields(span) for span in segment.version_spans],
        "fork_reason": text(segment.fork_reason),
        "parent": None if segment.parent is None else int(segment.parent),
        "shared_tokens": int(segment.shared_tokens),
    }


def from_record(record: Mapping[str, Any]) -> Trajectory:
    """The trajectory of a record, or of a row whose free-form fields are JSON text.

    Args:
        record: from :func:`to_record`, from a line or a row of a file, from a data set. Fields
            that the schema does not have are passed over.

    Raises:
        ConfigError: it is no record, it is of another version, or a field is missing or wrong;
            names the field.
    """
    try:
        _check_version(record)
        return _trajectory(record)
    except KeyError as error:
        raise _refusal(f"it has no {error.args[0]!r}") from error
    except (TypeError, ValueError) as error:
        raise _refusal(str(error)) from error


def _refusal(problem: str) -> ConfigError:
    return ConfigError("record", problem, allowed="what to_record made")


def _check_version(record: Any) -> None:
    if not isinstance(record, Mapping):
        raise TypeError(f"{record!r:.80} is no record")
    if "schema" not in record:
        raise ValueError("it is no record of a rollout: it has no 'schema'")
    if record["schema"] != SCHEMA_VERSION:
        raise ValueError(f"it is of schema {record['schema']!r}, and this is {SCHEMA_VERSION}")


def _trajectory(record: Mapping[str, Any]) -> Trajectory:
    texts = ("rollout_id", "group", "agent", "error", "traceback", "ended_by", "tokenizer")
    counts = ("index", "attempts")
    reward = record["reward"]
    return Trajectory(
        **{name: _of(str, record, name) for name in texts},
        **{name: _of(int, record, name) for name in counts},
        task=_of(Mapping, record, "task"),
        segments=tuple(_segment(segment) for segment in _of(Iterable, record, "segments")),
        turns=tuple(_turn(turn) for turn in _of(Iterable, record, "turns")),
        tool_calls=tuple(_tool_call(call) for call in _of(Iterable, record, "tool_calls")),
        messages=tuple(_of(Iterable, record, "messages")),
        status=RolloutStatus(record["status"]),
        reward=None if reward is None else float(reward),
        reward_parts=_numbers(_of(Mapping, record, "reward_parts")),
        wall_s=float(record["wall_s"]),
        notes=tuple(_of(Iterable, record, "notes")),
        extra=_of(Mapping, record, "extra"),
    )


def _of(kind: Any, record: Mapping[str, Any], name: str) -> Any:
    """A field of that kind; where it is not there, what its JSON text says."""
    packed = name + JSON_SUFFIX
    value = json.loads(record[packed]) if packed in record else record[name]
    if not isinstance(value, kind) or (kind is Iterable and isinstance(value, str | Mapping)):
        raise TypeError(f"its {name!r} is {value!r:.80}")
    return value


def _numbers(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Parts of a reward; a number that is not finite was written as a text."""
    return {name: float(part) if isinstance(part, str) else part for name, part in parts.items()}


def _segment(row: Mapping[str, Any]) -> Segment:
    return Segment(
        prompt_ids=list(map(int, row["prompt_ids"])),
        response_ids=list(map(int, row["response_ids"])),
        response_mask=list(map(int, row["response_mask"])),
        log_probs=list(map(float, row["log_probs"])),
        version_spans=tuple(VersionSpan(**span) for span in row["version_spans"]),
        fork_reason=_of(str, row, "fork_reason"),
        parent=row["parent"],
        shared_tokens=_of(int, row, "shared_tokens"),
    )


_SECONDS = ("queue_s", "first_token_s", "total_s", "seconds_s")


def _seconds(row: Mapping[str, Any]) -> dict[str, Any]:
    return {n: float(row[n]) for n in _SECONDS if row.get(n) is not None}


def _turn(row: Mapping[str, Any]) -> Turn:
    known = {field.name: row[field.name] for field in fields(Turn)}
    return Turn(**known | _seconds(row) | {"finish_reason": FinishReason(row["finish_reason"])})


def _tool_call(row: Mapping[str, Any]) -> ToolCall:
    names = [field.name for field in fields(ToolCall) if field.name != "arguments"]
    known = {name: row[name] for name in names}
    return ToolCall(**known | _seconds(row), arguments=_of(Mapping, row, "arguments"))
