"""A frame has a row per rollout with what one looks at first."""

from __future__ import annotations

from tests.unit.records.made import played
from workbench.records import trajectory_frame
from workbench.trajectory import RolloutStatus, ToolCall


def test_a_frame_has_a_row_per_rollout_with_its_counts():
    calls = (
        ToolCall(0, "add", {}, "2", well_formed=True),
        ToolCall(0, "add", {}, "error: late", well_formed=True, error="late"),
        ToolCall(1, "", {}, "error: no JSON", well_formed=False, error="no JSON"),
    )
    failed = {"status": RolloutStatus.FAILED, "error": "E: half \ud800", "reward": None}
    frame = trajectory_frame(
        [
            played(tool_calls=calls, ended_by="max_turns", attempts=2, notes=("cut", "cut")),
            played(1, segments=(), turns=(), **failed),
        ]
    )
    first, second = frame.to_dict("records")
    assert (first["num_turns"], first["segments"], first["sampled_tokens"]) == (2, 1, 2)
    assert (first["prompt_tokens"], first["cached_tokens"]) == (6, 2)
    assert (first["tool_calls"], first["well_formed_calls"], first["failed_calls"]) == (3, 2, 2)
    assert (first["ended_by"], first["attempts"], first["notes"]) == ("max_turns", 2, 2)
    assert (first["finish_reason"], first["replica_id"]) == ("length", "replica-1")
    assert second["error"] == "E: half \ufffd"
    assert frame["reward"].isna().tolist() == [False, True]


def test_a_frame_of_nothing_has_the_same_columns():
    full, empty = trajectory_frame([played()]), trajectory_frame([])
    assert list(full.columns) == list(empty.columns)
    assert full.dtypes.to_dict() == empty.dtypes.to_dict()
