"""Each picture by its name, and what is seen when the pool is gone."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from typing import Any

import pytest

from tests.unit.widgets.dashboard.pools import EVIL, MadePool, a_rollout
from widgets.dashboard.decoding import Decoder
from widgets.dashboard.fields import wishes_of
from widgets.dashboard.gallery import Built, Request
from widgets.dashboard.notice import notice_of
from widgets.dashboard.pages import PAGES, PATHS, PLOTS
from widgets.dashboard.plots import Painter
from widgets.pictures.asking import asked_of
from widgets.windows import Window
from workbench.metrics.feed import Feed
from workbench.types import EventKind


def painter_of(pool: MadePool) -> Painter:
    decoder = Decoder(lambda model: lambda ids: f"[{model}:{len(ids)}]", lambda: None)
    painter = Painter(pool.feed, decoder, time.time, time.monotonic)
    painter.hear()
    return painter


def ask(plot: str, selected: str = "", window: Window = Window(), **wishes: Any) -> Request:  # noqa: B008
    return Request(plot, window, selected, wishes_of(plot, wishes), asked_of(wishes))


def titles(built: Built) -> list[str]:
    return [part["title"] for part in json.loads(built.text)["parts"]]


@pytest.mark.parametrize("plot", PLOTS)
def test_every_plot_has_a_picture(plot: str) -> None:
    built = painter_of(MadePool())(ask(plot))
    picture = json.loads(built.text)
    assert picture["parts"]
    assert not picture["error"]


@pytest.mark.parametrize("plot", PLOTS)
def test_a_pool_without_anything_has_one_too(plot: str) -> None:
    pool = MadePool(replicas=0, known=0, seconds=0)
    picture = json.loads(painter_of(pool)(ask(plot)).text)
    assert not picture["error"]


@pytest.mark.parametrize("plot", PLOTS)
def test_the_last_data_stay_when_the_pool_was_closed(plot: str) -> None:
    pool = MadePool()
    pool.happen(EventKind.MOVED, "a")
    painter = painter_of(pool)
    before = json.loads(painter(ask(plot)).text)
    pool.close()
    pool.feed.pull()
    after = json.loads(painter(ask(plot)).text)
    assert after["parts"] == before["parts"] or plot in {"replicas", "load", "overview"}
    assert len(after["parts"]) == len(before["parts"])


def test_a_picture_that_cannot_be_made_says_why() -> None:
    pool = MadePool()
    painter = painter_of(pool)
    pool.lose("the network is <b>down</b>")
    picture = json.loads(painter(ask("sessions")).text)
    assert "the network is <b>down</b>" in picture["error"]
    assert not picture["parts"]


def test_windows_are_what_was_asked_for() -> None:
    pool = MadePool()
    end_s = pool.feed.latest.time_s
    painter = painter_of(pool)
    spans = [
        json.loads(painter(ask("load", window=window)).text)["span_s"]
        for window in (Window(60.0), Window(10.0, end_s - 20.0))
    ]
    assert spans == [[end_s - 60.0, end_s], [end_s - 30.0, end_s - 20.0]]


def test_sessions_say_which_they_are() -> None:
    built = painter_of(MadePool(known=120))(ask("sessions", find="session-1", order="turns"))
    assert "Sessions with “session-1” in their id by most turns" in titles(built)
    assert built.place.text == "1 to 30 of 30"
    assert '"text":"1 to 30 of 30"' in built.text
    assert built.place.last == 0
    later = painter_of(MadePool(known=120))(ask("sessions", page="2"))
    assert (later.place.text, later.place.last) == ("101 to 120 of 120", 2)


def test_events_say_which_they_are() -> None:
    pool = MadePool()
    pool.happen(EventKind.MOVED, EVIL)
    pool.happen(EventKind.ACQUIRED, "b")
    painter = painter_of(pool)
    assert "Everything but turns, the newest first" in titles(painter(ask("events")))
    assert EVIL in painter(ask("events")).text
    assert EVIL not in painter(ask("events", kinds="acquired")).text


def test_a_rollout_opens_to_its_tokens() -> None:
    pool = MadePool()
    painter = painter_of(pool)
    table = json.loads(painter(ask("rollouts")).text)["parts"][0]
    keys = [row[table["key"]] for row in table["rows"]]
    assert len(keys) == 4
    for key in keys:
        picture = json.loads(painter(ask("rollouts", key)).text)
        assert [part["kind"] for part in picture["parts"]][-1] == "tokens"
        assert "back" in picture["actions"]


def test_rollouts_are_found_sorted_compared_and_stepped_through() -> None:
    painter = painter_of(MadePool())

    def rows(**asked: str) -> list[str]:
        table = json.loads(painter(ask("rollouts", **asked)).text)["parts"][0]
        return [row[0] for row in table["rows"]]

    assert rows(status="done") == ["batch-2/task-0", "batch-1/task-0"]
    assert rows(status="done", sort="rollout") == ["batch-1/task-0", "batch-2/task-0"]
    assert len(rows(find="tooltimeout")) == 2
    group = json.loads(painter(ask("rollouts", compare="batch-1/task-0")).text)
    assert group["title"] == "Group task-0"
    assert len(group["parts"][1]["rows"]) == 2, "the other batch has a group of that name"
    turn = json.loads(painter(ask("rollouts", "batch-1/task-0", turn="2")).text)
    assert turn["title"] == "Rollout batch-1/task-0, turn 2 of 2"


def test_rollouts_of_one_name_in_two_batches_are_two() -> None:
    pool = MadePool()
    pool.feed.rollouts = lambda name: [
        dataclasses.replace(a_rollout("task-0/0"), agent=f"agent of {name}")
    ]
    painter = painter_of(pool)
    keys = json.loads(painter(ask("rollouts")).text)["parts"][0]["keys"]
    assert keys == ["batch-2/task-0/0", "batch-1/task-0/0"]
    for key, batch in zip(keys, ("batch-2", "batch-1"), strict=True):
        picture = json.loads(painter(ask("rollouts", key)).text)
        assert picture["parts"][0]["title"].startswith(f"Agent agent of {batch}")
        steps = {step["label"]: step["selected"] for step in picture["steps"]}
        assert {key, steps["previous rollout"], steps["next rollout"]} == {*keys, None}


def test_a_rollout_is_in_the_words_of_its_own_tokenizer() -> None:
    pool, loaded = MadePool(), threading.Event()
    row = dataclasses.replace(a_rollout("b/t/0"), tokenizer="its-own")
    pool.feed.rollouts = lambda name: [row]
    decoder = Decoder(lambda model: lambda ids: f"[{model}]", loaded.set)
    painter = Painter(pool.feed, decoder, time.time, time.monotonic)
    painter(ask("rollouts", "b/t/0"))
    assert loaded.wait(10)
    assert "[its-own]" in painter(ask("rollouts", "b/t/0")).text


def test_a_rollout_that_somebody_reads_stays_though_it_made_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = MadePool()
    painter = painter_of(pool)
    before = painter(ask("rollouts", "batch-1/task-0"))
    monkeypatch.setattr(painter.rollouts, "with_batches", list)
    assert painter(ask("rollouts", "batch-1/task-0")) == before


def test_a_rollout_that_is_not_there_any_more() -> None:
    picture = json.loads(painter_of(MadePool())(ask("rollouts", "gone")).text)
    assert "no rollout gone" in picture["error"]
    assert picture["parts"][0]["rows"]


def test_tokens_are_words_once_there_is_a_tokenizer() -> None:
    loaded = threading.Event()
    decoder = Decoder(lambda _: lambda ids: "w" * len(ids), loaded.set)
    painter = Painter(MadePool().feed, decoder, time.time, time.monotonic)
    first = painter(ask("rollouts", "batch-1/task-0")).text
    assert loaded.wait(10)
    assert json.loads(first)["parts"][-1]["kind"] == "tokens"
    assert '"text":"w"' in painter(ask("rollouts", "batch-1/task-0")).text


def test_no_tokenizer_is_no_error() -> None:
    tried = threading.Event()

    def load(_: str) -> Any:
        tried.set()
        raise OSError("no such model")

    decoder = Decoder(load, lambda: pytest.fail("there is none"))
    assert decoder.of("x") is None
    assert tried.wait(10)
    assert decoder.of("x") is None


def test_notices(tmp_path) -> None:
    pool = MadePool()
    assert notice_of(pool.feed) == {}
    pool.lose("the network is down")
    pool.feed.pull()
    notice = notice_of(pool.feed)
    assert "cannot be reached: the network is down" in notice["text"]
    assert notice["tone"] == "bad"
    pool.find()
    pool.feed.pull()
    assert notice_of(pool.feed) == {}
    pool.feed.save(tmp_path / "saved")
    pool.close()
    pool.feed.pull()
    assert notice_of(pool.feed)["text"].startswith("This pool was closed")
    assert notice_of(Feed.open(tmp_path / "saved"))["text"].startswith("Saved data")


def test_pages_show_pictures_that_there_are() -> None:
    assert {plot for page in PAGES for plot in page.plots} == set(PLOTS)
    assert len(set(PATHS)) == len(PATHS)
