"""Replica load: two sources side by side, absence said, many replicas bounded."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace

import numpy as np

from tests.unit.widgets.pictures.scenes import (
    NASTY,
    NOW_S,
    blank_view,
    fact,
    make_block,
    make_replica,
    make_sample,
    make_view,
    part,
    put,
    replica_names,
    texts,
)
from widgets.pictures.load import load_picture
from widgets.pictures.text import clock
from widgets.theme import replica_style
from workbench.types import EngineFigures, ReplicaState


def rows_of(picture):
    table = part(picture, "Replicas now")
    return {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}


def names_of(lines):
    return [line.name for line in lines.lines]


def test_books_and_engines_stand_side_by_side_under_their_own_names():
    picture = load_picture(make_view(3))
    assert fact(picture, "in flight").text == "12 requests"
    assert fact(picture, "queued").text == "2 turns"
    assert fact(picture, "running").text == "9 requests"
    assert fact(picture, "waiting").text == "3 requests"
    sources = {p.title: (p.source, p.unit) for p in picture.parts if p.kind == "lines"}
    assert sources == {
        "Requests in flight": ("books", "requests"),
        "Prompt tokens in flight": ("books", "tokens"),
        "Running requests": ("engine", "requests"),
        "Waiting requests": ("engine", "requests"),
        "Sampled tokens": ("engine", "tokens/s"),
        "Time to first token, p95": ("engine", "s"),
    }
    assert "12 requests in flight, 2 queued (books)" in picture.words
    assert "9 running, 3 waiting (engines)" in picture.words


def test_each_line_holds_its_own_column_and_looks_like_its_replica():
    values = np.arange(180).reshape(60, 3)
    picture = load_picture(make_view(3, block=put(make_block(), "waiting", values)))
    lines = part(picture, "Waiting").lines
    assert lines[1].values == tuple(range(1, 180, 3))
    assert [(line.name, line.colour, line.dash, line.marker) for line in lines] == [
        (f"replica-{n}", style.colour, style.dash, style.marker)
        for n, style in ((n, replica_style(n)) for n in range(3))
    ]


def test_a_silent_replica_is_a_dash_and_says_since_when():
    replicas = (make_replica("replica-0"), make_replica("replica-1", engine=None))
    heard_s = (("replica-0", NOW_S), ("replica-1", NOW_S - 100))
    picture = load_picture(make_view(2, sample=make_sample(replicas, heard_s=heard_s)))
    row = rows_of(picture)["replica-1"]
    assert row["unusual"] == f"no data since {clock(NOW_S - 100)}"
    assert row["in flight (books)"] == "4"
    assert {row[c] for c in ("running (engine)", "waiting (engine)", "KV cache")} == {"–"}
    assert fact(picture, "running").text == "3 requests (1 of 2 report)"
    assert fact(picture, "running").tone == "warn"
    assert "1 replica without data" in picture.words


def test_a_gap_in_the_engines_figures_stays_a_gap():
    values = np.full((60, 3), 5.0)
    values[20:40, 1] = np.nan
    picture = load_picture(make_view(3, block=put(make_block(), "running", values)))
    assert part(picture, "Running").lines[1].values == (5,) * 20 + (None,) * 20 + (5,) * 20


def test_problems_stand_first_with_their_reason():
    replicas = (
        make_replica("replica-0"),
        make_replica("replica-1", state=ReplicaState.UNHEALTHY, reason="3 requests failed"),
        make_replica(
            "replica-2", state=ReplicaState.STARTING, stage="loading weights", engine=None
        ),
        make_replica("replica-3", state=ReplicaState.DRAINING),
    )
    rows = rows_of(load_picture(make_view(4, sample=make_sample(replicas))))
    assert list(rows) == ["replica-1", "replica-2", "replica-3", "replica-0"]
    assert rows["replica-1"]["unusual"] == "3 requests failed"
    assert rows["replica-2"]["unusual"] == "loading weights"
    assert [rows[name]["state"] for name in rows] == [
        "unhealthy", "starting", "draining", "ready",
    ]  # fmt: skip


def test_the_balancer_knows_first_what_is_wrong_and_the_controller_what_starts():
    ready, starting = make_replica("replica-0"), make_replica("replica-1", engine=None)
    doubted = replace(ready, load=replace(ready.load, state=ReplicaState.UNHEALTHY))
    status = replace(starting.status, state=ReplicaState.STARTING)
    sample = make_sample((doubted, replace(starting, status=status)))
    rows = rows_of(load_picture(make_view(2, sample=sample)))
    assert [rows[f"replica-{n}"]["state"] for n in range(2)] == ["unhealthy", "starting"]


def test_rows_stay_where_they_are_while_load_changes():
    def order(loads):
        replicas = tuple(make_replica(f"replica-{n}", in_flight=k) for n, k in enumerate(loads))
        return list(rows_of(load_picture(make_view(3, sample=make_sample(replicas)))))

    assert order([9, 1, 5]) == order([1, 5, 9]) == ["replica-0", "replica-1", "replica-2"]


def test_eight_replicas_are_all_drawn_without_a_note():
    lines = part(load_picture(make_view(8)), "Requests in flight")
    assert names_of(lines) == [f"replica-{n}" for n in range(8)]
    assert lines.note == ""


def test_of_many_replicas_those_that_stand_out_are_drawn_with_the_range_of_all():
    ids = replica_names(256)
    in_flight = np.full((60, 256), 20.0)
    in_flight[:, [3, 100, 200]] = 60
    in_flight[:, [7, 8, 9]] = 0
    in_flight[:30, 50] = 500  # long ago
    picture = load_picture(make_view(256, block=put(make_block(ids), "in_flight", in_flight)))
    lines = part(picture, "Requests in flight")
    drawn = ["replica-3", "replica-7", "replica-8", "replica-9", "replica-100", "replica-200"]
    assert names_of(lines) == ["highest of all", "median of all", "lowest of all", *drawn]
    assert "6 of 256 replicas" in lines.note
    high, middle, low = (line.values[-1] for line in lines.lines[:3])
    assert (high, middle, low) == (60, 20, 0)
    assert len(part(picture, "Replicas now").rows) == 40
    assert "216 replicas more" in part(picture, "Replicas now").note


def test_the_range_of_all_leaves_out_those_without_a_value():
    ids = replica_names(9)
    values = np.full((60, 9), np.nan)
    values[:, :4] = [[4.0, 1.0, 8.0, 2.0]]
    values[5] = np.nan
    picture = load_picture(make_view(9, block=put(make_block(ids), "running", values)))
    high, middle, low = part(picture, "Running").lines[:3]
    assert (high.values[0], middle.values[0], low.values[0]) == (
        8,
        statistics.median([1, 2, 4, 8]),
        1,
    )
    assert (high.values[5], middle.values[5], low.values[5]) == (None, None, None)


def test_problems_get_a_row_however_idle_they_are():
    replicas = [make_replica(name, in_flight=50) for name in replica_names(256)]
    replicas[250] = make_replica("replica-250", in_flight=0, state=ReplicaState.UNHEALTHY)
    rows = rows_of(load_picture(make_view(256, sample=make_sample(tuple(replicas)))))
    assert next(iter(rows)) == "replica-250"


def test_selected_replicas_are_drawn_instead():
    view = make_view(12, selected=("replica-11", "replica-2", "gone"))
    lines = part(load_picture(view), "Requests in flight")
    assert names_of(lines) == ["replica-2", "replica-11"]
    assert lines.note == "selected: 2 of 12 replicas"


def test_a_replica_that_left_is_drawn_while_the_window_has_it_and_no_longer():
    block = make_block(replica_names(3))
    two = make_sample(tuple(make_replica(name) for name in replica_names(2)))
    lines = part(load_picture(make_view(sample=two, block=block)), "Requests in flight")
    assert names_of(lines) == ["replica-0", "replica-1", "replica-2"]
    block.replicas[:, 2] = np.nan
    lines = part(load_picture(make_view(sample=two, block=block)), "Requests in flight")
    assert names_of(lines) == ["replica-0", "replica-1"]


def test_before_the_first_sample_everything_is_absent_and_nothing_is_zero():
    picture = load_picture(blank_view())
    assert {f.text for p in picture.parts if p.kind == "facts" for f in p.facts} == {"–"}
    assert part(picture, "Replicas now").rows == ()
    assert picture.words == "No replica, no data yet."
    assert picture.status == "no data yet"


def test_an_idle_pool_says_zero_where_zero_was_reported():
    idle = make_replica("replica-0", in_flight=0, engine=EngineFigures())
    picture = load_picture(make_view(1, sample=make_sample((idle,))))
    assert rows_of(picture)["replica-0"]["running (engine)"] == "0"
    assert fact(picture, "running").text == "0 requests"


def test_no_rate_where_nothing_was_asked():
    block = put(make_block(), "ttft_p95_s", np.full(60, math.nan))
    picture = load_picture(make_view(block=block))
    assert fact(picture, "time to first token").text == "–"


def test_hostile_text_is_shown_as_text_and_shortened():
    replica = make_replica("replica-0", state=ReplicaState.UNHEALTHY, reason=NASTY, error=NASTY)
    view = make_view(1, sample=make_sample((replica,)), name=NASTY, error=NASTY)
    text = texts(load_picture(view))
    assert "<script>alert('x')</script>␊[U+202E]" in text
    assert "\u202e" not in text
    assert "\\u001b" not in text
    assert len(text) < 40_000


def test_the_last_data_stay_with_the_reason_why_there_is_no_news():
    picture = load_picture(make_view(error="the controller does not answer"))
    assert picture.error == "the controller does not answer"
    assert picture.status.startswith("no data since ")
    assert fact(picture, "in flight").text == "12 requests"
    assert load_picture(make_view(closed=True)).status.startswith("closed")
