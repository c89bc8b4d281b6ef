"""What is read of a feed, in which words its state is said, and which engines are believed."""

from __future__ import annotations

import math
import re

from tests.unit.widgets.pictures.scenes import (
    ENGINE,
    NASTY,
    NOW_S,
    StubFeed,
    blank_view,
    make_block,
    make_replica,
    make_sample,
    make_view,
    put,
    replica_names,
)
from widgets.pictures.text import clock
from widgets.pictures.view import POINTS, look


def test_the_window_ends_with_the_last_sample_and_has_few_points():
    feed = StubFeed(make_sample((make_replica("replica-0"),)), make_block(("replica-0",), 900))
    view = look(feed, now_s=NOW_S + 2, span_s=600)  # type: ignore[arg-type]
    assert view.span_s == (NOW_S - 600, NOW_S)
    assert feed.asked[0] == (NOW_S - 600, NOW_S, POINTS)
    assert 0 < len(view.block) <= POINTS


def test_a_window_of_the_past_leaves_the_present_alone():
    block = put(make_block(times=120), "ttft_p95_s", [1.0] * 119 + [7.0])
    feed = StubFeed(make_sample((make_replica("replica-0"),)), block)
    view = look(feed, now_s=NOW_S, span_s=30, end_s=NOW_S - 60)  # type: ignore[arg-type]
    assert view.span_s == (NOW_S - 90, NOW_S - 60)
    assert view.block.times_s[-1] == NOW_S - 60
    assert view.total("ttft_p95_s") == 7.0


def test_the_state_in_words():
    last = clock(NOW_S)
    assert make_view().status == "live"
    assert make_view(now_s=NOW_S + 9.9).status == "live"
    assert make_view(now_s=NOW_S + 10).status == f"no data since {last}"
    assert make_view(error="the controller does not answer").status == f"no data since {last}"
    assert make_view(closed=True, now_s=NOW_S + 1e6).status == f"closed, last data {last}"
    saved = make_view(closed=True, is_live=False).status
    assert re.fullmatch(rf"saved, last data \d{{4}}-\d\d-\d\d {last}", saved)
    assert blank_view().status == "no data yet"
    assert blank_view(closed=True).status == "closed"


def test_a_clock_that_is_behind_is_no_silence():
    assert make_view(now_s=NOW_S - 3600).status == "live"


def test_an_error_is_kept_beside_the_last_data_in_one_line():
    view = make_view(error=NASTY)
    assert "\n" not in view.error
    assert len(view.error) < 500
    assert view.latest is not None


def test_engines_that_went_quiet_are_missing_and_others_are_not():
    replicas = tuple(make_replica(name) for name in replica_names(3))
    silent = make_replica("replica-3", engine=None)
    heard_s = (("replica-0", NOW_S - 1), ("replica-1", NOW_S - 60))
    view = make_view(4, sample=make_sample((*replicas, silent), heard_s=heard_s))
    assert view.engines() == {"replica-0": ENGINE, "replica-2": ENGINE}


def test_the_present_is_the_last_row_and_not_a_mean():
    block = put(make_block(), "sticky_rate", [0.0] * 59 + [0.75])
    block = put(block, "ttft_p95_s", [[9.0, 9.0, 9.0]] * 59 + [[1.0, math.nan, 3.0]])
    view = make_view(block=block)
    assert view.total("sticky_rate") == 0.75
    assert view.by_replica("ttft_p95_s") == {"replica-0": 1.0, "replica-2": 3.0}


def test_before_the_first_sample_there_is_nothing_and_no_error():
    view = blank_view()
    assert math.isnan(view.total("sticky_rate"))
    assert (view.by_replica("in_flight"), view.engines(), view.replicas) == ({}, {}, ())
