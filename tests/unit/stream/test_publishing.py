"""A publish: which version, in what order, and what a failed one leaves behind."""

from __future__ import annotations

import asyncio

import pytest

from workbench.errors import CheckpointError, ConfigError, StreamError, WeightsError
from workbench.stream.groups import GroupHeader, Ticket
from workbench.stream.ledger import StreamLedger
from workbench.stream.packing import pack
from workbench.stream.publishing import Publisher
from workbench.stream.queue import StreamQueue
from workbench.stream.rules import StreamRules
from workbench.weights import ReplicaUpdate, WeightUpdate

OLD = Ticket(0, 1, 0)


class Scene:
    """A publisher over a real queue, and what it did in which order."""

    def __init__(self, pool_version=0, **rules):
        self.rules = StreamRules(required_samples=2, **rules)
        self.queue = StreamQueue(self.rules, folder=None, version=pool_version)
        self.pool_version, self.log = pool_version, []
        self.fails_with = None
        self.loads = asyncio.Event()
        self.loads.set()
        """What an update waits for."""
        self.playing_ended = asyncio.Event()
        self.publisher = Publisher(
            self.queue, self.rules, update=self._update, pool_version=self._version,
            cancel=lambda tickets: self.log.append(("cancel", list(tickets))), idle=self._idle,
        )  # fmt: skip

    async def _version(self):
        return self.pool_version

    async def _idle(self):
        self.log.append("waits for rollouts")
        await self.playing_ended.wait()

    async def _update(self, weights, *, version, mode, **options):
        self.log.append((weights, version, mode, options))
        await self.loads.wait()
        if self.fails_with:
            raise self.fails_with
        self.pool_version = version
        replicas = (ReplicaUpdate("replica-0", version, 0.1, 0.2, 0.1),)
        return WeightUpdate(version, mode, 0.0, 0.0, replicas, 0.5)


async def test_the_next_version_is_published_and_both_sides_are_on_it():
    scene = Scene(pool_version=4)
    update = await scene.publisher.publish("a folder", recompute=True)
    assert update.version == 5
    assert scene.log[0] == ("a folder", 5, "keep", {"recompute": True})
    now = await scene.queue.snapshot()
    assert (now.version, now.pool_version) == (5, 5)
    (mark,) = now.publishes
    assert (mark.version, mark.mode, mark.error) == (5, "keep", "")
    assert mark.stopped_s == pytest.approx(0.4)


async def test_weights_that_somebody_else_gave_the_pool_are_counted():
    scene = Scene()
    scene.pool_version = 7
    assert (await scene.publisher.publish("w")).version == 8


async def test_a_pool_that_was_started_anew_gets_the_version_that_the_learner_is_on(tmp_path):
    former = StreamQueue(StreamRules(), folder=tmp_path, version=6)
    await former.begin_publish(7)
    await former.close()
    scene = Scene()
    scene.queue = scene.publisher._queue = StreamQueue(scene.rules, folder=tmp_path, version=0)
    assert "a publish" in (await scene.queue.snapshot()).waits_for
    assert (await scene.publisher.publish("what the learner saved")).version == 7
    assert await scene.queue.admit([], 1, 0.0)
    await scene.queue.close()


@pytest.mark.parametrize("bound", [0, 1])
async def test_what_was_learned_after_the_last_version_makes_the_next_on_a_pool_begun_anew(
    tmp_path, bound
):
    former = Scene(max_staleness=bound)
    former.queue = former.publisher._queue = StreamQueue(former.rules, folder=tmp_path)
    for _ in range(2):
        assert await taken(former.queue) == 2
        await former.queue.commit((await former.queue.snapshot()).batches)
        if not former.pool_version:
            await former.publisher.publish("after one step")
    await former.queue.close()  # after its second step, before it could publish that

    scene = Scene(max_staleness=bound)
    scene.queue = scene.publisher._queue = StreamQueue(scene.rules, folder=tmp_path)
    assert (await scene.publisher.publish("after two steps")).version == 2
    now = await scene.queue.snapshot()
    assert (now.version, now.pool_version, now.handed) == (2, 2, 0)
    assert {ticket.start_version for ticket in await scene.queue.admit([], 9, 0.0)} == {2}
    await scene.queue.close()


@pytest.mark.parametrize("version", [0, 2, -1, "1"])
async def test_another_version_than_the_next_is_refused_and_nothing_happens(version):
    scene = Scene()
    with pytest.raises(ConfigError, match="1, the one after the pool's"):
        await scene.publisher.publish("w", version)
    assert (await scene.queue.snapshot()).version == 0
    assert len(scene.log) == 0


async def test_a_failed_publish_stops_the_stream_where_that_is_its_rule():
    scene = Scene()
    scene.fails_with = WeightsError("no replica took them: replica-0 is on fire")
    with pytest.raises(WeightsError):
        await scene.publisher.publish("w")
    now = await scene.queue.snapshot()
    assert now.state == "failed"
    assert "version 1 was not published: no replica took them: replica-0 is on fire" in now.error
    with pytest.raises(StreamError, match="replica-0 is on fire"):
        await scene.queue.admit([], 1, 0.0)


async def test_or_it_goes_on_with_the_old_weights_as_long_as_it_takes():
    scene = Scene(on_failed_publish="go_on", max_staleness=0)
    scene.fails_with = WeightsError("no replica took them")
    for _ in range(3):
        assert await taken(scene.queue) == 2
        with pytest.raises(WeightsError):
            await scene.publisher.publish("w")
        now = await scene.queue.snapshot()
        assert (now.state, now.version, now.pool_version) == ("running", 0, 0)
    assert [mark.error for mark in now.publishes] == ["no replica took them"] * 3
    scene.fails_with = None
    assert (await scene.publisher.publish("better")).version == 1
    assert await taken(scene.queue) == 2


async def taken(queue):
    """Play and take one batch; how many groups it has."""
    for ticket in await queue.admit([], 2, 0.0):
        await queue.put(GroupHeader.of(ticket, ()), pack(()))
    return len((await queue.take(2, 0.0, "learner", (await queue.snapshot()).batches)).groups)


async def test_weights_that_no_engine_saw_change_nothing_and_stop_nothing():
    scene = Scene()
    assert await taken(scene.queue) == 2
    before = await scene.queue.snapshot()
    scene.fails_with = CheckpointError("lm_head", "is not finite")
    with pytest.raises(CheckpointError):
        await scene.publisher.publish("w")
    with pytest.raises(ConfigError, match="mode"):
        await scene.publisher.publish("w", mode="abrt")
    now = await scene.queue.snapshot()
    assert (now.state, now.version, now.handed) == ("running", 0, before.handed)
    assert "not finite" in now.publishes[-1].error


@pytest.mark.parametrize("policy", ["drop", "cancel"])
@pytest.mark.parametrize(
    "problem", [CheckpointError("lm_head", "is not finite"), WeightsError("no replica took them")]
)
async def test_a_publish_that_does_not_come_about_costs_no_group(policy, problem):
    rules = {"when_too_old": policy, "on_failed_publish": "go_on", "max_voids": 3}
    scene = Scene(max_staleness=0, trigger_parameter_sync_step=2, **rules)
    tickets = await scene.queue.admit([], 4, 0.0)
    for ticket in tickets[:3]:
        await scene.queue.put(GroupHeader.of(ticket, ()), pack(()))
    scene.fails_with = problem
    before = await scene.queue.snapshot()
    assert (before.in_queue, before.in_flight) == (3, 1)
    for _ in range(3):
        with pytest.raises(type(problem)):
            await scene.publisher.publish("w")
    now = await scene.queue.snapshot()
    assert (now.queued, now.running, now.drops) == (before.queued, before.running, ())
    assert not [entry for entry in scene.log if entry[0] == "cancel"]
    assert len((await scene.queue.take(2, 0.0, "learner", 0)).groups) == 2


async def interrupted(scene, when):
    """A publish, interrupted as soon as this is so."""
    publish = asyncio.ensure_future(scene.publisher.publish("w"))
    while not await when():
        await asyncio.sleep(0)
    publish.cancel()
    return publish


async def test_a_publish_that_is_interrupted_before_an_engine_saw_it_leaves_nothing_behind():
    scene = Scene(partial_rollout=False)
    assert await taken(scene.queue) == 2

    async def waits():
        return "waits for rollouts" in scene.log

    publish = await interrupted(scene, waits)
    with pytest.raises(asyncio.CancelledError):
        await publish
    now = await scene.queue.snapshot()
    assert (now.state, now.version, now.handed) == ("running", 0, 2)
    assert [mark.error for mark in now.publishes] == ["it was interrupted"]
    assert await scene.queue.admit([], 1, 0.0)
    scene.playing_ended.set()
    for ticket in await scene.queue.admit([], 9, 0.0):
        await scene.queue.put(GroupHeader.of(ticket, ()), pack(()))
    assert (await scene.publisher.publish("w")).version == 1


@pytest.mark.parametrize("waits", [True, False])
async def test_an_interrupted_publish_that_engines_are_at_is_booked_as_it_ends(waits):
    scene = Scene()
    scene.loads.clear()

    async def is_updating():
        return bool(scene.log)

    publish = await interrupted(scene, is_updating)
    await asyncio.sleep(0.01)
    assert not publish.done(), "engines do not stop half way"
    if not waits:  # whoever interrupts again does not want to know
        publish.cancel()
        with pytest.raises(asyncio.CancelledError):
            await publish
    again = asyncio.ensure_future(scene.publisher.publish("better"))
    await asyncio.sleep(0.01)
    scene.loads.set()
    assert (await again).version == 2
    with pytest.raises(asyncio.CancelledError):
        await publish
    now = await scene.queue.snapshot()
    assert [(mark.version, mark.error) for mark in now.publishes] == [(1, ""), (2, "")]
    assert (now.version, now.pool_version, scene.pool_version) == (2, 2, 2)


async def test_an_interrupted_publish_that_no_replica_takes_is_booked_as_failed():
    scene = Scene()
    scene.loads.clear()
    scene.fails_with = WeightsError("no replica took them")

    async def is_updating():
        return bool(scene.log)

    publish = await interrupted(scene, is_updating)
    scene.loads.set()
    with pytest.raises(asyncio.CancelledError):
        await publish
    now = await scene.queue.snapshot()
    assert (now.state, now.version) == ("failed", 0)
    assert [mark.error for mark in now.publishes] == ["no replica took them"]


async def test_without_partial_rollouts_it_waits_for_tickets_on_their_way_too():
    scene = Scene(partial_rollout=False)
    scene.playing_ended.set()
    (ticket,) = await scene.queue.admit([], 1, 0.0)  # the rollouter has not heard of it yet
    publish = asyncio.ensure_future(scene.publisher.publish("w"))
    while (await scene.queue.snapshot()).state != "publishing":
        await asyncio.sleep(0)
    await asyncio.sleep(0.2)
    assert not publish.done()
    await scene.queue.put(GroupHeader.of(ticket, ()), pack(()))
    await publish


async def test_without_partial_rollouts_a_publish_waits_for_those_in_flight_and_none_begins():
    scene = Scene(partial_rollout=False)
    publish = asyncio.ensure_future(scene.publisher.publish("w"))
    while "waits for rollouts" not in scene.log:
        await asyncio.sleep(0)
    assert (await scene.queue.admit([], 8, 0.0)) == []
    assert (await scene.queue.snapshot()).state == "publishing"
    scene.playing_ended.set()
    await publish
    assert await scene.queue.admit([], 8, 0.0)


async def test_groups_that_are_too_old_for_the_new_version_are_cancelled_once_it_is_there():
    scene = Scene(when_too_old="cancel", max_staleness=0)
    assert await scene.queue.admit([], 1, 0.0) == [OLD]
    await scene.publisher.publish("w")
    assert scene.log == [("w", 1, "keep", {}), ("cancel", [OLD])]


def test_a_ledger_of_these_rules_is_the_queues_too():
    assert StreamLedger(StreamRules()).free == 16
