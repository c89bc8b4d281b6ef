"""Trajectories come back from a file as they were, and a file that was cut costs its last line."""

from __future__ import annotations

import json
from dataclasses import replace

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.records.made import played, trajectories
from workbench.errors import ConfigError
from workbench.records import append_trajectory, read_trajectories, write_trajectories
from workbench.trajectory import Segment, ToolCall

both = pytest.mark.parametrize("suffix", ["jsonl", "parquet"])


@both
@settings(max_examples=60, deadline=None)
@given(some=st.lists(trajectories, max_size=3))
def test_what_is_read_equals_what_was_written(tmp_path_factory, suffix, some):
    path = tmp_path_factory.mktemp("played") / f"trajectories.{suffix}"
    write_trajectories(path, some)
    assert read_trajectories(str(path)) == some


@both
def test_texts_of_any_kind_can_be_written(tmp_path, suffix):
    """Models write halves of characters, and separators that some take for the end of a line."""
    odd = "a\ud800b\u2028c\u0085d\ne\x00"
    call = ToolCall(0, odd, {odd: odd}, odd, True, error=odd)
    one = played(rollout_id=odd, task={"prompt": odd}, tool_calls=(call,), notes=(odd,), error=odd)
    path = tmp_path / f"t.{suffix}"
    write_trajectories(path, [one, one])
    for again in read_trajectories(path):
        kept = odd.replace("\ud800", "\ufffd")
        assert (again.rollout_id, again.task["prompt"], again.error) == (kept, kept, kept)
        assert again.tool_calls[0].arguments == {kept: kept}
    if suffix == "jsonl":
        assert len(path.read_text().splitlines()) == 2


@both
def test_numbers_that_are_not_finite_are_kept(tmp_path, suffix):
    endless = float("inf")
    odd = Segment([1], [2, 3], [1, 1], [float("nan"), -endless], ())
    turn = replace(played().turns[0], total_s=endless)
    call = ToolCall(0, "t", {}, "r", True, seconds_s=endless)
    one = played(segments=(odd,), turns=(turn,), tool_calls=(call,), wall_s=endless)
    path = tmp_path / f"t.{suffix}"
    write_trajectories(path, [one])
    (again,) = read_trajectories(path)
    assert str(again.segments[0].log_probs) == "[nan, -inf]"
    assert (again.turns, again.tool_calls, again.wall_s) == ((turn,), (call,), endless)


def test_every_line_stands_alone(tmp_path):
    path = tmp_path / "t.jsonl"
    write_trajectories(path, [played(0), played(1, reward=None)])
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["schema"] for line in lines] == [2, 2]
    frame = pd.read_json(path, lines=True)
    assert frame["rollout_id"].tolist() == ["task-0/0", "task-1/0"]
    assert frame["segments"][0][0]["response_ids"] == [7, 5, 8]


def test_parquet_has_tokens_in_typed_columns_and_says_its_schema(tmp_path):
    path = tmp_path / "t.parquet"
    write_trajectories(path, [played(task={"prompt": "é"})])
    assert pq.read_schema(path).metadata[b"rollout_workbench_schema"] == b"2"
    row = pd.read_parquet(path).iloc[0]
    assert row["segments"][0]["response_mask"].tolist() == [1, 0, 1]
    assert row["turns"][1]["finish_reason"] == "length"
    assert row["task_json"] == '{"prompt": "é"}'


def test_a_file_of_nothing_has_the_same_columns(tmp_path):
    for name, some in (("full", [played()]), ("empty", [])):
        write_trajectories(tmp_path / f"{name}.parquet", some)
    full, empty = (pq.read_schema(tmp_path / f"{name}.parquet") for name in ("full", "empty"))
    assert full == empty
    assert read_trajectories(tmp_path / "empty.parquet") == []


# -- files that others made, or broke --------------------------------------------------------


def test_files_of_something_else_are_refused(tmp_path):
    pd.DataFrame({"rollout_id": ["a"]}).to_parquet(tmp_path / "other.parquet")
    (tmp_path / "text.parquet").write_text("no parquet")
    (tmp_path / "other.jsonl").write_text('{"a": 1}\n')
    for name in (
        "other.parquet",
        "text.parquet",
        "missing.parquet",
        "missing.jsonl",
        "other.jsonl",
    ):
        with pytest.raises(ConfigError, match="what write_trajectories wrote") as refused:
            read_trajectories(tmp_path / name)
        assert refused.value.field == "path"
        assert name in refused.value.problem


@both
def test_another_version_is_named(tmp_path, suffix, monkeypatch):
    monkeypatch.setattr("workbench.records.schema.SCHEMA_VERSION", 7)
    path = tmp_path / f"t.{suffix}"
    write_trajectories(path, [played()])
    monkeypatch.undo()
    with pytest.raises(ConfigError, match="schema 7, and this is 2"):
        read_trajectories(path)


def test_a_parquet_file_of_another_version_is_refused_before_a_row_is_read(tmp_path):
    path = tmp_path / "t.parquet"
    older = {b"rollout_workbench_schema": b"1"}
    pq.write_table(pa.table({"rollout_id": pa.array([], pa.string())}, metadata=older), path)
    with pytest.raises(ConfigError, match="schema 1, and this is 2"):
        read_trajectories(path)


@pytest.mark.parametrize("line", ["{", "3", '{"schema": 2}', '{"schema": 1}', "\xff", "[" * 5000])
def test_a_damaged_line_is_named(tmp_path, line):
    path = tmp_path / "t.jsonl"
    write_trajectories(path, [played()])
    whole = path.read_bytes()
    path.write_bytes(whole + line.encode("latin-1") + b"\n" + whole)
    for partial in (False, True):
        with pytest.raises(ConfigError, match="line 2: "):
            read_trajectories(path, partial=partial)


@pytest.mark.parametrize("name", ["t.csv", "t", "jsonl"])
def test_a_path_of_another_kind_is_refused_before_anything_is_written(tmp_path, name):
    for call in (
        lambda path: write_trajectories(path, []),
        read_trajectories,
        lambda path: append_trajectory(path, played()),
    ):
        with pytest.raises(ConfigError, match=r"\.jsonl") as refused:
            call(tmp_path / name)
        assert refused.value.field == "path"
    assert list(tmp_path.iterdir()) == []


@both
def test_a_place_that_cannot_be_written_to_is_named(tmp_path, suffix):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be written"):
        write_trajectories(tmp_path / "file" / f"t.{suffix}", [played()])
    with pytest.raises(ConfigError, match="cannot be written"):
        append_trajectory(tmp_path / "none" / "t.jsonl", played())


@both
def test_a_folder_that_is_not_there_is_made(tmp_path, suffix):
    path = tmp_path / "runs" / "monday" / f"t.{suffix}"
    write_trajectories(path, [played()])
    assert len(read_trajectories(path)) == 1


@both
def test_a_file_that_could_not_be_replaced_is_still_there(tmp_path, suffix):
    path = tmp_path / f"t.{suffix}"
    write_trajectories(path, [played()])

    def breaking():
        yield played(1)
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError):
        write_trajectories(path, breaking())
    assert [t.rollout_id for t in read_trajectories(path)] == ["task-0/0"]
    assert list(tmp_path.iterdir()) == [path]


# -- a file that grows ------------------------------------------------------------------------


def test_lines_are_appended_one_by_one(tmp_path):
    path = tmp_path / "t.jsonl"
    for number in range(3):
        append_trajectory(path, played(number))
        assert read_trajectories(path) == [played(n) for n in range(number + 1)]


def test_a_file_that_was_cut_anywhere_gives_what_is_whole_and_can_be_gone_on_with(tmp_path):
    """Every place in the last line; one that lacks nothing but its end is whole."""
    path = tmp_path / "t.jsonl"
    for number in range(2):
        append_trajectory(path, played(number))
    full = path.read_bytes()
    first = full.index(b"\n") + 1
    for size in range(first + 1, len(full)):
        path.write_bytes(full[:size])
        whole = [played(0), played(1)][: 1 + (size == len(full) - 1)]
        assert read_trajectories(path, partial=True) == whole
        if len(whole) == 1:
            with pytest.raises(ConfigError, match="line 2 was cut; partial=True"):
                read_trajectories(path)
        append_trajectory(path, played(2))
        assert read_trajectories(path) == [*whole, played(2)]
