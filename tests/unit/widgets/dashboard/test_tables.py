"""Sessions page by page, found and sorted; the last events."""

from __future__ import annotations

import pandas as pd
import pytest

from tests.unit.widgets.dashboard.pools import EVIL, MadePool
from widgets.dashboard import tables
from widgets.dashboard.decoding import Decoder
from widgets.dashboard.downloads import as_bytes, links, rollouts
from widgets.dashboard.fields import KINDS, ORDERS, wishes_of
from widgets.dashboard.plots import Painter
from widgets.dashboard.tables import (
    FRESH_S,
    KEPT_EVENTS,
    PORTION,
    EventLog,
    RolloutList,
    SessionList,
    kinds_of,
)
from workbench.types import EventKind


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def ids(page) -> list[str]:
    return page.rows["session_id"].tolist()


def test_pages_in_order_of_arrival_are_read_one_by_one() -> None:
    pool = MadePool(known=100_000)
    page = SessionList(pool.feed, Clock()).page("", "came", 7, 50)
    assert pool.pages == [(350, 50)]
    assert (page.start, page.total, ids(page)[0]) == (350, 100_000, "session-350")


def test_the_last_page_stands_for_all_behind_it() -> None:
    sessions = SessionList(MadePool(known=120).feed, Clock())
    for order in ("came", "turns"):
        page = sessions.page("", order, 10**6, 50)
        assert (page.start, len(page.rows), page.total) == (100, 20, 120)


def test_an_empty_pool_has_an_empty_page() -> None:
    sessions = SessionList(MadePool(known=0).feed, Clock())
    for order in ORDERS:
        for find in ("", "nothing"):
            page = sessions.page(find, order, 3, 50)
            assert (page.start, len(page.rows), page.total) == (0, 0, 0)


@pytest.mark.parametrize(
    ("order", "first"),
    [
        ("turns", "session-0"),
        ("prompt_tokens", "session-119"),
        ("moves", "session-6"),
        ("idle_s", "session-119"),
        ("session_id", EVIL),
    ],
)
def test_sessions_are_sorted(order: str, first: str) -> None:
    page = SessionList(MadePool(known=120).feed, Clock()).page("", order, 0, 50)
    assert ids(page)[0] == first
    assert page.total == 120


@pytest.mark.parametrize(
    ("find", "found"), [("session-11", 11), ("SESSION-119", 1), ("<IMG", 1), (".*", 0), ("", 120)]
)
def test_sessions_are_found_by_a_part_of_their_id(find: str, found: int) -> None:
    page = SessionList(MadePool(known=120).feed, Clock()).page(find, "turns", 0, 50)
    assert page.total == found


def test_all_are_read_in_portions_and_not_again_for_a_while() -> None:
    pool, clock = MadePool(known=PORTION + 1), Clock()
    sessions = SessionList(pool.feed, clock)
    sessions.page("9", "turns", 0, 50)
    sessions.page("8", "moves", 2, 50)
    assert pool.pages == [(0, PORTION), (PORTION, PORTION)]
    clock.now_s += FRESH_S
    sessions.page("9", "turns", 0, 50)
    assert len(pool.pages) == 4


def test_what_takes_long_is_done_seldom() -> None:
    pool, clock = MadePool(known=10), Clock()
    slow_s = 2.0
    ask = pool.feed.sessions

    def slow(start: int, limit: int):
        clock.now_s += slow_s
        return ask(start, limit)

    pool.feed.sessions = slow
    sessions = SessionList(pool.feed, clock)
    sessions.page("9", "turns", 0, 50)
    clock.now_s += 19 * slow_s
    sessions.page("9", "turns", 0, 50)
    assert len(pool.pages) == 1
    clock.now_s += 2 * slow_s
    sessions.page("9", "turns", 0, 50)
    assert len(pool.pages) == 2


def test_rollouts_are_read_when_more_have_ended_and_seldom_where_that_takes_long() -> None:
    pool, clock = MadePool(), Clock()
    asked: list[str] = []
    ask = pool.feed.rollouts

    def slow(name: str):
        asked.append(name)
        clock.now_s += 1.0
        return ask(name)

    pool.feed.rollouts = slow
    rollouts = RolloutList(pool.feed, clock)

    def reads(done: int, after_s: float) -> int:
        """How many batches are read at the next look."""
        clock.now_s += after_s
        pool.step(done=done)
        pool.feed.pull()
        before = len(asked)
        assert len(rollouts.rows()) == 4
        return len(asked) - before

    assert reads(31, 0.0) == 2
    assert reads(31, 1000.0) == 0  # nothing ended
    assert reads(32, 1.0) == 1  # the other batch is as it was
    assert reads(33, 19.0) == 0  # that took a second
    assert reads(33, 2.0) == 1


def test_events_are_read_once() -> None:
    pool = MadePool()
    log = EventLog(pool.feed)
    pool.happen(EventKind.MOVED, "a")
    assert log.rows(())["session_id"].tolist() == ["a"]
    pool.happen(EventKind.MOVED, "b")
    assert log.rows(())["session_id"].tolist() == ["a", "b"]
    assert log.rows(())["session_id"].tolist() == ["a", "b"]


def test_turns_do_not_drive_out_what_changed() -> None:
    pool = MadePool()
    log = EventLog(pool.feed)
    pool.happen(EventKind.MOVED, "a")
    log.rows(())
    pool.happen(EventKind.ACQUIRED, "b", KEPT_EVENTS)
    assert log.rows(())["session_id"].unique().tolist() == ["b"]
    assert log.rows(kinds_of("changes"))["session_id"].tolist() == ["a"]
    assert log.rows(kinds_of("moved"))["session_id"].tolist() == ["a"]
    assert len(log.rows(kinds_of("acquired"))) == KEPT_EVENTS


def test_kinds_are_those_that_there_are() -> None:
    assert kinds_of("all") == ()
    assert "moved" in kinds_of("changes")
    assert "acquired" not in kinds_of("changes")
    assert set(KINDS) == {"changes", "all", *(str(kind) for kind in EventKind)}


@pytest.mark.parametrize(
    ("plot", "values", "wishes"),
    [
        ("load", {"find": "x"}, {}),
        ("sessions", {}, {"find": "", "order": "came", "page": "0"}),
        ("sessions", {"find": EVIL, "order": "turns", "page": "7"},
         {"find": EVIL, "order": "turns", "page": "7"}),
        ("sessions", {"order": "__class__", "page": "-1"},
         {"find": "", "order": "came", "page": "0"}),
        ("sessions", {"page": "٣"}, {"find": "", "order": "came", "page": "0"}),
        ("events", {"kinds": "moved"}, {"kinds": "moved"}),
        ("events", {"kinds": "nonsense"}, {"kinds": "changes"}),
    ],
)  # fmt: skip
def test_wishes_that_make_no_sense_count_as_not_asked(plot, values, wishes) -> None:
    assert dict(wishes_of(plot, values)) == wishes


def test_wishes_have_an_end() -> None:
    assert len(dict(wishes_of("sessions", {"find": "x" * 10**6}))["find"]) == 200


def test_no_text_becomes_a_formula_in_a_spreadsheet() -> None:
    table = pd.DataFrame({"session_id": ["=cmd()", "plain"], "turns": [-1, 2]})
    text = as_bytes(table.astype({"session_id": "string"}), "csv").decode()
    assert text.splitlines()[1:] == ["'=cmd(),-1", "plain,2"]


def test_no_more_rollouts_are_kept_than_a_pool_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = MadePool()
    every = len(RolloutList(pool.feed, lambda: 0.0).rows())
    monkeypatch.setattr(tables, "MAX_ROLLOUTS", every - 3)
    assert len(RolloutList(pool.feed, lambda: 0.0).rows()) == every - 3


def test_the_rollouts_that_are_looked_for_are_those_that_are_taken_away() -> None:
    painter = Painter(MadePool().feed, Decoder(str, str), lambda: 0.0, lambda: 0.0)
    asked = {"status": "done", "sort": "rollout", "page": "7", "length_s": "60"}
    table = rollouts(painter, asked)
    assert table["rollout_id"].tolist() == ["batch-1/task-0", "batch-2/task-0"]
    (link, *_) = links("rollouts", "./", {}, asked)
    assert "status=done&sort=rollout" in link["href"]
