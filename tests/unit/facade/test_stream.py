"""The handles of streams and learners, over stand-ins of what is behind them."""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace

import pytest

from workbench.aio import LoopThread
from workbench.errors import ConfigError, PoolClosedError, StreamEndedError, StreamError
from workbench.facade import stream as handle
from workbench.facade import streams as module
from workbench.facade.learner import Learner
from workbench.facade.reach import Reach
from workbench.facade.stream import Stream, check_kind
from workbench.facade.streams import Streams
from workbench.rollout.single_turn import SingleTurnAgentLoop
from workbench.stream.facts import Terms
from workbench.stream.groups import GroupBatch
from workbench.stream.rules import StreamRules
from workbench.stream.source import TaskSource


class Behind:
    """What a stream's handle asks; its first close is interrupted."""

    name = "stream"
    latest = SimpleNamespace(state="running")
    last_groups: tuple = ()
    last_batches: tuple = ()

    def __init__(self):
        self.closings, self.given, self.is_on_its_way = 0, 0, False
        self.looks = 0
        self.ends_with = StreamEndedError("all tasks were used up")

    async def close(self):
        self.closings += 1
        if self.closings == 1:
            raise KeyboardInterrupt

    async def again(self):
        self.given = 0

    async def look(self):
        self.looks += 1
        self.latest = SimpleNamespace(state="ended" if self.given > 2 else "running")
        return self.latest

    async def give(self, n, timeout_s):
        self.given += 1
        if self.given > 2:
            raise self.ends_with
        return GroupBatch(self.given, 0, ())

    @property
    def consumer(self):
        async def commit():
            return None

        return SimpleNamespace(commit=commit)


@pytest.fixture
def loop():
    made = LoopThread()
    yield made
    made.close()


@pytest.fixture
def reach(loop):
    made = SimpleNamespace(loop=loop, call=loop.run, while_open=lambda coro: coro)
    made.look_at = partial(Reach.look_at, made)
    return made


def test_a_close_that_was_interrupted_is_done_by_the_next_one(reach):
    behind = Behind()
    stream = Stream(behind, reach, None)
    with pytest.raises(KeyboardInterrupt):
        stream.close()
    assert not stream.closed
    stream.close()
    stream.close()
    assert (stream.closed, behind.closings) == (True, 2)
    with pytest.raises(PoolClosedError, match="was closed"):
        stream.get_batch()
    assert len(stream.history()) == 0


async def test_both_kinds_of_loops_end_with_the_stream(reach):
    stream = Stream(Behind(), reach, None)
    assert [batch.number for batch in stream] == [1, 2]
    assert [batch.number async for batch in stream] == [1, 2]


def test_a_loop_does_not_take_a_failure_for_an_end(reach):
    behind = Behind()
    behind.ends_with = PoolClosedError("the pool 'lab' was closed")
    with pytest.raises(PoolClosedError):
        list(Stream(behind, reach, None))


def test_a_stream_is_done_as_soon_as_it_is_over_and_then_asks_nobody_any_more(reach):
    behind = Behind()
    stream = Stream(behind, reach, None)
    assert not stream.done
    assert len(list(stream)) == 2
    assert behind.latest.state == "running", "as it was seen last"
    assert stream.done
    looks = behind.looks
    assert (stream.done, behind.looks) == (True, looks)
    with pytest.raises(StreamEndedError, match="is over"):
        stream.resume()


def test_whether_it_is_done_is_said_soon_and_without_an_error_where_the_queue_says_nothing(
    reach, monkeypatch
):
    monkeypatch.setattr(handle, "GLANCE_S", 0.01)
    behind = Behind()

    async def gone():
        raise StreamError("the stream's queue is gone")

    for look in (gone, lambda: asyncio.Event().wait()):
        behind.look, behind.latest = look, SimpleNamespace(state="running")
        stream = Stream(behind, reach, None)
        assert not stream.done
        behind.latest = SimpleNamespace(state="failed")
        assert stream.done


@pytest.mark.parametrize("weights", [3, None, "no/such/folder", lambda: 3])
def test_what_cannot_be_weights_is_refused_before_anybody_hears_of_it(weights):
    with pytest.raises(ConfigError, match=r"^weights.*a state dict"):
        check_kind(weights)


def test_what_can_be_weights_is_let_through(tmp_path):
    for weights in ({"lm_head": 1}, tmp_path, str(tmp_path)):
        check_kind(weights)


class Made:
    """A learner's port that was started."""

    def __init__(self, model, config, **options):
        self.model, self.config, self.figures = model, config, []
        self.ended = self.closed = False
        self.gpus = 0

    def check(self, load, *, spare_gpus):
        """All is well."""

    async def start(self):
        return None

    async def step(self, groups):
        raise AssertionError("it was asked to learn from that")

    def end(self):
        self.ended = True

    def close(self):
        self.ended = self.closed = True

    def keep_only(self, directory):
        self.kept = directory


def test_there_is_one_learner_of_a_name_whatever_it_is_configured_with(reach, monkeypatch):
    monkeypatch.setattr(module, "RayLearner", Made)
    bench = Streams.__new__(Streams)
    bench._learners, bench._call = {}, reach.call
    bench._pool = SimpleNamespace(reach=reach)
    first = bench.learner("m", lr=1e-5, name="actor")
    other = bench.learner("m", lr=2e-5, name="other")
    assert not first._port.ended
    again = bench.learner("m", lr=3e-5, name="actor")
    assert (first._port.ended, other._port.ended, again._port.ended) == (True, False, False)
    assert not first._port.closed, "the pool may be on its weights"
    again.published("its weights")
    assert (first._port.closed, again._port.kept) == (True, "its weights")
    assert set(bench._learners) == {"actor", "other"}
    with pytest.raises(ConfigError, match=r"learning_rate.*lr"):
        bench.learner("m", learning_rate=1e-5)


async def test_a_folder_hears_what_its_stream_is_begun_with(monkeypatch):
    heard = {}

    async def open_(rules, **options):
        heard.update(options)
        raise ConfigError("n", "is 4, and the stream in this folder was begun with 8")

    async def versions():
        return {"replica-0": 3}

    async def player(*_):
        return None

    bench = Streams.__new__(Streams)
    manager = SimpleNamespace(
        get_weight_version=versions,
        limits=SimpleNamespace(max_num_seqs=8),
        get_replicas=None,
    )
    bench._pool = SimpleNamespace(
        reach=SimpleNamespace(manager=manager),
        players=SimpleNamespace(manager=player),
        client=None,
    )
    monkeypatch.setattr(module, "RayQueue", SimpleNamespace(open=open_))
    source = TaskSource(["a", "b"], SingleTurnAgentLoop, epochs=3, shuffle=7)
    template = SimpleNamespace(setup=SimpleNamespace(agent="tool"), n=4)
    with pytest.raises(ConfigError, match="begun with 8"):
        await bench._begin("stream", source, template, StreamRules(), None, "folder")
    assert heard == {"folder": "folder", "version": 3, "terms": Terms("tool", 4, 3, 7)}


def test_a_learner_names_what_is_no_group(reach):
    learner = Learner(Made("m", None), reach)
    with pytest.raises(ConfigError, match="for each task the list of its rollouts"):
        learner.step([1, 2])
    assert list(learner.history().columns)[:2] == ["step", "changed"]
