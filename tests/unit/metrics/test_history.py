"""A history holds what a plain list of all samples says, and a mirror holds the same."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.unit.metrics.pools import START_S, a_replica, a_sample
from workbench.errors import ConfigError
from workbench.metrics.columns import POOL_COLUMNS, REPLICA_COLUMNS
from workbench.metrics.history import RATE_S, Block, History
from workbench.metrics.rates import derive

NAMES = [column.name for column in REPLICA_COLUMNS]
ALWAYS = (0.0, math.inf)


def steady(time_s, replicas=2, *, in_flight=1.0):
    """A pool whose counters grow by 1 a second."""
    counted = int(time_s - START_S) + 1000
    made = [
        a_replica(
            f"replica-{i}",
            load={"acquired": counted, "in_flight": in_flight + i},
            engine={"generation_tokens": counted, "running": i},
        )
        for i in range(replicas)
    ]
    return a_sample(time_s, *made, books={"acquired": counted, "sessions": 7})


def filled(times_s, history=None, **known):
    history = history or History()
    for time_s in times_s:
        history.add(steady(START_S + time_s, **known))
    return history


def assert_same(block, other):
    assert block.replica_ids == other.replica_ids
    np.testing.assert_allclose(block.times_s, other.times_s, rtol=1e-15)
    np.testing.assert_allclose(block.replicas, other.replicas, rtol=1e-5)
    np.testing.assert_allclose(block.pool, other.pool, rtol=1e-5)


# -- what a reader sees ----------------------------------------------------------------------


def test_figures_are_read_by_name():
    block = filled(range(10)).window(*ALWAYS)
    assert block.replica_ids == ("replica-0", "replica-1")
    assert block.replica("in_flight").tolist() == [[1, 2]] * 10
    assert block.total("sessions").tolist() == [7] * 10
    assert (block.times_s - START_S).tolist() == list(range(10))
    with pytest.raises(ConfigError, match=r"name: no figure is called 'running_'.*kv_cache_usage"):
        block.replica("running_")


def test_rates_are_counted_over_about_five_seconds():
    history = History()
    for second, tokens in enumerate([0, 0, 0, 0, 100, 100, 100, 100, 100, 100, 100]):
        engine = {"generation_tokens": tokens}
        history.add(a_sample(START_S + second, a_replica(engine=engine)))
    rates = history.window(*ALWAYS).replica("generation_tokens_per_s")[:, 0]
    assert math.isnan(rates[0])
    assert rates[1:4].tolist() == [0, 0, 0]
    assert rates[4:9].tolist() == [25, 20, 20, 20, 20]
    assert rates[9:].tolist() == [0, 0]


def test_after_a_gap_rates_begin_anew():
    history = filled([0, 1, 2, 500, 501])
    block = history.window(*ALWAYS)
    assert (block.times_s - START_S).tolist() == [0, 1, 2, 500, 501]
    turns = block.total("turns_per_s")
    assert math.isnan(turns[3]), "eight minutes are not what is going on now"
    assert turns[4] == 1.0


def test_a_gap_stays_a_gap_in_bins_too():
    history = filled([*range(10), *range(50, 60)])
    times_s = history.window(START_S, START_S + 60, points=20).times_s - START_S
    assert not [t for t in times_s if 10 < t < 50]
    assert len(times_s) == 4


def test_bins_are_means_over_what_there_is():
    history = History()
    for second, running in enumerate([1, None, 3, None, None, 6]):
        engine = None if running is None else {"running": running}
        history.add(a_sample(START_S + second, a_replica(engine=engine), books={}))
    block = history.window(START_S, START_S + 5, points=4)
    assert (block.times_s - START_S).tolist() == [0.5, 2.5, 4.5]
    np.testing.assert_array_equal(block.replica("running")[:, 0], np.float32([1, 3, 6]))
    np.testing.assert_array_equal(block.total("queued"), np.float32([0, 0, 0]))
    assert np.isnan(block.replica("evictions_per_s")).all()


def test_a_bin_keeps_its_value_while_the_window_moves_on():
    history = History()
    seen = {}
    for second in range(600):
        history.add(steady(START_S + second, in_flight=second % 17))
        block = history.window(START_S + second - 200, START_S + second, points=50)
        assert len(block) <= 50
        for time_s, value in list(
            zip(block.times_s, block.replica("in_flight")[:, 0], strict=True)
        )[:-1]:
            width = round(time_s // 5)
            if second > 250:
                assert seen.setdefault(width, value) == value
    assert len(seen) > 80


def test_what_is_older_than_an_hour_is_shown_by_the_minute():
    history = filled(range(2 * 3600 + 30), History(), replicas=1)
    last_s = START_S + 2 * 3600 + 29
    by_second = history.window(last_s - 3600, last_s)
    assert len(by_second) == 3600
    by_minute = history.window(last_s - 7000, last_s)
    assert np.diff(by_minute.times_s).tolist() == [60] * (len(by_minute) - 1)
    assert by_minute.times_s[0] == START_S + 4 * 60 + 29.5
    assert by_minute.total("turns_per_s").tolist() == [1.0] * len(by_minute)
    assert by_minute.replica("in_flight").tolist() == [[1.0]] * len(by_minute)


def test_a_minutes_rates_are_counted_over_all_of_it():
    history = History()
    tokens = 0
    for second in range(0, 125, 5):
        tokens += 600 if second == 95 else 0
        engine = {"generation_tokens": tokens, "running": second % 2}
        history.add(a_sample(START_S + second, a_replica(engine=engine)))
    minutes = history.read(0).minutes
    assert (minutes.times_s - START_S).tolist() == [27.5, 87.5]
    assert minutes.replica("generation_tokens_per_s")[:, 0].tolist() == [0.0, 10.0]
    assert minutes.replica("running")[:, 0].tolist() == [0.5, 0.5]


def test_a_young_pool_is_shown_by_the_second_however_far_one_looks_back():
    block = filled(range(150)).window(START_S - 86400, START_S + 150)
    assert len(block) == 150


def test_a_sample_that_is_not_later_is_passed_over():
    history = filled([0, 1, 1, 0.5, 2])
    assert len(history.window(*ALWAYS)) == 3


def test_after_the_clock_was_set_back_a_history_and_its_mirrors_begin_anew():
    history, mirror = filled(range(1000, 1100)), History()
    catch_up(mirror, history)
    filled(range(20, 25), history)
    catch_up(mirror, history)
    for reader in (history, mirror):
        assert (reader.window(*ALWAYS).times_s - START_S).tolist() == [20, 21, 22, 23, 24]
        assert not len(reader.read(0).minutes)


def test_replicas_come_and_go_with_their_values():
    history = History(seconds=60)
    for second in range(100):
        names = [f"replica-{i}" for i in range(12)] if second < 30 else ["replica-2", "replica-20"]
        replicas = [a_replica(name, load={"in_flight": second}) for name in names]
        history.add(a_sample(START_S + second, *replicas, a_replica("silent"), books={}))
    block = history.window(*ALWAYS)
    assert len(block) == 60
    assert block.replica_ids == ("replica-2", "replica-20"), "no row has a value of the others"
    assert block.replica("in_flight")[0].tolist() == [40, 40]
    early = filled(range(3), replicas=12).window(*ALWAYS)
    assert early.replica_ids[:3] == ("replica-0", "replica-1", "replica-2"), "not 0, 1, 10"


def test_a_mirror_keeps_a_replica_as_long_as_the_original_does():
    original, mirror = History(seconds=60), History(seconds=60)
    for second in range(100):
        name = "replica-0" if second < 50 else "replica-1"
        original.add(a_sample(START_S + second, a_replica(name, load={}), books={}))
        if second % 50 == 49:
            catch_up(mirror, original)
    assert original.window(*ALWAYS).replica_ids == ("replica-0", "replica-1")
    assert_same(mirror.window(*ALWAYS), original.window(*ALWAYS))


@pytest.mark.parametrize(("replicas", "megabytes"), [(8, 3.2), (256, 91)])
def test_memory_is_as_documented_and_stays_so(replicas, megabytes):
    history = filled([0, 30, 60], replicas=replicas)
    full = history.nbytes
    filled(range(61, 130), history, replicas=replicas)
    assert history.nbytes == full == pytest.approx(megabytes * 1e6, rel=0.02)


def test_a_table_has_a_row_for_the_pool_and_one_for_each_replica():
    history = filled(range(3), replicas=2)
    frame = history.to_pandas()
    assert list(frame.columns[:2]) == ["time", "replica_id"]
    assert set(frame.columns[2:]) == {c.name for c in REPLICA_COLUMNS + POOL_COLUMNS}
    assert str(frame.dtypes["time"]) == "datetime64[ns, UTC]"
    assert str(frame.dtypes["replica_id"]) == "string"
    assert {str(kind) for kind in frame.dtypes[2:]} == {"float32"}
    assert frame["replica_id"].fillna("pool").tolist() == ["pool", "replica-0", "replica-1"] * 3
    pool = frame[frame["replica_id"].isna()]
    assert pool["sessions"].tolist() == [7, 7, 7]
    assert pool["in_flight"].isna().all()
    assert frame["time"].iloc[-1].timestamp() == START_S + 2
    empty = History().to_pandas()
    assert empty.dtypes.tolist() == frame.dtypes.tolist()
    assert len(history.to_pandas(START_S + 1, START_S + 1)) == 3


@pytest.mark.parametrize(
    ("call", "field_name"),
    [
        (lambda: History(seconds=59), "seconds"),
        (lambda: History(minutes=0), "minutes"),
        (lambda: History().window(0, 1, points=1), "points"),
        (lambda: History().read(0, limit=0), "limit"),
    ],
)
def test_sizes_that_are_none_are_refused_by_name(call, field_name):
    with pytest.raises(ConfigError) as refused:
        call()
    assert refused.value.field == field_name
    assert refused.value.allowed


# -- mirrors ---------------------------------------------------------------------------------


def catch_up(mirror, original, limit=600):
    pages = []
    while (
        len((page := original.read(mirror.cursor, limit)).seconds) or page.cursor != mirror.cursor
    ):
        mirror.extend(page)
        pages.append(page)
    return pages


def test_a_new_mirror_gets_all_that_there_is_in_pages():
    original = filled(range(5000), History(minutes=100), replicas=1)
    mirror = History(minutes=100)
    pages = catch_up(mirror, original, limit=1000)
    assert [len(page.seconds) for page in pages] == [1000] * 3 + [600]
    assert sum(len(page.minutes) for page in pages) == 83
    assert mirror.latest is original.latest
    assert_same(mirror.window(*ALWAYS), original.window(*ALWAYS))
    assert_same(mirror.window(START_S, START_S + 5000), original.window(START_S, START_S + 5000))
    assert not len(original.read(mirror.cursor).seconds)
    assert original.read(mirror.cursor).latest is None


def test_what_made_room_before_it_was_read_is_counted():
    original, mirror = filled(range(10), History(seconds=60)), History(seconds=60)
    catch_up(mirror, original)
    filled(range(10, 170), original)
    (page,) = catch_up(mirror, original)
    assert page.lost == 100
    assert_same(mirror.window(START_S + 110, math.inf), original.window(START_S + 110, math.inf))


def test_a_mirror_of_a_history_that_began_anew_starts_over():
    mirror = History()
    catch_up(mirror, filled(range(200)))
    anew = filled(range(300, 310), replicas=1)
    (page,) = catch_up(mirror, anew)
    assert page.lost == 0
    assert_same(mirror.window(*ALWAYS), anew.window(*ALWAYS))
    assert not len(mirror.read(0).minutes)
    catch_up(mirror, History())
    assert not len(mirror.window(*ALWAYS)), "one that has nothing yet, too"


# -- against a plain list of samples ---------------------------------------------------------


@dataclass
class Naive:
    """The same figures from all samples there were, without any care for time or memory."""

    seconds: int
    minutes: int
    samples: list = field(default_factory=list)
    rows: list = field(default_factory=list)
    by_minute: list = field(default_factory=list)

    def add(self, sample):
        if self.samples and sample.time_s // 60 > self.samples[-1].time_s // 60:
            self._complete(sample)
        near = min(self.samples, key=lambda s: abs(sample.time_s - s.time_s - RATE_S), default=None)
        near = near if near and sample.time_s - near.time_s <= 60 else None
        self.rows.append((sample.time_s, *as_dicts(derive(near, sample))))
        self.samples.append(sample)

    def _complete(self, _):
        last = self.samples[-1]
        this = [s for s in self.samples if s.time_s // 60 == last.time_s // 60]
        earlier = self.samples[: -len(this)]
        joined = earlier and this[0].time_s - earlier[-1].time_s <= 60
        rates = as_dicts(derive(earlier[-1] if joined else this[0], last))
        rows = [row for row in self.rows[-self.seconds :] if row[0] // 60 == last.time_s // 60]
        (mean,) = naive_means(rows, 60.0)
        replicas, pool = dict(mean[1]), np.array(mean[2])
        for replica_id, row in replicas.items():
            new = rates[0].get(replica_id, np.full(len(REPLICA_COLUMNS), np.nan))
            replicas[replica_id] = np.where([c.is_rate for c in REPLICA_COLUMNS], new, row)
        pool = np.where([c.is_rate for c in POOL_COLUMNS], rates[1], pool)
        self.by_minute.append((mean[0], replicas, pool))

    def block(self, start_s, end_s, width_s=None):
        rows = self.rows[-self.seconds :]
        known = [row for row in self.by_minute[-self.minutes :] if row[0] >= start_s]
        if known and rows and known[0][0] < rows[0][0] - 60:
            rows = self.by_minute[-self.minutes :]
        ids = {name for row in rows for name, values in row[1].items() if has_value(values)}
        inside = [row for row in rows if start_s <= row[0] <= end_s]
        if width_s and inside:
            bins = {row[0] // width_s for row in inside}
            inside = naive_means([row for row in rows if row[0] // width_s in bins], width_s)
        return as_block(inside, sorted(ids, key=lambda name: int(name.partition("-")[2])))


def has_value(values):
    return not np.isnan(values).all()


def as_dicts(derived):
    ids, replicas, pool = derived
    return dict(zip(ids, replicas, strict=True)), pool


def naive_mean(rows):
    return np.array(
        [np.mean(known) if (known := [v for v in column if not math.isnan(v)]) else math.nan
         for column in zip(*rows, strict=True)]
    )  # fmt: skip


def naive_means(rows, width_s):
    made = []
    for number in dict.fromkeys(row[0] // width_s for row in rows):
        inside = [row for row in rows if row[0] // width_s == number]
        ids = dict.fromkeys(name for row in inside for name in row[1])
        replicas = {
            name: naive_mean([row[1][name] for row in inside if name in row[1]]) for name in ids
        }
        pool = naive_mean([row[2] for row in inside])
        made.append((np.mean([row[0] for row in inside]), replicas, pool))
    return made


def as_block(rows, ids):
    none = np.full(len(REPLICA_COLUMNS), np.nan)
    replicas = [[row[1].get(name, none) for name in ids] for row in rows]
    return Block(
        np.array([row[0] for row in rows]),
        tuple(ids),
        np.array(replicas, np.float32).reshape(len(rows), len(ids), len(REPLICA_COLUMNS)),
        np.array([row[2] for row in rows], np.float32).reshape(len(rows), len(POOL_COLUMNS)),
    )


SECONDS, MINUTES = 60, 4
PAUSES_S = (0.0, 0.25, 1.0, 1.0, 1.0, 7.0, 45.0, 61.0, 700.0)


class HistoryMachine(RuleBasedStateMachine):
    """One history is written and sometimes begins anew; a mirror reads it as it likes."""

    def __init__(self):
        super().__init__()
        self.mirror = History(SECONDS, MINUTES)
        self.now_s = START_S
        self.counters = {}
        self.original = History(SECONDS, MINUTES)
        self.naive = Naive(SECONDS, MINUTES)

    @precondition(lambda self: len(self.naive.samples) > 2 * SECONDS)
    @rule()
    def begin_anew(self):
        self.original = History(SECONDS, MINUTES)
        self.naive = Naive(SECONDS, MINUTES)

    @rule(
        pauses=st.lists(st.sampled_from(PAUSES_S), min_size=1, max_size=3),
        times=st.integers(1, 15),
        replicas=st.sets(st.integers(0, 11), max_size=10),
        silent=st.sets(st.integers(0, 11), max_size=3),
        growth=st.integers(0, 50),
        restarted=st.booleans(),
    )  # fmt: skip
    def add(self, pauses, times, replicas, silent, growth, restarted):
        if restarted:
            self.counters.clear()
        for pause in pauses * times:
            self.now_s += pause
            made = [self._replica(number, growth, number in silent) for number in replicas]
            books = {"acquired": int(self.now_s - START_S), "sessions": growth}
            sample = a_sample(self.now_s, *made, books=None if 0 in silent else books)
            self.original.add(sample)
            if not self.naive.samples or sample.time_s > self.naive.samples[-1].time_s:
                self.naive.add(sample)

    def _replica(self, number, growth, is_silent):
        grown = self.counters[number] = self.counters.get(number, 0) + growth * (number + 1)
        engine = {"generation_tokens": grown, "running": growth, "prompt_tokens": grown // 2}
        return a_replica(
            f"replica-{number}",
            load={"in_flight": growth} if growth % 3 else None,
            engine=None if is_silent else engine,
        )

    @rule(limit=st.integers(1, 70))
    def mirror_reads(self, limit):
        self.mirror.extend(self.original.read(self.mirror.cursor, limit))

    @rule(
        back_s=st.sampled_from([3.0, 40.0, 200.0, 3000.0]),
        width_s=st.sampled_from([1.0, 5.0, 60.0]),
    )
    def somebody_looks(self, back_s, width_s):
        start_s = self.now_s - back_s
        assert_same(
            self.original.window(start_s, self.now_s), self.naive.block(start_s, self.now_s)
        )
        points = int(back_s / width_s) + 2
        block = self.original.window(start_s, self.now_s, points)
        assert len(block) <= points
        width_s = self._width(start_s, points)
        assert_same(block, self.naive.block(start_s, self.now_s, width_s))

    def _width(self, start_s, points):
        times_s = self.naive.block(start_s, self.now_s).times_s
        span_s = min(self.now_s - start_s, np.ptp(times_s)) if len(times_s) else 1.0
        round_s = (0.1, 0.2, 0.5, 1, 2, 3, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600)
        return next(width_s for width_s in round_s if width_s * (points - 1) >= span_s)

    @precondition(lambda self: self.naive.samples)
    @invariant()
    def the_newest_is_there(self):
        assert self.original.latest is self.naive.samples[-1]

    def teardown(self):
        catch_up(self.mirror, self.original, limit=37)
        assert self.mirror.latest is self.original.latest
        for start_s in (0.0, self.now_s - 100, self.now_s - 3000):
            for points in (None, 10, 200):
                assert_same(
                    self.mirror.window(start_s, self.now_s, points),
                    self.original.window(start_s, self.now_s, points),
                )
        again = History(SECONDS, MINUTES)
        catch_up(again, self.mirror, limit=23)
        assert_same(again.window(*ALWAYS), self.original.window(*ALWAYS))


TestHistoryMachine = HistoryMachine.TestCase
TestHistoryMachine.settings = settings(max_examples=20, stateful_step_count=25, deadline=None)
TestHistoryMachine.pytestmark = [pytest.mark.slow]
