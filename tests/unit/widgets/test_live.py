"""Live widgets without a browser: what they send, when they rest, what goes wrong."""

from __future__ import annotations

import gc
import json
import threading
import weakref

import pytest

from tests.unit.widgets.feeds import WAIT_S, ended, tickers
from tests.unit.widgets.wires import Until, displayed, shown
from widgets import (
    KVCacheUsage,
    ReplicaLoad,
    RolloutProgress,
    SessionStickiness,
    StalenessView,
)
from widgets.live_view import LiveView
from widgets.pictures.picture import Facts, Picture
from widgets.ticker import Ticker
from workbench.errors import ConfigError

POOL_VIEWS = (KVCacheUsage, ReplicaLoad, RolloutProgress, SessionStickiness, StalenessView)

# ---------------------------------------------------------------------------- following


def test_it_follows_its_pool_on_the_tickers_thread(pool):
    view = ReplicaLoad(pool)
    displayed(view)
    news = Until(view, lambda p: "34 requests in flight" in p["words"])
    pool.make(in_flight=17)
    news.wait()
    *_, (picture, thread) = view.comm.pictures()
    assert "34 requests in flight" in picture["words"]
    assert thread == "workbench-ticker"
    view.close()


def test_nothing_is_drawn_or_pulled_before_it_is_displayed(pool):
    pulls = pool.pulls
    view = ReplicaLoad(pool)
    assert (pool.pulls, view.picture, view.comm, tickers()) == (pulls, "", None, [])


def test_what_is_displayed_begins_with_a_picture(pool):
    view = ReplicaLoad(pool)
    displayed(view)
    kind, data, _ = view.comm.sent[0]
    assert kind == "comm_open"
    assert json.loads(data["state"]["picture"])["title"] == "Replica load: lab"
    assert data["state"]["window"] == {"length_s": 300.0}
    view.close()


def test_nothing_is_sent_while_nothing_happens(pool):
    view = ReplicaLoad(pool)
    displayed(view)
    sent, pulls = len(view.comm.sent), pool.pulls
    for _ in range(3):  # who comes anew is told at the end of that round
        told = threading.Event()
        end = Ticker.of(pool).subscribe(told.set)
        assert told.wait(WAIT_S)
        end()
    assert pool.pulls >= pulls + 2
    assert len(view.comm.sent) == sent
    view.close()


def test_its_last_picture_says_that_the_pool_closed(pool):
    view = ReplicaLoad(pool)
    displayed(view)
    last = Until(view, lambda p: p["status"].startswith("closed"))
    pool.closed = True
    last.wait()
    assert ended()
    assert view.comm is not None, "it stays where it is displayed"
    view.close()


def test_a_closed_pool_can_still_be_looked_through(pool):
    pool.closed = True
    view = ReplicaLoad(pool)
    displayed(view)
    assert ended()
    start_s, end_s = pool.latest.time_s - 20, pool.latest.time_s - 10
    zoomed = Until(view, lambda p: p["span_s"] == [start_s, end_s])
    view.set_state({"window": {"start_s": start_s, "end_s": end_s}})
    zoomed.wait()
    view.close()


def test_closing_it_ends_its_thread(pool):
    view = ReplicaLoad(pool)
    displayed(view)
    assert tickers()
    view.close()
    assert ended()
    view.close()


def test_it_can_go_when_nobody_displays_it(pool):
    view = ReplicaLoad(pool)
    view.snapshot()
    reference = weakref.ref(view)
    del view
    gc.collect()
    assert reference() is None


def test_a_ticker_does_not_keep_it(pool):
    view = ReplicaLoad(pool)
    view._follow()
    reference = weakref.ref(view)
    del view
    gc.collect()
    assert reference() is None
    assert ended()


# ---------------------------------------------------------------------------- the browser


def test_a_zoom_is_answered_with_that_span_and_following_with_the_present(pool):
    pool.period_s = 1e4  # nobody waits for its next news
    view = ReplicaLoad(pool, window_s=60)
    displayed(view)
    now_s = pool.latest.time_s
    zoomed = Until(view, lambda p: p["span_s"] == [now_s - 20, now_s - 5])
    view.set_state({"window": {"start_s": now_s - 20, "end_s": now_s - 5}})
    lines = next(part for part in zoomed.wait()["parts"] if part["kind"] == "lines")
    assert lines["times_s"]
    assert all(now_s - 21 <= time <= now_s - 4 for time in lines["times_s"])
    followed = Until(view, lambda p: p["span_s"] == [now_s - 900, now_s])
    view.set_state({"window": {"length_s": 900}})
    followed.wait()
    view.close()


@pytest.mark.parametrize(
    "nonsense",
    [{}, {"length_s": "x"}, {"length_s": -1}, {"length_s": float("nan")}, {"start_s": 5},
     {"start_s": 9, "end_s": 3}, {"length_s": True}],
)  # fmt: skip
def test_a_window_that_makes_no_sense_is_the_last_five_minutes(pool, nonsense):
    view = ReplicaLoad(pool, window_s=60)
    displayed(view)
    now_s = pool.latest.time_s
    answered = Until(view, lambda p: p["span_s"] == [now_s - 300, now_s])
    view.set_state({"window": nonsense})
    assert not answered.wait()["error"]
    view.close()


def test_it_rests_while_no_browser_shows_it(pool):
    view = ReplicaLoad(pool)
    displayed(view)
    view.set_state({"_view_count": 1})
    view.set_state({"_view_count": 0})
    assert ended()
    woken = Until(view, lambda p: "34 requests in flight" in p["words"])
    pool.make(in_flight=17)
    view.set_state({"_view_count": 1})
    woken.wait()
    view.close()


def test_a_click_opens_a_batch_and_an_unknown_one_is_said(pool):
    pool.period_s = 1e4
    view = RolloutProgress(pool)
    displayed(view)
    answered = Until(view, lambda p: "no batch nowhere here" in p["error"])
    view.set_state({"selected": "nowhere"})
    answered.wait()
    view.close()


# ---------------------------------------------------------------------------- errors


class Broken(LiveView):
    """Breaks when it is told to."""

    problem = ""

    def _picture(self) -> Picture:
        if self.problem:
            raise ValueError(self.problem)
        return Picture(
            "a picture", (Facts("facts", ()),), status="live", words=str(self._feed.pulls)
        )

    def __repr__(self) -> str:
        return "Broken()"


def test_what_goes_wrong_is_shown_over_the_last_picture_and_passes(pool):
    view = Broken(pool)
    displayed(view)
    failed = Until(view, lambda p: p["error"] == "ValueError: no such column")
    view.problem = "no such column"
    pool.make()
    picture = failed.wait()
    assert [part["title"] for part in picture["parts"]] == ["facts"]
    assert picture["status"].startswith("failed at ")
    well = Until(view, lambda p: not p["error"])
    view.problem = ""
    pool.make()
    assert well.wait()["status"] == "live"
    view.close()


def test_what_goes_wrong_at_first_is_shown_too(pool):
    view = Broken(pool)
    view.problem = "nothing there"
    displayed(view)
    assert shown(view)["error"] == "ValueError: nothing there"
    view.close()


@pytest.mark.parametrize("length", [0, -3, "5 min"])
def test_lengths_that_are_none_are_refused(pool, length):
    with pytest.raises(ConfigError, match=r"window_s: .*seconds above 0"):
        ReplicaLoad(pool, window_s=length)


@pytest.mark.parametrize("kind", POOL_VIEWS)
def test_what_has_no_figures_is_refused(kind):
    with pytest.raises(ConfigError, match=r"source: int has no figures .*allowed: a Workbench"):
        kind(7)


def test_anything_with_a_feed_will_do(pool):
    class Bench:
        pass

    bench = Bench()
    bench.feed = pool  # type: ignore[attr-defined]
    assert repr(ReplicaLoad(bench)) == "ReplicaLoad('lab', 2 replicas, 6 in flight)"
