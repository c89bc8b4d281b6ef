"""Replicas, sessions and events as tables: page by page, whatever a frame lacks."""

from __future__ import annotations

import pandas as pd
import pytest

from tests.unit.widgets.pictures.scenes import (
    NASTY,
    NOW_S,
    blank_view,
    empty_block,
    fact,
    make_move,
    make_replica,
    make_sample,
    make_view,
    part,
    replica_names,
    texts,
)
from widgets.pictures.events import events_picture
from widgets.pictures.replicas import lives_picture, replicas_picture
from widgets.pictures.sessions import sessions_picture
from widgets.pictures.text import clock
from workbench.errors import ConfigError
from workbench.metrics.tables import event_frame, session_frame
from workbench.types import EventKind, ReplicaState, RoutingEvent, SessionInfo


def sessions(count, **known):
    values = {
        "replica_id": "replica-0", "in_flight": 1, "turns": 4, "prompt_tokens": 400,
        "sampled_tokens": 90, "cached_tokens": 300, "moves": 2, "idle_s": 1.25,
    }  # fmt: skip
    return session_frame(
        [SessionInfo(session_id=f"s{n}", **(values | known)) for n in range(count)]
    )


def event(number, kind=EventKind.ACQUIRED, **known):
    values = {"session_id": "s", "replica_id": "replica-0", "owner": "client", "count": 1}
    return RoutingEvent(number, 1.0, kind, **(values | known), unix_s=NOW_S + number)


def rows_of(table):
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


# ---------------------------------------------------------------------------- replicas


def test_a_replica_has_its_books_its_engines_figures_and_its_life():
    replicas = (
        make_replica("replica-10"),
        make_replica("replica-2"),
        make_replica("replica-3", state=ReplicaState.UNHEALTHY, reason="it died", engine=None),
    )
    view = make_view(sample=make_sample(replicas))
    picture = replicas_picture(view)
    work = rows_of(part(picture, "Work"))
    assert [row["replica"] for row in work] == ["replica-3", "replica-2", "replica-10"]
    assert work[0]["running"] == work[0]["KV cache"] == "–"
    assert work[1]["most in flight"] == "6"
    assert work[1]["capacity"] == "no limit"
    assert work[1]["share of turns"] == "25.0%"
    life = rows_of(part(lives_picture(view), "Life"))
    assert life[0]["unusual"] == "it died; no data yet"
    assert (life[0]["log"], life[1]["log"]) == ("/x.log", "")
    assert fact(picture, "unhealthy").tone == "bad"
    assert fact(picture, "without data").text == "1"
    assert picture.words == "3 replicas: 2 ready, 1 unhealthy."


def test_a_replica_that_the_balancer_does_not_know_yet():
    replica = make_replica("replica-0", state=ReplicaState.STARTING, stage="loading", engine=None)
    unknown = type(replica)(replica.status, None, None)
    view = make_view(sample=make_sample((unknown,)), block=empty_block())
    row = rows_of(part(replicas_picture(view), "Work"))[0]
    assert set(row.values()) == {"replica-0", "starting", "–"}


def test_every_one_of_256_replicas_has_a_row():
    view = make_view(256)
    assert len(part(replicas_picture(view), "Work").rows) == 256
    assert len(part(lives_picture(view), "Life").rows) == 256
    for make in (replicas_picture, lives_picture):
        make(blank_view()).to_json()


# ---------------------------------------------------------------------------- sessions


def test_a_page_of_sessions_says_where_it_is():
    picture = sessions_picture(make_view(), sessions(3), start=20)
    assert fact(picture, "on this page").text == "21 to 23 of 30"
    assert rows_of(part(picture, "Sessions"))[0] == {
        "session": "s0", "pinned to": "replica-0", "in flight": "1", "turns": "4",
        "prompt tokens": "400", "sampled tokens": "90", "cached prompt tokens": "300",
        "moves": "2", "cached": "75.0%", "idle (s)": "1.2",
    }  # fmt: skip
    assert picture.words == "Sessions 21 to 23 of 30."


def test_sessions_that_were_found_are_counted_apart_from_those_known():
    picture = sessions_picture(make_view(), sessions(3), start=0, total=3)
    assert fact(picture, "on this page").text == "1 to 3 of 3"
    assert fact(picture, "known").text == "30"


def test_what_a_session_lacks_is_said():
    page = sessions(1, replica_id=None, prompt_tokens=0, cached_tokens=0)
    row = rows_of(part(sessions_picture(make_view(), page), "Sessions"))[0]
    assert row["pinned to"] == "chooses anew"
    assert row["cached"] == "–"


@pytest.mark.parametrize("page", [pd.DataFrame(), session_frame([])])
def test_a_page_without_sessions(page):
    picture = sessions_picture(make_view(), page, start=100)
    assert fact(picture, "on this page").text == "none"
    assert part(picture, "Sessions").rows == ()
    sessions_picture(blank_view(), page).to_json()


def test_no_more_rows_than_a_page_can_hold():
    assert len(part(sessions_picture(make_view(), sessions(5000)), "Sessions").rows) == 200


# ---------------------------------------------------------------------------- events


def test_events_are_the_newest_first_with_their_time_and_reason():
    moved = make_move(2, "s1", "replica-1", reason="load", unix_s=NOW_S + 2)
    page = event_frame([event(1), moved], cursor=2, lost=0)
    picture = events_picture(make_view(), page)
    assert part(picture, "All events").rows == (
        ("2", clock(NOW_S + 2), "moved", "s1", "replica-1", "client", "1", "load"),
        ("1", clock(NOW_S + 1), "acquired", "s", "replica-0", "client", "1", ""),
    )
    assert fact(picture, "moved").text == "1"


def test_events_of_some_kinds():
    page = event_frame(
        [event(1), event(2, EventKind.REPLICA_DOWN), event(3)], cursor=3, lost=4
    )  # fmt: skip
    picture = events_picture(make_view(), page, {"replica_down"})
    table = part(picture, "Events of kind replica_down")
    assert [row[:3] for row in table.rows] == [("2", clock(NOW_S + 2), "replica down")]
    assert fact(picture, "acquired").text == "2"
    assert (fact(picture, "made room").text, fact(picture, "made room").tone) == ("4", "warn")


def test_a_kind_that_there_is_not_is_refused_with_those_that_there_are():
    with pytest.raises(ConfigError, match=r"kinds.*moved"):
        events_picture(make_view(), event_frame([], cursor=0, lost=0), ["mvoed"])


def test_older_events_are_counted_and_not_shown():
    page = event_frame([event(n) for n in range(1, 501)], cursor=500, lost=0)
    table = part(events_picture(make_view(), page), "All events")
    assert (len(table.rows), table.rows[0][0]) == (200, "500")
    assert table.note == "and 300 older"


@pytest.mark.parametrize("page", [pd.DataFrame(), event_frame([], cursor=0, lost=0)])
def test_no_events(page):
    assert part(events_picture(make_view(), page), "All events").empty == "no event yet"
    events_picture(blank_view(), page, ["moved"]).to_json()


def test_hostile_text_in_tables_is_shown_as_text():
    nasty = NASTY.replace("\ud800", "")  # which a frame cannot hold
    page = event_frame([event(1, session_id=nasty, owner=nasty, reason=nasty)], cursor=1, lost=0)
    listed = sessions_picture(make_view(), sessions(1, replica_id=nasty))
    for picture in (events_picture(make_view(), page), listed):
        assert "\u202e" not in texts(picture)
        assert "<script>" in texts(picture)
        assert len(texts(picture)) < 5_000


def test_names_stay_in_natural_order_where_nothing_is_unusual():
    names = replica_names(12)
    replicas = tuple(make_replica(name) for name in reversed(names))
    work = part(replicas_picture(make_view(sample=make_sample(replicas))), "Work")
    assert [row[0] for row in work.rows] == list(names)
