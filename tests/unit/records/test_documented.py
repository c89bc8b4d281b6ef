"""docs/trajectories.md names everything that a reader meets, and its examples work."""

from __future__ import annotations

import re
from pathlib import Path

from tests.unit.records.made import played
from tests.unit.rollout.test_batch import batch, trajectory
from workbench.records import to_record, trajectory_frame, write_trajectories
from workbench.records.table import SCHEMA
from workbench.trajectory import RolloutStatus, ToolCall

PAGE = (Path(__file__).parents[3] / "docs" / "trajectories.md").read_text()
NAMED = set(re.findall(r"`(\w+)`", PAGE))


def test_every_field_of_a_record_is_documented():
    record = to_record(played(tool_calls=(ToolCall(0, "t", {}, "r", True),)))
    for found in (record, record["segments"][0], record["turns"][0], record["tool_calls"][0]):
        assert not found.keys() - NAMED
    assert not set(SCHEMA.names) - NAMED


def test_every_column_and_tensor_is_documented():
    made = batch(trajectory(([1], [7])))
    assert not set(made.rows.columns) - NAMED
    assert not made.tensors.keys() - NAMED
    assert not set(trajectory_frame([]).columns) - NAMED


def test_the_example_for_pandas_reads_what_was_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bare = {
        "segments": (),
        "turns": (),
        "status": RolloutStatus.FAILED,
        "error": "E",
        "reward": None,
    }
    for ending in ("jsonl", "parquet"):
        write_trajectories(f"run.{ending}", [played(0), played(1, **bare), played(2)])
    (example,) = re.findall(r"```python\n(import json.*?)```", PAGE, re.DOTALL)
    names = {}
    exec(example, names)
    assert names["segments"]["response_ids"].map(list).tolist() == [[7, 5, 8]] * 2
    assert names["rollouts"]["reward"].isna().tolist() == [False, True, False]
