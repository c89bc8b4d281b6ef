"""Managing a pool from a panel: what is asked reaches it once, and never holds anything up."""

from __future__ import annotations

import gc
import json
import threading
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.widgets.feeds import WAIT_S
from tests.unit.widgets.managed import MadeVerbs
from tests.unit.widgets.orders import Clicks
from tests.unit.widgets.wires import Until, displayed, shown
from widgets import PoolControl
from widgets.control import clerk
from widgets.control.clerk import Clerk
from widgets.control.desk import Desk
from widgets.pictures.still import html
from workbench.errors import ConfigError, NoRoomError, ReplicaStartError
from workbench.types import ReplicaState

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def verbs(wires: None) -> MadeVerbs:
    return MadeVerbs()


@pytest.fixture
def view(verbs: MadeVerbs) -> Iterator[PoolControl]:
    view = PoolControl(verbs)
    displayed(view)
    yield view
    view.close()


@pytest.fixture
def clicks(view: PoolControl) -> Clicks:
    return Clicks(lambda asks: view.set_state({"asks": asks}), lambda: view.replies)


def done(picture: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(one["what"], one["text"], one["tone"]) for one in picture["control"]["done"]]


def row(picture: dict[str, Any], replica_id: str) -> dict[str, Any]:
    (found,) = [one for one in picture["control"]["rows"] if one["id"] == replica_id]
    return found


def ended(view: PoolControl) -> Until:
    return Until(view, lambda p: done(p) and all(tone != "busy" for *_, tone in done(p)))


# -- what is asked is done ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("order", "call"),
    [
        ({"verb": "scale", "replicas": 5}, ("scale", 5)),
        ({"verb": "drain", "replica_id": "replica-1"}, ("drain", "replica-1")),
        ({"verb": "readmit", "replica_id": "replica-1"}, ("readmit", "replica-1")),
        ({"verb": "restart", "replica_id": "replica-1"}, ("restart", "replica-1", False)),
        (
            {"verb": "restart", "replica_id": "replica-1", "drain": True},
            ("restart", "replica-1", True),
        ),
        ({"verb": "pause", "replica_id": "replica-1"}, ("pause", "replica-1", "keep")),
        ({"verb": "pause", "mode": "abort"}, ("pause", None, "abort")),
        ({"verb": "resume", "replica_id": "replica-1"}, ("resume", "replica-1")),
        ({"verb": "resume"}, ("resume", None)),
        ({"verb": "publish", "source": " /new "}, ("publish", "/new", None, "keep", False)),
        (
            {"verb": "publish", "source": "/new", "version": 9, "mode": "wait", "recompute": True},
            ("publish", "/new", 9, "wait", True),
        ),
    ],
)
def test_an_order_reaches_its_verb(
    clicks: Clicks, view: PoolControl, verbs: MadeVerbs, order: dict, call: tuple
) -> None:
    over = ended(view)
    assert clicks.order(**order) == "taken"
    ((_, text, tone),) = done(over.wait())
    assert verbs.asked == [call]
    assert tone == "good"
    assert text


def test_what_came_of_new_weights_is_said(clicks: Clicks, view: PoolControl) -> None:
    over = ended(view)
    clicks.order("publish", source="/runs/9")
    ((what, text, _),) = done(over.wait())
    assert what == "publish /runs/9 (keep)"
    assert text.startswith("version 4 on 3 replicas, which stood still for 0.6 s at most")


def test_whoever_asks_waits_for_nothing_and_sees_that_it_runs(
    clicks: Clicks, view: PoolControl, verbs: MadeVerbs
) -> None:
    with verbs.held("restart"):
        running = Until(view, lambda p: row(p, "replica-1")["runs"] == "restart")
        over = ended(view)
        assert clicks.order("restart", "replica-1") == "taken"  # it returns while the verb does not
        picture = running.wait()
        assert row(picture, "replica-1")["busy"].startswith("restart replica-1, since ")
        assert not row(picture, "replica-0")["busy"]
        assert done(picture) == [("restart replica-1", "under way", "busy")]
    picture = over.wait()
    assert done(picture)[0][1].startswith("done (")
    assert not row(picture, "replica-1")["busy"]
    threads = {thread for _, thread in view.comm.pictures()[1:]}
    assert threads <= {"workbench-ticker"}, "drawn elsewhere: beside the budget of those who look"


# -- once, and one at a time ----------------------------------------------------------------------


def test_an_order_that_is_said_twice_is_done_once(
    clicks: Clicks, view: PoolControl, verbs: MadeVerbs
) -> None:
    over = ended(view)
    message = {"verb": "restart", "replica_id": "replica-0", "confirmed": True}
    assert clicks.say(message, "one") == "ready"
    assert clicks.go("one") == "taken"
    over.wait()
    assert clicks.say({"go": "one"}, "another") == "nothing to begin"
    assert clicks.say(message, "one") == "ready"  # a message that came again
    assert clicks.say({"go": "one"}, "third") == "nothing to begin"
    assert verbs.asked == [("restart", "replica-0", False)]


def test_a_replica_does_one_thing_at_a_time_and_others_go_on(
    clicks: Clicks, view: PoolControl, verbs: MadeVerbs
) -> None:
    with verbs.held("restart"), verbs.held("scale"):
        clicks.order("restart", "replica-0")
        for refused in (
            clicks.order("drain", "replica-0"),
            clicks.order("restart", "replica-0"),
            clicks.order("publish", source="/new"),
            clicks.order("scale", replicas=1),
            clicks.order("pause"),
        ):
            assert refused == "not begun: restart replica-0 is under way"
        assert clicks.order("drain", "replica-1") == "taken"
        assert clicks.order("scale", replicas=4) == "taken", "more replicas disturb none"
        assert clicks.order("scale", replicas=5) == "not begun: scale to 4 replicas is under way"
        for _ in range(3):
            assert verbs.begun.acquire(timeout=WAIT_S)
    assert sorted(verbs.asked) == [
        ("drain", "replica-1"), ("restart", "replica-0", False), ("scale", 4),
    ]  # fmt: skip


def test_all_who_manage_a_pool_share_what_is_under_way(
    clicks: Clicks, view: PoolControl, verbs: MadeVerbs
) -> None:
    other = PoolControl(verbs)
    displayed(other)
    seen = Until(other, lambda p: row(p, "replica-0")["runs"] == "restart")
    with verbs.held("restart"):
        clicks.order("restart", "replica-0")
        seen.wait()
        second = Clicks(lambda asks: other.set_state({"asks": asks}), lambda: other.replies)
        assert "is under way" in second.order("restart", "replica-0")
    other.close()


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "order",
    [
        {"verb": "restart", "replica_id": "replica-0"},
        {"verb": "scale", "replicas": 2},
        {"verb": "publish", "source": "/new"},
        {"verb": "pause"},
    ],
)
def test_what_interrupts_work_is_not_done_unless_confirmed(
    clicks: Clicks, verbs: MadeVerbs, order: dict
) -> None:
    assert "was not confirmed" in clicks.order(**order, confirmed=False)
    assert verbs.asked == []


@pytest.mark.parametrize(
    "order",
    [
        {"verb": "scale", "replicas": 4},
        {"verb": "drain", "replica_id": "replica-0"},
        {"verb": "pause", "replica_id": "replica-0"},
        {"verb": "resume"},
    ],
)
def test_what_interrupts_nothing_needs_no_confirmation(clicks: Clicks, order: dict) -> None:
    assert clicks.order(**order, confirmed=False) == "taken"


def test_what_would_interrupt_by_now_is_asked_again(
    clicks: Clicks, view: PoolControl, verbs: MadeVerbs
) -> None:
    message = {"verb": "scale", "replicas": 4}
    assert clicks.say(message, "up") == "ready"
    verbs.pool.ids = [f"replica-{n}" for n in range(6)]
    verbs.pool.step()
    verbs.feed.pull()
    assert "was not confirmed" in clicks.go("up")
    assert verbs.asked == []


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({}, "verb: None"),
        ({"verb": "close"}, "allowed: scale, drain"),
        ({"verb": ["restart"]}, "verb: "),
        ({"verb": "restart"}, "replica_id: restart is for one replica"),
        ({"verb": "restart", "replica_id": "replica-77"}, "'replica-77' is not there"),
        ({"verb": "restart", "replica_id": {"a": 1}}, "replica_id: "),
        ({"verb": "scale", "replicas": 0}, "whole number from 1"),
        ({"verb": "scale", "replicas": True}, "whole number from 1"),
        ({"verb": "scale", "replicas": "3"}, "whole number from 1"),
        ({"verb": "scale", "replicas": 3, "replica_id": "replica-0"}, "for the whole pool"),
        ({"verb": "publish", "source": "  "}, "source: is missing"),
        ({"verb": "publish", "source": "x" * 9000}, "4,096 characters"),
        ({"verb": "publish", "source": "/new", "version": -1}, "version: -1"),
        ({"verb": "pause", "mode": "stop"}, "allowed: keep, abort, wait"),
    ],
)
def test_nonsense_is_refused_in_words(
    clicks: Clicks, verbs: MadeVerbs, message: dict, words: str
) -> None:
    assert words in clicks.say(message | {"confirmed": True})
    assert verbs.asked == []


@pytest.mark.parametrize("asks", ["", "{", "[1]", "7", '{"a": 7}', '{"a": {"go": ["x"]}}'])
def test_what_is_no_message_does_nothing(view: PoolControl, verbs: MadeVerbs, asks: str) -> None:
    view.set_state({"asks": asks})
    assert verbs.asked == []


def test_a_click_that_waited_too_long_is_forgotten(verbs: MadeVerbs) -> None:
    clock = [0.0]
    told = Clerk(Desk.of(verbs), verbs.feed, lambda: None, lambda: clock[0])
    clicks = Clicks(told.hear, told.replies)
    message = {"verb": "drain", "replica_id": "replica-0"}
    clicks.say(message, "late")
    clock[0] += clerk.GO_S + 1
    assert clicks.go("late") == "not done: drain replica-0. It was asked too long ago."
    clicks.say(message, "soon")
    clock[0] += clerk.GO_S - 1
    assert clicks.go("soon") == "taken"
    assert verbs.begun.acquire(timeout=WAIT_S)
    assert verbs.asked == [("drain", "replica-0")]


def test_a_closed_pool_takes_no_orders(clicks: Clicks, view: PoolControl, verbs: MadeVerbs) -> None:
    closed = Until(view, lambda p: p["control"]["closed"] == "the pool was closed")
    verbs.pool.close()
    closed.wait()
    assert "was closed" in clicks.order("restart", "replica-0")
    assert verbs.asked == []


def test_what_cannot_be_managed_is_refused(verbs: MadeVerbs) -> None:
    with pytest.raises(ConfigError, match=r"source: Feed cannot manage a pool .*a Workbench"):
        PoolControl(verbs.feed)


# -- what goes wrong ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("problem", "words", "more"),
    [
        (NoRoomError("2 GPUs are free, 4 are needed"), "2 GPUs are free, 4 are needed", ""),
        (
            ReplicaStartError("replica-0", "its engine ended", log_tail="out of\x1b memory"),
            "replica-0 did not start: its engine ended",
            "last log lines of replica-0:\nout of␛ memory",
        ),
        (KeyError("nobody thought of this"), "KeyError: 'nobody thought of this'", ""),
    ],
)
def test_an_error_is_shown_in_words_and_the_replica_is_free_again(
    clicks: Clicks, view: PoolControl, verbs: MadeVerbs, problem: Exception, words: str, more: str
) -> None:
    failed = ended(view)
    verbs.problem = problem
    clicks.order("restart", "replica-0")
    picture = failed.wait()
    ((_, text, tone),) = done(picture)
    assert text.startswith(f"failed: {words} (")
    assert tone == "bad"
    assert picture["control"]["done"][0]["more"] == more
    assert not picture["error"], "the panel itself is well"
    assert clicks.order("restart", "replica-0") == "taken"


# -- logs -----------------------------------------------------------------------------------------


def read(clicks: Clicks, view: PoolControl, replica_id: str) -> dict[str, Any]:
    """A log, once it was read."""
    was_read = threading.Event()

    def look(change: Any) -> None:
        tail = json.loads(change.new)["logs"].get(replica_id)
        if tail and not tail["reads"]:
            was_read.set()

    view.observe(look, "replies")
    clicks.say({"log": replica_id})
    assert was_read.wait(WAIT_S)
    view.unobserve(look, "replies")
    return clicks.logs[replica_id]


def test_a_log_is_read_on_demand_again_and_until_it_is_closed(
    clicks: Clicks, view: PoolControl, verbs: MadeVerbs
) -> None:
    assert verbs.asked == []
    tail = read(clicks, view, "replica-1")
    assert tail["text"].splitlines()[0].startswith("INFO 12:03:00 engine.py")
    assert tail["text"].endswith("read 1")
    assert read(clicks, view, "replica-1")["text"].endswith("read 2")
    clicks.say({"close": "replica-1"})
    assert clicks.logs == {}
    assert verbs.asked == [("logs", "replica-1", 50)] * 2


def test_a_log_that_cannot_be_read_says_why_while_verbs_go_on(
    clicks: Clicks, view: PoolControl, verbs: MadeVerbs
) -> None:
    verbs.pool.states["replica-2"] = ReplicaState.STOPPED
    assert read(clicks, view, "replica-2")["error"] == "replica-2 died: no log is left"
    with verbs.held("logs"):
        clicks.say({"log": "replica-0"})
        clicks.say({"log": "replica-0"})
        assert clicks.logs["replica-0"]["reads"]
        assert clicks.order("drain", "replica-0") == "taken"
    assert verbs.asked.count(("logs", "replica-0", 50)) == 1


# -- what is seen ---------------------------------------------------------------------------------


def test_each_replica_says_how_it_is_and_offers_what_helps(
    view: PoolControl, verbs: MadeVerbs
) -> None:
    pool = verbs.pool
    pool.ids = [f"replica-{n}" for n in range(11)]
    pool.states = {
        "replica-1": ReplicaState.DRAINING,
        "replica-2": ReplicaState.PAUSED,
        "replica-3": ReplicaState.STARTING,
        "replica-4": ReplicaState.STOPPED,
        "replica-10": ReplicaState.UNHEALTHY,
    }
    pool.notes = {"replica-3": "loading weights", "replica-10": "its engine ended"}
    pool.versions, pool.restarts = {"replica-10": 2}, {"replica-10": 6}
    drawn = Until(view, lambda p: p["control"]["replicas"] == 10)
    pool.step()
    picture = drawn.wait()
    assert [one["id"] for one in picture["control"]["rows"]] == pool.ids  # they keep their places
    assert picture["words"] == "10 replicas, versions 2 to 3, 30 in flight."
    assert row(picture, "replica-0")["can"] == ["drain", "pause", "restart"]
    assert row(picture, "replica-1")["can"] == ["readmit", "pause", "restart"]
    assert row(picture, "replica-2")["can"] == ["drain", "resume", "restart"]
    assert row(picture, "replica-3")["can"] == ["restart"]
    assert row(picture, "replica-4")["can"] == []
    assert row(picture, "replica-3")["note"] == "loading weights"
    odd = row(picture, "replica-10")
    assert (odd["state"], odd["tone"], odd["version"], odd["restarts"]) == (
        "unhealthy", "bad", "2", "6",
    )  # fmt: skip
    assert "its engine ended" in odd["note"]


def test_a_saved_notebook_keeps_a_table_of_states(view: PoolControl, verbs: MadeVerbs) -> None:
    verbs.pool.states["replica-1"] = ReplicaState.DRAINING
    verbs.pool.step()
    verbs.feed.pull()
    data, metadata = view._repr_mimebundle_()
    assert data["image/png"].startswith(b"\x89PNG")
    assert metadata["image/png"]["alt"] == "3 replicas, version 3, 9 in flight."
    assert data["text/plain"] == "PoolControl('lab', 3 replicas)"
    still = html(view._build()[0])
    assert "draining" in still
    assert "replica-2" in still
    assert "parts" not in shown(view), "the browser gets what it draws, and no more"


def test_it_can_go_when_nobody_displays_it(verbs: MadeVerbs) -> None:
    view = PoolControl(verbs)
    view.snapshot()
    reference = weakref.ref(view)
    del view
    gc.collect()
    assert reference() is None
