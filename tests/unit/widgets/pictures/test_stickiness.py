"""Session stickiness: rates weighted by turns, bands of the busiest sessions, moves, why."""

from __future__ import annotations

import math

import numpy as np

from tests.unit.widgets.pictures.scenes import (
    NASTY,
    NOW_S,
    blank_view,
    fact,
    make_block,
    make_move,
    make_view,
    part,
    put,
    replica_names,
    texts,
)
from widgets.pictures.stickiness import stickiness_picture, sticky_rate
from widgets.pictures.text import clock
from workbench.metrics.samples import Activity, SessionTurns


def flow_of(*hot, others=(), count=3, **known):
    turns = tuple(SessionTurns(*item) for item in hot)
    view = make_view(count, recent=Activity(hot=turns, others=tuple(others), **known))
    return part(stickiness_picture(view), "Where the busiest")


def bands(flow):
    return {(flow.left[k.source], flow.right[k.target]): k.value for k in flow.links}


def test_the_rate_over_the_window_counts_each_moment_by_its_turns():
    block = put(make_block(times=4), "sticky_rate", [1.0, 0.0, math.nan, 0.5])
    block = put(block, "turns_per_s", [30.0, 10.0, 99.0, 0.0])
    assert sticky_rate(make_view(block=block)) == 0.75
    quiet = put(block, "turns_per_s", [0.0] * 4)
    assert sticky_rate(make_view(block=quiet)) is None
    assert fact(stickiness_picture(make_view(block=quiet)), "turns that stayed").text == "–"


def test_facts_are_the_balancers_own():
    picture = stickiness_picture(make_view(3))
    assert fact(picture, "sessions").text == "30"
    assert fact(picture, "moves since").text == "30"
    assert fact(picture, "queued").text == "2 turns"
    assert fact(picture, "turns that stayed").label.endswith("last 1 min")
    assert {p.source for p in picture.parts if p.kind == "lines"} == {"books"}
    assert part(picture, "Turns that stayed").unit == "share"
    assert part(picture, "Moves").unit == "moves/s"


def test_bands_go_from_sessions_to_the_replicas_that_they_used():
    flow = flow_of(("a", "replica-1", 9), ("b", "replica-0", 5), ("a", "replica-0", 2))
    assert bands(flow) == {
        ("a", "replica-1"): 9, ("a", "replica-0"): 2, ("b", "replica-0"): 5,
    }  # fmt: skip
    assert flow.right == ("replica-0", "replica-1")
    assert flow.left == ("b", "a"), "a session stands at the height of its replica"
    assert len(flow.colours) == len(flow.right)


def test_everything_else_is_one_band_end_each_and_no_turn_is_lost():
    hot = [(f"s{n}", f"replica-{n % 12}", 50 - n) for n in range(30)]
    flow = flow_of(*hot, others=[("replica-0", 100), ("replica-11", 60)], count=12)
    assert len(flow.left) == 13
    assert flow.left[-1] == "other sessions"
    assert len(flow.right) == 9
    assert flow.right[-1] == "other replicas"
    assert len(flow.colours) == 9
    assert sum(bands(flow).values()) == sum(n for _, _, n in hot) + 160


def test_other_sessions_that_would_hide_the_busiest_are_counted_and_not_drawn():
    flow = flow_of(("a", "replica-1", 9), others=[("replica-0", 9_000), ("replica-1", 1_000)])
    assert bands(flow) == {("a", "replica-1"): 9}
    assert "10,000 turns of other sessions" in flow.note
    alone = flow_of(others=[("replica-0", 9_000)])
    assert bands(alone) == {("other sessions", "replica-0"): 9_000}


def test_events_that_nobody_saw_are_said():
    assert "7 events were not seen" in flow_of(("a", "replica-0", 1), lost=7).note


def test_a_replica_that_is_gone_still_has_its_band():
    assert bands(flow_of(("a", "replica-77", 3))) == {("a", "replica-77"): 3}


def test_moves_come_with_time_target_and_reason_the_last_first():
    moves = tuple(
        make_move(n, f"s{n}", "replica-1", reason="unhealthy", unix_s=NOW_S - 100 + n)
        for n in range(30)
    )
    table = part(stickiness_picture(make_view(recent=Activity(moves=moves))), "Last moves")
    assert table.rows[0] == (clock(NOW_S - 71), "s29", "replica-1", "unhealthy")
    assert len(table.rows) == 20


def test_the_busiest_sessions_are_listed_with_all_their_replicas():
    view = make_view(
        recent=Activity(
            hot=(SessionTurns("a", "replica-1", 9), SessionTurns("b", "replica-0", 8),
                 SessionTurns("a", "replica-0", 2))
        )
    )  # fmt: skip
    table = part(stickiness_picture(view), "Busiest sessions")
    assert table.rows == (("a", "11", "replica-1, replica-0"), ("b", "8", "replica-0"))


def test_sessions_per_replica_are_bars_of_the_fullest_where_there_are_many():
    bars = part(stickiness_picture(make_view(3)), "Sessions pinned")
    assert [(bar.name, bar.value, bar.text) for bar in bars.bars] == [
        (name, 10, "10") for name in replica_names(3)
    ]
    many = part(stickiness_picture(make_view(256)), "Sessions pinned")
    assert len(many.bars) == 24
    assert "24 highest of 256" in many.note


def test_before_the_first_sample():
    picture = stickiness_picture(blank_view())
    assert part(picture, "Where the busiest").links == ()
    assert part(picture, "Last moves").empty
    assert picture.words == "No data on sessions yet."
    picture.to_json()


def test_hostile_session_names_are_shown_as_text():
    moves = (make_move(1, NASTY, "replica-0", reason=NASTY),)
    recent = Activity(hot=(SessionTurns(NASTY, "replica-0", 3),), moves=moves)
    text = texts(stickiness_picture(make_view(recent=recent)))
    assert "\u202e" not in text
    assert "<script>" in text
    assert len(text) < 20_000


def test_the_picture_is_the_same_whatever_order_ties_come_in():
    one = flow_of(("a", "replica-0", 3), ("b", "replica-1", 3), ("c", "replica-2", 3))
    other = flow_of(("c", "replica-2", 3), ("b", "replica-1", 3), ("a", "replica-0", 3))
    assert one == other
    assert np.all([link.value == 3 for link in one.links])
