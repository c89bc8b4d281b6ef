"""A record holds a trajectory to the token and the last bit, and any JSON writer takes it."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings

from tests.unit.records.made import played, trajectories
from workbench.errors import ConfigError
from workbench.records import SCHEMA_VERSION, from_record, to_record
from workbench.records.plain import plain
from workbench.trajectory import Segment, ToolCall, Trajectory, Turn


def strictly(record):
    """What another reader of JSON gets."""

    def refused(constant):
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(json.dumps(record, allow_nan=False), parse_constant=refused)


@settings(max_examples=100, deadline=None)
@given(trajectories)
def test_a_trajectory_comes_back_from_json_as_it_was(one):
    assert from_record(strictly(to_record(one))) == one


def test_a_record_has_every_field_of_what_it_records():
    record = to_record(played(tool_calls=(ToolCall(0, "t", {}, "r", True),)))
    for kind, found in (
        (Trajectory, record),
        (Segment, record["segments"][0]),
        (Turn, record["turns"][0]),
        (ToolCall, record["tool_calls"][0]),
    ):
        assert {field.name for field in dataclasses.fields(kind)} <= found.keys()
    assert (record["schema"], record["num_turns"], record["sampled_tokens"]) == (2, 2, 2)


def test_log_probabilities_and_rewards_may_be_no_finite_numbers():
    odd = [float("nan"), float("inf"), float("-inf")]
    segment = Segment([1], [2, 3, 4], [1, 1, 1], odd, ())
    one = played(segments=(segment,), reward=odd[2], reward_parts={"form": odd[1]})
    record = strictly(to_record(one))
    assert record["segments"][0]["log_probs"] == ["NaN", "Infinity", "-Infinity"]
    again = from_record(record)
    assert math.isnan(again.segments[0].log_probs[0])
    assert again.segments[0].log_probs[1:] == odd[1:]
    assert (again.reward, again.reward_parts) == (odd[2], {"form": odd[1]})


class Shy:
    def __str__(self):
        raise RuntimeError("no")


class Colour(enum.StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ((1, (2,)), [1, [2]]),
        ({1: "a", None: "b", (2,): "c"}, {"1": "a", "None": "b", "(2,)": "c"}),
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (np.array([{"role": "user"}], dtype=object), [{"role": "user"}]),
        (np.array([0.5, np.nan]), [0.5, "NaN"]),
        (np.datetime64("2026-01-02T03:04:05"), "2026-01-02T03:04:05"),
        (np.array(["2026-01-02"], dtype="M8[ns]"), ["2026-01-02T00:00:00.000000000"]),
        (pd.Timestamp("2026-01-02 03:04", tz="UTC"), "2026-01-02T03:04:00+00:00"),
        (datetime.date(2026, 1, 2), "2026-01-02"),
        ([pd.NA, pd.NaT, None], [None, None, None]),
        (float("-inf"), "-Infinity"),
        (Colour.RED, "red"),
        (object, "<class 'object'>"),
        (Shy(), "<Shy>"),
        ("half \ud83d, whole \ud83d\ude00", "half \ufffd, whole \U0001f600"),
        ("ends in half \ud83d", "ends in half \ufffd"),
        ({"\ud800": 1}, {"\ufffd": 1}),
    ],
)
def test_what_json_has_no_form_for_becomes_the_nearest(value, kept):
    assert strictly(plain(value)) == kept
    assert type(plain(value)) is type(kept)
    assert from_record(strictly(to_record(played(extra={"x": value})))).extra == {"x": kept}


def test_values_too_deep_for_readers_of_json_become_a_text():
    deep = []
    for _ in range(900):
        deep = [deep]
    ring = {}
    ring["self"] = ring
    json.dumps(to_record(played(task={"deep": deep, "ring": ring})))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"schema": 1}, "schema 1, and this is 2"),
        ({"status": "fine"}, "'fine'"),
        ({"index": "first"}, "'index' is 'first'"),
        ({"task": "what?"}, "'task' is 'what\\?'"),
        ({"turns": None}, "'turns' is None"),
        ({"segments": [{}]}, "no 'prompt_ids'"),
        ({"reward": "much"}, "much"),
    ],
)
def test_a_record_with_a_wrong_field_is_refused_by_its_name(change, told):
    with pytest.raises(ConfigError, match=told):
        from_record(to_record(played()) | change)


@pytest.mark.parametrize("foreign", [{}, {"rollout_id": "a"}, [], None, 3])
def test_what_is_no_record_is_refused(foreign):
    with pytest.raises(ConfigError, match="is no record"):
        from_record(foreign)


@pytest.mark.parametrize(
    "missing", sorted(to_record(played()).keys() - {"num_turns", "sampled_tokens", "schema"})
)
def test_a_record_that_lacks_a_field_is_refused(missing):
    record = to_record(played())
    del record[missing]
    with pytest.raises(ConfigError, match=f"no '{missing}'"):
        from_record(record)


def test_the_version_is_the_documented_one():
    assert SCHEMA_VERSION == 2
