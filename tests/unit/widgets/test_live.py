"""Live widgets without a browser: what they send, when they rest, what a notebook keeps."""

from __future__ import annotations

import base64
import gc
import json
import threading
import weakref
from typing import TYPE_CHECKING, Any

import comm
import pytest
from comm.base_comm import BaseComm
from ipywidgets import Widget

from tests.unit.widgets.feeds import WAIT_S, PoolFeed
from tests.unit.widgets.test_ticker import ended, tickers
from widgets import KVCacheUsage, ReplicaLoad, RolloutProgress, SessionStickiness, TrajectoryView
from widgets.browser import esm
from widgets.figures import Still
from widgets.live_view import VIEW_TYPE, LiveView
from widgets.pictures.picture import Facts, Picture
from widgets.ticker import Ticker
from workbench.errors import ConfigError
from workbench.trajectory import RolloutStatus, Segment, Trajectory, Turn
from workbench.types import FinishReason, VersionSpan

if TYPE_CHECKING:
    from collections.abc import Iterator

POOL_VIEWS = (KVCacheUsage, ReplicaLoad, RolloutProgress, SessionStickiness)


class Wire(BaseComm):
    """A way to a browser that keeps what was sent, and by which thread."""

    sent: list[tuple[str, dict[str, Any], str]]

    def publish_msg(self, msg_type: str, data: Any = None, *args: Any, **keys: Any) -> None:
        self.__dict__.setdefault("sent", [])
        self.sent.append((msg_type, data or {}, threading.current_thread().name))

    def pictures(self) -> list[tuple[dict[str, Any], str]]:
        """Pictures that were sent, each with the thread that sent it."""
        states = [(data.get("state", {}), thread) for _, data, thread in self.sent]
        return [(json.loads(s["picture"]), thread) for s, thread in states if "picture" in s]


@pytest.fixture(autouse=True)
def wires(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(comm, "create_comm", Wire)
    yield
    Widget.close_all()
    assert ended(), "a ticker goes on"


@pytest.fixture
def feed() -> PoolFeed:
    return PoolFeed()


def displayed(view: LiveView) -> dict[str, Any]:
    """As a cell does it."""
    return view._repr_mimebundle_(include=None, exclude=["image/png"])[0]


def shown(view: LiveView) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(view.picture)
    return found


class Until:
    """Waits for a picture of a kind; to be made before what brings it about."""

    def __init__(self, view: LiveView, wanted: Any) -> None:
        self._seen = threading.Event()
        self._wanted = wanted
        self._view = view
        view.observe(self._look, "picture")

    def _look(self, change: Any) -> None:
        if self._wanted(json.loads(change.new)):
            self._seen.set()

    def wait(self) -> dict[str, Any]:
        if self._wanted(shown(self._view)):
            self._seen.set()
        assert self._seen.wait(WAIT_S), shown(self._view)
        self._view.unobserve(self._look, "picture")
        return shown(self._view)


# ---------------------------------------------------------------------------- following


def test_it_follows_its_pool_on_the_tickers_thread(feed):
    view = ReplicaLoad(feed)
    displayed(view)
    news = Until(view, lambda p: "34 requests in flight" in p["words"])
    feed.make(in_flight=17)
    news.wait()
    *_, (picture, thread) = view.comm.pictures()
    assert "34 requests in flight" in picture["words"]
    assert thread == "workbench-ticker"
    view.close()


def test_nothing_is_drawn_or_pulled_before_it_is_displayed(feed):
    pulls = feed.pulls
    view = ReplicaLoad(feed)
    assert (feed.pulls, view.picture, view.comm, tickers()) == (pulls, "", None, [])


def test_what_is_displayed_begins_with_a_picture(feed):
    view = ReplicaLoad(feed)
    displayed(view)
    kind, data, _ = view.comm.sent[0]
    assert kind == "comm_open"
    assert json.loads(data["state"]["picture"])["title"] == "Replica load: lab"
    assert data["state"]["window"] == {"length_s": 300.0}
    view.close()


def test_nothing_is_sent_while_nothing_happens(feed):
    view = ReplicaLoad(feed)
    displayed(view)
    sent, pulls = len(view.comm.sent), feed.pulls
    for _ in range(3):  # who comes anew is told at the end of that round
        told = threading.Event()
        end = Ticker.of(feed).subscribe(told.set)
        assert told.wait(WAIT_S)
        end()
    assert feed.pulls >= pulls + 2
    assert len(view.comm.sent) == sent
    view.close()


def test_its_last_picture_says_that_the_pool_closed(feed):
    view = ReplicaLoad(feed)
    displayed(view)
    last = Until(view, lambda p: p["status"].startswith("closed"))
    feed.closed = True
    last.wait()
    assert ended()
    assert view.comm is not None, "it stays where it is displayed"
    view.close()


def test_a_closed_pool_can_still_be_looked_through(feed):
    feed.closed = True
    view = ReplicaLoad(feed)
    displayed(view)
    assert ended()
    start_s, end_s = feed.latest.time_s - 20, feed.latest.time_s - 10
    zoomed = Until(view, lambda p: p["span_s"] == [start_s, end_s])
    view.set_state({"window": {"start_s": start_s, "end_s": end_s}})
    zoomed.wait()
    view.close()


def test_closing_it_ends_its_thread(feed):
    view = ReplicaLoad(feed)
    displayed(view)
    assert tickers()
    view.close()
    assert ended()
    view.close()


def test_it_can_go_when_nobody_displays_it(feed):
    view = ReplicaLoad(feed)
    view.snapshot()
    reference = weakref.ref(view)
    del view
    gc.collect()
    assert reference() is None


def test_a_ticker_does_not_keep_it(feed):
    view = ReplicaLoad(feed)
    view._follow()
    reference = weakref.ref(view)
    del view
    gc.collect()
    assert reference() is None
    assert ended()


# ---------------------------------------------------------------------------- the browser


def test_a_zoom_is_answered_with_that_span_and_following_with_the_present(feed):
    feed.period_s = 1e4  # nobody waits for its next news
    view = ReplicaLoad(feed, window_s=60)
    displayed(view)
    now_s = feed.latest.time_s
    zoomed = Until(view, lambda p: p["span_s"] == [now_s - 20, now_s - 5])
    view.set_state({"window": {"start_s": now_s - 20, "end_s": now_s - 5}})
    lines = [part for part in zoomed.wait()["parts"] if part["kind"] == "lines"]
    assert lines
    assert all(now_s - 21 <= time <= now_s - 4 for part in lines for time in part["times_s"])
    followed = Until(view, lambda p: p["span_s"] == [now_s - 900, now_s])
    view.set_state({"window": {"length_s": 900}})
    followed.wait()
    view.close()


@pytest.mark.parametrize(
    "nonsense",
    [{}, {"length_s": "x"}, {"length_s": -1}, {"length_s": float("nan")}, {"start_s": 5},
     {"start_s": 9, "end_s": 3}, {"length_s": True}],
)  # fmt: skip
def test_a_window_that_makes_no_sense_is_the_last_five_minutes(feed, nonsense):
    view = ReplicaLoad(feed, window_s=60)
    displayed(view)
    now_s = feed.latest.time_s
    answered = Until(view, lambda p: p["span_s"] == [now_s - 300, now_s])
    view.set_state({"window": nonsense})
    assert not answered.wait()["error"]
    view.close()


def test_it_rests_while_no_browser_shows_it(feed):
    view = ReplicaLoad(feed)
    displayed(view)
    view.set_state({"_view_count": 1})
    view.set_state({"_view_count": 0})
    assert ended()
    woken = Until(view, lambda p: "34 requests in flight" in p["words"])
    feed.make(in_flight=17)
    view.set_state({"_view_count": 1})
    woken.wait()
    view.close()


def test_a_click_opens_a_batch_and_an_unknown_one_is_said(feed):
    feed.period_s = 1e4
    view = RolloutProgress(feed)
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


def test_what_goes_wrong_is_shown_over_the_last_picture_and_passes(feed):
    view = Broken(feed)
    displayed(view)
    failed = Until(view, lambda p: p["error"] == "ValueError: no such column")
    view.problem = "no such column"
    feed.make()
    picture = failed.wait()
    assert [part["title"] for part in picture["parts"]] == ["facts"]
    assert picture["status"].startswith("failed at ")
    well = Until(view, lambda p: not p["error"])
    view.problem = ""
    feed.make()
    assert well.wait()["status"] == "live"
    view.close()


def test_what_goes_wrong_at_first_is_shown_too(feed):
    view = Broken(feed)
    view.problem = "nothing there"
    displayed(view)
    assert shown(view)["error"] == "ValueError: nothing there"
    view.close()


@pytest.mark.parametrize("length", [0, -3, "5 min"])
def test_lengths_that_are_none_are_refused(feed, length):
    with pytest.raises(ConfigError, match=r"window_s: .*seconds above 0"):
        ReplicaLoad(feed, window_s=length)


@pytest.mark.parametrize("kind", POOL_VIEWS)
def test_what_has_no_figures_is_refused(kind):
    with pytest.raises(ConfigError, match=r"source: a int .*allowed: a Workbench"):
        kind(7)


def test_anything_with_a_feed_will_do(feed):
    class Bench:
        pass

    bench = Bench()
    bench.feed = feed  # type: ignore[attr-defined]
    assert repr(ReplicaLoad(bench)) == "ReplicaLoad('lab', 2 replicas, 6 in flight)"


# ---------------------------------------------------------------------------- what is kept


@pytest.mark.parametrize("kind", POOL_VIEWS)
def test_a_notebook_keeps_a_still_and_a_line_of_text(feed, kind):
    view = kind(feed)
    data, metadata = view._repr_mimebundle_(include=None, exclude=None)
    assert set(data) == {VIEW_TYPE, "image/png", "text/plain"}
    assert data[VIEW_TYPE]["model_id"] == view.comm.comm_id
    assert data["image/png"].startswith(b"\x89PNG")
    assert len(base64.b64encode(data["image/png"])) < 100_000
    assert metadata["image/png"]["alt"] == shown(view)["words"]
    view.close()


def test_include_and_exclude_are_kept_to(feed):
    view = ReplicaLoad(feed)
    assert set(view._repr_mimebundle_(include=["text/plain"], exclude=None)[0]) == {"text/plain"}
    assert view.comm is None, "nobody displays it"
    data, metadata = view._repr_mimebundle_(include=None, exclude=["image/png"])
    assert set(data) == {VIEW_TYPE, "text/plain"}
    assert not metadata
    view.close()


def test_reprs_name_the_pool_and_its_figures(feed):
    assert [repr(kind(feed)) for kind in POOL_VIEWS] == [
        "KVCacheUsage('lab', 2 replicas, fullest 42%)",
        "ReplicaLoad('lab', 2 replicas, 6 in flight)",
        "RolloutProgress('lab', 0 batches, 0 of 0 rollouts ended)",
        "SessionStickiness('lab', 30 sessions, 30 moves)",
    ]
    feed.closed = True
    assert repr(ReplicaLoad(feed)) == "ReplicaLoad('lab', 2 replicas, 6 in flight, closed)"
    assert repr(ReplicaLoad(PoolFeed(seconds=0))) == "ReplicaLoad('lab', no data yet)"


def test_a_snapshot_is_a_still_of_the_present(feed):
    feed.make(in_flight=17)
    still = ReplicaLoad(feed).snapshot()
    assert isinstance(still, Still)
    assert "34 requests in flight" in repr(still)


# ---------------------------------------------------------------------------- trajectories


def trajectory(number: int = 0) -> Trajectory:
    segment = Segment([1, 2], [3, 4], [1, 1], [-0.1, -2.0], (VersionSpan(3, 0, 2),))
    turn = Turn(0, 0, 2, FinishReason.STOP, "replica-0", 2, 0, 1, 0.1, 0.2, 0.5)
    return Trajectory(
        f"rollout-{number}", "task-0", number, "tool", {}, (segment,), (turn,), (), (),
        RolloutStatus.DONE, 0.5,
    )  # fmt: skip


class Run:
    """A batch in progress, as a handle shows it."""

    def __init__(self, ended: int) -> None:
        self.rows = [trajectory(number) for number in range(ended)]
        self.done = False

    def trajectories(self) -> list[Trajectory]:
        return list(self.rows)

    def decode(self, ids: list[int]) -> str:
        return "".join(f"<{number}>" for number in ids)


def test_a_rollout_is_chosen_opened_to_its_tokens_and_left_again():
    view = TrajectoryView(Run(3))
    displayed(view)
    table = shown(view)["parts"][0]
    assert [row[table["key"]] for row in table["rows"]] == ["rollout-2", "rollout-1", "rollout-0"]
    opened = Until(view, lambda p: p["title"] == "Rollout rollout-1")
    view.set_state({"selected": "rollout-1"})
    picture = opened.wait()
    assert picture["actions"] == ["back"]
    (tokens,) = [part for part in picture["parts"] if part["kind"] == "tokens"]
    assert [token["text"] for token in tokens["tokens"]] == ["<1>", "<2>", "<3>", "<4>"]
    assert [token["mask"] for token in tokens["tokens"]] == [0, 0, 1, 1]
    left = Until(view, lambda p: p["title"] == "Rollouts")
    view.set_state({"selected": ""})
    left.wait()
    view.close()


def test_rollouts_that_end_appear_and_the_last_one_ends_it():
    run = Run(1)
    view = TrajectoryView(run)
    displayed(view)
    assert shown(view)["status"] == "running"
    grown = Until(view, lambda p: len(p["parts"][0]["rows"]) == 2 and not p["status"])
    run.rows.append(trajectory(1))
    run.done = True
    grown.wait()
    assert ended()
    view.close()


def test_one_trajectory_is_opened_at_once():
    view = TrajectoryView(trajectory(4), decode=lambda ids: "x")
    displayed(view)
    assert shown(view)["title"] == "Rollout rollout-4"
    assert repr(view) == f"TrajectoryView({trajectory(4)!r})"
    assert repr(TrajectoryView([trajectory(0), trajectory(1)])) == "TrajectoryView(2 rollouts)"
    view.close()


@pytest.mark.parametrize("source", [7, "rollout", [1, 2]])
def test_what_has_no_trajectories_is_refused(source):
    with pytest.raises(ConfigError, match=r"source: .*no trajectories"):
        TrajectoryView(source)


def test_the_module_stands_alone():
    text = esm()
    assert "import " not in "\n".join(line[:7] for line in text.splitlines())
    assert text.count("export ") == 1
    assert "innerHTML" not in text
    assert "http://www.w3.org/2000/svg" in text
    assert text.count("http") == 1
