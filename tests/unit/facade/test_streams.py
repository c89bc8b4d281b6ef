"""How streams and learners are begun: what is wrong is refused before a former one is ended."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from workbench.aio import LoopThread
from workbench.errors import ConfigError, LearnerDiedError, StreamError
from workbench.facade import streams as module
from workbench.facade.stream import Stream
from workbench.facade.streaming import Streaming
from workbench.facade.streams import Streams
from workbench.rollout.loop import AgentLoopBase
from workbench.rollout.manager import prepare
from workbench.stream.groups import GroupHeader
from workbench.stream.queue import StreamQueue
from workbench.stream.rules import StreamRules
from workbench.stream.source import digest


class Scoring(AgentLoopBase):
    """Gives its rollouts rewards of its own."""

    async def run(self, sampling_params, **task):
        """It is not played."""


class Begun(Streaming):
    """A stream of which nothing is played."""

    def __init__(self, name, agent, queue, rollouter, manager, rules, n, source, *more):
        self.name, self.queue, self.rollouter = name, queue, rollouter
        self._agent, self._n, self._source = agent, n, source

    async def close(self):
        self.queue.happened.append(f"{self.queue.name} closed")


class Queue:
    """Knows what was played in its folder, and what happened to it and to others."""

    def __init__(self, name, happened, played):
        self.name, self.happened, self.played = name, happened, played
        happened.append(f"{name} opened")

    async def digests(self):
        return self.played

    async def snapshot(self):
        return None

    async def close(self):
        self.happened.append(f"{self.name} given up")


class Bench(Streams):
    """A workbench whose pool is not there."""

    manager = SimpleNamespace(limits=SimpleNamespace(max_num_seqs=8), get_replicas=None)

    def __init__(self, loop, monkeypatch):
        self._streams, self._learners = {}, {}
        self._call = loop.run
        self.happened, self.played, self.refused = [], {}, None
        self.updates = []
        players = SimpleNamespace(prepare=self._prepare, manager=self._player)
        reach = SimpleNamespace(loop=loop, manager=self, call=loop.run, while_open=lambda c: c)
        self.limits, self.get_replicas = self.manager.limits, None
        self.manager = SimpleNamespace(limits=self.limits, update_weights=self._update)
        self._pool = SimpleNamespace(reach=reach, players=players, client=None)
        monkeypatch.setattr(module, "Streaming", Begun)
        monkeypatch.setattr(module, "RayQueue", SimpleNamespace(open=self._open))
        monkeypatch.setattr(module, "RayLearner", Port)

    async def _prepare(self, client, limits, tasks, options):
        return prepare(tasks, **options)

    async def _player(self, *_):
        return None

    async def get_weight_version(self):
        return {}

    async def _open(self, rules, *, folder, version, terms):
        if self.refused is not None:
            raise self.refused
        number = sum(told.endswith("opened") for told in self.happened)
        return Queue(f"queue {number}", self.happened, self.played)

    async def _update(self, source, **options):
        self.updates.append((source, options))
        return "an update"


class Port:
    """A learner's process that is not there."""

    wrong = None

    def __init__(self, model, config, **options):
        self.model, self.config, self.figures = model, config, []
        self.gpus, self.checked, self.is_over, self.kept = 0, None, False, None

    def check(self, load, *, spare_gpus):
        self.checked = load, spare_gpus
        if load == "typo":
            raise ConfigError("load", "nothing was saved in 'typo'", allowed="what save() wrote")

    async def start(self):
        self.gpus = 1

    async def weights(self):
        if self.is_over:
            raise LearnerDiedError("it was closed")
        return "its weights"

    def keep_only(self, directory):
        self.kept = directory

    def end(self):
        self.is_over = True


@pytest.fixture
def bench(monkeypatch):
    loop = LoopThread()
    yield Bench(loop, monkeypatch)
    loop.close()


def score(trajectory):
    return 1.0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"on_failure": "drop"}, r"^on_failure: 'drop' .*allowed: 'keep'"),
        ({"concurrency": 3}, r"^concurrency: .*max_concurrent"),
        ({"filter": "varied", "reward": score, "n": 1}, r"^n: 1 .*n >= 2"),
        ({"filter": "varied"}, r"^filter: .*reward="),
        ({"rules": StreamRules(), "max_staleness": 1}, "^max_staleness: is given twice"),
        ({"shuffle": "yes"}, "^shuffle: "),
    ],
)
def test_what_a_stream_cannot_have_is_refused_and_the_former_one_goes_on(bench, options, told):
    former = bench.stream(["a"], reward=score)
    with pytest.raises(ConfigError, match=told):
        bench.stream(["a"], **options)
    assert (former.closed, bench.happened) == (False, ["queue 0 opened"])


def test_failed_rows_may_be_asked_for_and_a_loop_may_give_rewards_of_its_own(bench):
    bench.stream(["a"], on_failure="keep")
    bench.stream([{"prompt": "a"}], Scoring, filter="varied")
    bench.stream(["a"], reward=score, filter="varied")


def test_a_stream_that_is_refused_late_leaves_the_former_one_of_its_name_alone(bench, tmp_path):
    former = bench.stream(["a"])
    bench.refused = StreamError("another process runs the stream in this folder")
    with pytest.raises(StreamError):
        bench.stream(["a"], folder=tmp_path)
    bench.refused, bench.played = None, {0: "of another task"}
    with pytest.raises(ConfigError, match=r"^folder: .* at position 0 differs"):
        bench.stream(["a"], folder=tmp_path)
    assert bench._streams == {"stream": former}
    assert not former.closed
    bench.played = {}
    again = bench.stream(["a"], folder=tmp_path)
    assert (former.closed, again.closed, bench._streams) == (True, False, {"stream": again})
    assert bench.happened == [
        "queue 0 opened", "queue 1 opened", "queue 1 given up", "queue 2 opened", "queue 0 closed",
    ]  # fmt: skip


def test_a_stream_in_the_folder_of_the_former_one_is_compared_with_it_before_that_is_closed(
    bench, tmp_path
):
    bench.played = {0: digest({"prompt": "a"})}
    former = bench.stream(["a"], folder=tmp_path, n=4)
    with pytest.raises(ConfigError, match=r"^n: is 8, .* with 4"):
        bench.stream(["a"], folder=tmp_path, n=8)
    with pytest.raises(ConfigError, match=r"^folder: .* at position 0 differs"):
        bench.stream(["b"], folder=str(tmp_path), n=4)
    assert not former.closed
    bench.stream(["a"], folder=tmp_path, n=4)
    assert bench.happened == ["queue 0 opened", "queue 0 closed", "queue 1 opened"]


def test_a_former_stream_whose_queue_is_gone_holds_nobody_up(bench, tmp_path):
    former = bench.stream(["a"], folder=tmp_path)

    async def gone():
        raise StreamError("the stream's queue is gone")

    former._streaming.queue.digests = gone
    bench.stream(["a"], folder=tmp_path)
    assert former.closed


def test_a_learner_that_cannot_be_leaves_the_former_one_of_its_name_alone(bench):
    former = bench.learner("m")
    for options, told in (
        ({"load": "typo"}, "^load: nothing was saved"),
        ({"lr": -1.0}, "^lr: "),
        ({"learning_rate": 1.0}, "^learning_rate: "),
    ):
        with pytest.raises(ConfigError, match=told):
            bench.learner("m", **options)
        assert not former._port.is_over
    again = bench.learner("m")
    assert former._port.is_over
    assert again._port.checked == (None, 1), "the former one's GPU will be free"


def test_a_pool_takes_the_weights_of_a_learner_as_a_stream_does(bench):
    learner = bench.learner("m")
    assert bench.update_weights(learner, mode="abort") == "an update"
    options = {"version": None, "mode": "abort", "recompute": False}
    assert bench.updates == [("its weights", options)]
    assert learner._port.kept == "its weights"
    bench.update_weights("checkpoints/step-40", version=3)
    assert bench.updates[1][0] == "checkpoints/step-40"
    learner.close()
    with pytest.raises(LearnerDiedError):
        bench.update_weights(learner)
    assert len(bench.updates) == 2


# -- where it stands --------------------------------------------------------------------------


async def looked_at(queue, told):
    behind = Streaming.__new__(Streaming)
    behind.queue, behind.rollouter = queue, SimpleNamespace(waits_for=lambda window: told)
    return behind, await behind.look()


async def test_a_stream_waits_for_what_its_groups_in_flight_wait_for_if_its_queue_for_nothing():
    queue = StreamQueue(StreamRules(required_samples=2))
    (ticket, *others) = await queue.admit([], 4, 0.0)
    behind, now = await looked_at(queue, "room in the pool")
    assert (now.waits_for, behind.latest) == ("room in the pool", now)
    for other in (ticket, *others):
        await queue.leave(GroupHeader.of(other, ()), "failed", replay=False)
    await queue.pause()
    _, now = await looked_at(queue, "room in the pool")
    assert "paused" in now.waits_for
    await queue.stop()
    _, now = await looked_at(queue, "room in the pool")
    assert (now.state, now.waits_for) == ("ended", "")


async def test_a_paused_stream_steps_also_during_a_publish():
    queue = StreamQueue(StreamRules(required_samples=2))
    loop = LoopThread()
    reach = SimpleNamespace(loop=loop, call=loop.run)
    behind = SimpleNamespace(name="stream", queue=queue, look=queue.snapshot)
    stream = Stream(behind, reach, None)
    with pytest.raises(StreamError, match="is not paused"):
        stream.step()
    stream.pause()
    loop.run(queue.begin_publish(1))
    assert (stream.snapshot().state, stream.snapshot().is_paused) == ("publishing", True)
    stream.step()
    loop.run(queue.stop())
    with pytest.raises(StreamError, match="is not paused"):
        stream.step()
    loop.close()
