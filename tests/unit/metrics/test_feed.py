"""A feed follows its pool, says when it cannot, and can be taken away as files."""

from __future__ import annotations

import json
import math
import pickle
import threading

import numpy as np
import pandas as pd
import pytest

from tests.unit.metrics.pools import START_S, a_replica, a_sample
from tests.unit.metrics.test_exporter import a_stream
from tests.unit.metrics.test_history import ALWAYS, assert_same, steady
from tests.unit.metrics.test_runs import a_run
from tests.unit.rollout.test_batch import failed, trajectory
from workbench.errors import BalancerLostError, ConfigError, PoolClosedError
from workbench.metrics.feed import Feed
from workbench.metrics.history import History
from workbench.metrics.samples import Activity, SessionTurns
from workbench.metrics.tables import event_frame, session_frame
from workbench.types import EventKind, RoutingEvent, SessionInfo

TRAJECTORIES = [trajectory(([1, 2], [7, 8]), reward=0.5), failed(1, ([1], [9]))]


class Pool:
    """A pool behind blocking calls."""

    def __init__(self, seconds=0):
        self.history = History()
        self.error = None
        self.lock = threading.Lock()
        self.reads = 0
        self.seconds = 0
        self.live(seconds)

    def live(self, seconds):
        for _ in range(seconds):
            with self.lock:
                self.history.add(steady(START_S + self.seconds))
            self.seconds += 1

    def read(self, cursor):
        self.reads += 1
        with self.lock:
            return self._ask(self.history.read(cursor, 100))

    def sessions(self, start, limit):
        infos = [
            SessionInfo(f"s{i}", f"replica-{i % 2}", 0, i, 10, 5, 2, 0, 1.5) for i in range(25)
        ]
        return self._ask(session_frame(infos[start : start + limit]))

    def events(self, cursor, limit):
        events = [
            RoutingEvent(
                i, float(i), EventKind.MOVED, f"s{i}", "replica-0", "me", 1, "load", START_S
            )
            for i in range(cursor + 1, 31)
        ][:limit]
        return self._ask(event_frame(events, cursor=cursor + len(events), lost=0))

    def rollouts(self, name):
        return self._ask({"mine": TRAJECTORIES}.get(name, []))

    def _ask(self, answer):
        if self.error:
            raise self.error
        return answer

    def feed(self):
        return Feed(
            "lab", self.read, sessions=self.sessions, events=self.events, rollouts=self.rollouts
        )


def seconds_of(feed):
    return (feed.window(*ALWAYS).times_s - START_S).tolist()


# -- following -------------------------------------------------------------------------------


def test_a_pull_gets_all_that_is_new():
    pool = Pool(250)
    feed = pool.feed()
    assert feed.latest is None
    assert feed.pull()
    assert seconds_of(feed) == list(range(250))
    assert pool.reads == 3, "page by page, and none to find that there is no more"
    assert not feed.pull()
    pool.live(1)
    assert feed.pull()
    assert feed.latest is pool.history.latest


def test_while_the_pool_cannot_be_reached_the_feed_says_why_and_keeps_what_it_has():
    pool = Pool(5)
    feed = pool.feed()
    feed.pull()
    pool.error = BalancerLostError("it starts over")
    assert not feed.pull()
    assert (feed.error, feed.closed) == ("it starts over", False)
    pool.error = ZeroDivisionError("a mistake")
    assert not feed.pull(), "whatever it is, it is not raised where nobody looks"
    assert feed.error == "ZeroDivisionError: a mistake"
    assert seconds_of(feed) == list(range(5))
    pool.error = None
    pool.live(1)
    assert feed.pull()
    assert feed.error == ""


def test_a_closed_pool_is_not_asked_again_and_its_history_stays():
    pool = Pool(5)
    feed = pool.feed()
    feed.pull()
    pool.error = BalancerLostError("gone")
    feed.pull()
    pool.error = PoolClosedError("the pool was closed")
    assert not feed.pull()
    assert (feed.error, feed.closed) == ("", True)
    reads, pool.error = pool.reads, None
    pool.live(1)
    assert not feed.pull()
    assert pool.reads == reads
    assert seconds_of(feed) == list(range(5))
    assert "closed" in repr(feed)


def test_cells_read_while_a_thread_pulls():
    pool = Pool(1)
    feed = pool.feed()
    stop = threading.Event()
    problems = []

    def look():
        while not stop.is_set():
            try:
                block = feed.window(0, math.inf, points=50)
                assert np.isfinite(block.total("sessions")).all()
                feed.to_pandas(START_S, START_S + 50)
                feed.pull()
            except Exception as error:  # noqa: BLE001 - told in the main thread
                problems.append(error)
                return

    feed.pull()
    lookers = [threading.Thread(target=look) for _ in range(3)]
    for looker in lookers:
        looker.start()
    for _ in range(40):
        pool.live(20)
        feed.pull()
    stop.set()
    for looker in lookers:
        looker.join(20)
    assert not problems
    assert_same(feed.window(*ALWAYS), pool.history.window(*ALWAYS))


def test_all_who_ask_for_the_same_short_window_get_the_same_until_there_is_news():
    pool = Pool(300)
    feed = pool.feed()
    feed.pull()
    block = feed.window(START_S, math.inf, points=50)
    assert feed.window(START_S, math.inf, points=50) is block
    assert not any(a.flags.writeable for a in (block.times_s, block.replicas, block.pool))
    assert len(feed.window(START_S, math.inf)) == 300, "a long one is nobody else's"
    assert feed.window(START_S, math.inf).pool.flags.writeable
    pool.live(50)
    feed.pull()
    assert feed.window(START_S, math.inf, points=50).times_s[-1] > block.times_s[-1]


def test_a_sample_travels_whole():
    replica = a_replica(load={"in_flight": 3}, engine={"running": 2, "ttft_counts": (1, 2)})
    activity = Activity(7, hot=(SessionTurns("s", "replica-0", 2),))
    sample = a_sample(
        START_S, replica, books={"sessions": 4}, activity=activity, runs=(a_run("batch"),)
    )
    assert pickle.loads(pickle.dumps(sample)) == sample


# -- taking away -----------------------------------------------------------------------------


def full_pool():
    """Two hours of a pool, with moves, a batch of rollouts, and a replica that is silent."""
    pool = Pool()
    for minute in range(0, 7200, 20):
        pool.history.add(steady(START_S + minute + 0.123456789))
    move = RoutingEvent(3, 1.5, EventKind.MOVED, "s1", "replica-0", "me", 1, "load", START_S)
    activity = Activity(9, 1, (SessionTurns("s1", "replica-0", 4),), (("replica-0", 2),), (move,))
    pool.history.add(
        a_sample(
            START_S + 7300,
            a_replica("replica-0", load={"capacity": 8, "reason": ""}),
            a_replica("replica-1", engine={"evicted_blocks": None, "ttft_counts": (1, 2)}),
            books={"sessions": 3},
            activity=activity,
            runs=(a_run("mine", done=2), a_run("other/../batch"), a_stream()),
            heard_s=(("replica-1", START_S + 7300.0),),
        )
    )
    return pool


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    pool = full_pool()
    feed = pool.feed()
    feed.pull()
    folder = tmp_path_factory.mktemp("saved") / "lab run"
    feed.save(folder)
    return folder, feed


def test_a_saved_feed_shows_what_was_there(saved):
    folder, feed = saved
    again = Feed.open(folder)
    assert (again.name, again.period_s, again.is_live, again.closed) == ("lab", 1.0, False, True)
    assert "saved" in repr(again)
    for start_s, points in ((START_S + 7000, None), (START_S, None), (START_S, 60), (0.0, 400)):
        shown = feed.window(start_s, START_S + 7300, points)
        assert_same(again.window(start_s, START_S + 7300, points), shown)
    assert again.latest == feed.latest
    assert again.latest.pool.replicas[1].engine.ttft_counts == (1, 2)
    stream = again.latest.runs[2].stream
    assert stream.queued == ((4, 1), (5, 3)), "tuples, which lists would not be equal to"
    assert stream.drops[0].cause == "too_old"
    assert stream.publishes[1].error == "ConnectionError: refused"
    assert not again.pull()
    pd.testing.assert_frame_equal(again.to_pandas(), feed.to_pandas())


def test_a_saved_feed_has_pages_of_sessions_and_events(saved):
    folder, feed = saved
    again = Feed.open(str(folder))
    pd.testing.assert_frame_equal(again.sessions(20, 10), feed.sessions(20, 10))
    assert len(again.sessions()) == 25
    page, live = again.events(10, 15), feed.events(10, 15)
    pd.testing.assert_frame_equal(page, live)
    assert page.attrs == live.attrs == {"cursor": 25, "lost": 0}
    rest = again.events(25)
    assert rest["number"].tolist() == [26, 27, 28, 29, 30]
    assert again.events(30).attrs["cursor"] == 30


def test_a_saved_feed_has_its_rollouts_to_the_token(saved):
    again = Feed.open(saved[0])
    assert again.rollouts("mine") == TRAJECTORIES
    assert again.rollouts("other/../batch") == again.rollouts("unknown") == []


def test_a_feed_is_saved_again_in_the_same_place_and_nowhere_else(tmp_path):
    pool = Pool(3)
    feed = pool.feed()
    feed.pull()
    folder = tmp_path / "new" / "run"
    feed.save(folder)
    pool.live(2)
    feed.pull()
    feed.save(folder)
    assert len(Feed.open(folder).window(*ALWAYS)) == 5
    assert [path.name for path in folder.parent.iterdir()] == ["run"], "nothing is left beside it"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    for taken in (tmp_path / "mine", tmp_path / "mine" / "thesis.txt"):
        with pytest.raises(ConfigError, match=r"folder.*something else"):
            feed.save(taken)
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"
    with pytest.raises(ConfigError, match="folder"):
        feed.save(None)


def test_a_closed_pool_can_still_be_saved(tmp_path):
    pool = Pool(5)
    feed = pool.feed()
    feed.pull()
    pool.error = PoolClosedError("the pool was closed")
    feed.pull()
    feed.save(tmp_path / "run")
    again = Feed.open(tmp_path / "run")
    assert len(again.window(*ALWAYS)) == 5
    assert list(again.sessions().columns) == list(Pool().sessions(0, 1).columns)
    assert not len(again.events())


def test_a_feed_without_a_sample_can_be_saved(tmp_path):
    Pool().feed().save(tmp_path / "run")
    again = Feed.open(tmp_path / "run")
    assert again.latest is None
    assert not len(again.window(*ALWAYS))


# -- what cannot be opened -------------------------------------------------------------------


def remove(name):
    return lambda folder: (folder / name).unlink()


def overwrite(name, text):
    return lambda folder: (folder / name).write_text(text)


def truncate(name):
    def act(folder):
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: len(data) // 2])

    return act


def change_facts(**changes):
    def act(folder):
        facts = json.loads((folder / "facts.json").read_text())
        (folder / "facts.json").write_text(json.dumps(facts | changes))

    return act


def drop_column(name, column):
    def act(folder):
        path = folder / f"{name}.parquet"
        pd.read_parquet(path).drop(columns=column).to_parquet(path)

    return act


def words_for(name, column):
    def act(folder):
        path = folder / f"{name}.parquet"
        pd.read_parquet(path).assign(**{column: "a word"}).to_parquet(path)

    return act


@pytest.mark.parametrize(
    "damage",
    [
        *(remove(name) for name in ("facts.json", "seconds.parquet", "rollouts-0.parquet")),
        *(truncate(name) for name in ("seconds.parquet", "sessions.parquet", "facts.json")),
        overwrite("facts.json", "[]"),
        overwrite("facts.json", '{"format": "something else"}'),
        overwrite("events.parquet", "not parquet at all"),
        overwrite("rollouts-0.parquet", "not parquet at all"),
        change_facts(version=2),
        change_facts(cursor="many"),
        change_facts(rollouts=7),
        change_facts(latest={"time_s": "now"}),
        change_facts(latest={"time_s": 1.0}),
        drop_column("minutes", "in_flight"),
        drop_column("seconds", "time"),
        drop_column("events", "number"),
        words_for("seconds", "running"),
        words_for("seconds", "time"),
        words_for("sessions", "turns"),
    ],
)
def test_a_folder_that_is_damaged_is_refused_by_name(saved, tmp_path, damage):
    folder = tmp_path / "copy"
    folder.mkdir()
    for path in saved[0].iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    Feed.open(folder)
    damage(folder)
    with pytest.raises(ConfigError, match="copy") as refused:
        Feed.open(folder)
    assert refused.value.field == "folder"
    assert refused.value.allowed == "a folder that Feed.save wrote"


def test_a_folder_that_is_none_is_refused(tmp_path):
    for folder in (tmp_path / "missing", tmp_path, 7, ""):
        with pytest.raises(ConfigError) as refused:
            Feed.open(folder)
        assert refused.value.field == "folder"


def test_what_a_newer_version_knows_more_of_is_passed_over(saved, tmp_path):
    folder = tmp_path / "copy"
    folder.mkdir()
    for path in saved[0].iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    facts = json.loads((folder / "facts.json").read_text())
    facts["latest"]["pool"]["weather"] = "fair"
    (folder / "facts.json").write_text(json.dumps(facts))
    assert Feed.open(folder).latest == saved[1].latest


def test_whoever_takes_it_away_gets_what_is_new_without_anybody_having_pulled(tmp_path):
    pool = Pool(3)
    assert len(pool.feed().to_pandas()["time"].unique()) == 3
    pool.feed().save(tmp_path / "saved")
    assert Feed.open(tmp_path / "saved").latest is not None
