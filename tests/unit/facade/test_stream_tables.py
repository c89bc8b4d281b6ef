"""A stream as tables: fixed columns, and what is missing is missing."""

from __future__ import annotations

import pytest

from workbench.facade.stream_tables import (
    BATCH_COLUMNS,
    batch_frame,
    batch_summary,
    drop_frame,
    group_frame,
    publish_frame,
    stream_text,
)
from workbench.metrics.streams import DropCount, PublishMark, StreamSnapshot


def snapshot(**fields):
    known = {
        "state": "running", "waits_for": "", "error": "", "version": 3, "pool_version": 3,
        "max_staleness": 1, "window": 16, "running": ((2, 1), (3, 4)), "queued": ((3, 2),),
        "handed": 0, "uncommitted": 0, "begun": 9, "ended": 4, "consumed": 2, "batches": 1,
    }  # fmt: skip
    return StreamSnapshot(**known | fields)


def row(number, **fields):
    known = {
        "number": number, "time_s": float(number), "consumer": "main", "version": 0, "groups": 2,
        "rollouts": 8, "sampled_tokens": 100, "mean_reward": 0.5, "mean_staleness": 0.0,
        "max_staleness": 0, "queue_s": 1.0, "waited_s": 2.0, "committed": True,
    }  # fmt: skip
    return known | fields


def test_tables_without_rows_have_their_columns():
    assert list(batch_frame([]).columns) == list(BATCH_COLUMNS)
    for frame in (group_frame([]), publish_frame(snapshot())):
        assert len(frame) == 0
        assert len(frame.columns) > 5


def test_batches_are_brought_together_as_their_columns_declare():
    rows = [
        row(1, mean_reward=0.0, groups=3, rollouts=24, queue_s=4.0),
        row(2, mean_reward=1.0, groups=1, rollouts=8, queue_s=0.0, max_staleness=2, version=1),
        row(3, mean_reward=None, groups=0, rollouts=0, committed=False),
    ]
    told = batch_summary(batch_frame(rows))
    assert (told["groups"], told["rollouts"], told["committed"]) == (4, 32, 2)
    assert told["mean_reward"] == pytest.approx(0.25)
    assert told["queue_s"] == pytest.approx(3.0)
    assert (told["max_staleness"], told["number"], told["version"]) == (2, 3, 0)


def test_drops_show_how_long_they_were_and_what_they_earned():
    drops = (
        DropCount("too_old", 2, 16, 900, 300, 1.0, 2),
        DropCount("lost", 1, 0, 0, 0, 0.0, 0),
    )
    taken = DropCount("taken", 4, 32, 800, 120, 3.0, 4)
    frame = drop_frame(snapshot(drops=drops, taken=taken)).set_index("cause")
    assert list(frame.index) == ["taken", "too_old", "lost"]
    assert frame.loc["taken", "mean_longest_tokens"] == 30
    assert frame.loc["too_old", "mean_longest_tokens"] == 150
    assert frame.loc["too_old", "mean_reward"] == pytest.approx(0.5)
    assert frame["mean_reward"].isna()["lost"]


def test_a_failed_publish_is_a_row_with_its_error():
    marks = (
        PublishMark(1.0, 1, "keep", 0.5, 1.0),
        PublishMark(2.0, 2, "keep", 0.0, 1.0, "no replica took them", ("replica-0",)),
    )
    frame = publish_frame(snapshot(publishes=marks))
    assert list(frame["error"]) == ["", "no replica took them"]
    assert frame["replaced"][1] == ("replica-0",)


def test_one_line_says_where_it_stands_and_what_it_waits_for():
    assert stream_text("s", snapshot()) == (
        "Stream('s', running, version 3, 5 groups in flight, 2 queued, 2 taken)"
    )
    assert "waits for a publish" in stream_text("s", snapshot(waits_for="a publish"))
    failed = snapshot(state="failed", error="it broke\nTraceback …")
    assert stream_text("s", failed).endswith("2 taken, it broke)")
    assert stream_text("s", "closed") == "Stream('s', closed)"
