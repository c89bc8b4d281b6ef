"""Whoever takes batches: in time, by name, again after a crash."""

from __future__ import annotations

import asyncio
import pickle
from dataclasses import replace

import pytest

from tests.unit.inprocess import virtually
from workbench.errors import ConfigError, DeadlineError, StreamEndedError, StreamError
from workbench.metrics.streams import PublishMark
from workbench.stream.consuming import Consumer
from workbench.stream.groups import GroupHeader
from workbench.stream.packing import pack
from workbench.stream.queue import StreamQueue
from workbench.stream.rules import StreamRules


def consumer(queue, name="main", **options):
    return Consumer(queue, name, required_samples=2, pad_id=0, **options)


async def filled(groups, **rules):
    """A queue in which so many groups wait."""
    queue = StreamQueue(StreamRules(**{"required_samples": 2, **rules}), folder=None)
    for ticket in await queue.admit([], groups, 0.0):
        await queue.put(GroupHeader.of(ticket, ()), pack(()))
    return queue


def positions(batch):
    return [group.position for group in batch.groups]


@virtually
async def test_batches_come_in_order_and_each_is_committed_when_the_next_is_asked_for():
    queue = await filled(4)
    await queue.source_ended(4)
    taken = [(batch.number, positions(batch)) async for batch in consumer(queue)]
    assert taken == [(1, [0, 1]), (2, [2, 3])]
    assert [row["committed"] for row in await queue.batches()] == [True, True]


@virtually
async def test_what_is_left_over_at_the_end_is_a_batch_too():
    queue = await filled(3)
    await queue.source_ended(3)
    main = consumer(queue)
    assert len(await main.get_batch()) == 2
    assert positions(await main.get_batch()) == [2]
    with pytest.raises(StreamEndedError, match="all tasks were used up"):
        await main.get_batch()


@virtually
async def test_a_batch_that_does_not_come_in_time_says_what_the_stream_waits_for():
    queue = await filled(1)
    with pytest.raises(DeadlineError, match=r"no batch within 3 s: it waits for .+"):
        await consumer(queue).get_batch(timeout_s=3.0)
    assert (await queue.snapshot()).in_queue == 1, "nothing was taken"


@virtually
async def test_a_learner_that_never_publishes_is_told_that_this_is_waited_for():
    queue = await filled(4)
    main = consumer(queue)
    for _ in range(2):
        await main.get_batch()
        await main.commit()
    with pytest.raises(DeadlineError, match="publish"):
        await main.get_batch(timeout_s=1.0)
    await queue.begin_publish(1)
    await queue.end_publish(PublishMark(0.0, 1, "keep", 0.0, 0.0))
    assert await queue.admit([], 9, 0.0)


@virtually
async def test_what_a_consumer_took_and_did_not_commit_comes_back_to_the_next_of_its_name():
    queue = await filled(4)
    first, other = consumer(queue, "learner"), consumer(queue, "another")
    assert positions(await first.get_batch()) == [0, 1]
    await first.commit()
    assert positions(await first.get_batch()) == [2, 3]
    with pytest.raises(DeadlineError):
        await other.get_batch(timeout_s=1.0)
    again = await consumer(queue, "learner").get_batch()  # the first one crashed
    assert positions(again) == [2, 3]


@virtually
async def test_several_consumers_get_each_group_once():
    queue = await filled(4)
    one, two = consumer(queue, "one"), consumer(queue, "two")
    assert positions(await one.get_batch()) + positions(await two.get_batch()) == [0, 1, 2, 3]


@virtually
async def test_a_loop_that_was_left_by_an_error_begins_again_with_the_batch_that_it_was_in():
    queue = await filled(4)
    await queue.source_ended(4)
    main, learned = consumer(queue), []

    async def learn(dies_at):
        async for batch in main:
            if batch.number == dies_at:
                raise RuntimeError("the learner died")
            learned.extend(positions(batch))

    with pytest.raises(RuntimeError):
        await learn(dies_at=2)
    await learn(dies_at=None)
    assert learned == [0, 1, 2, 3]
    assert all(row["committed"] for row in await queue.batches())


@virtually
async def test_two_who_ask_at_once_under_one_name_get_different_batches():
    queue = await filled(4)
    main = consumer(queue)
    one, two = await asyncio.gather(main.get_batch(), main.get_batch())
    assert positions(one) + positions(two) == [0, 1, 2, 3]
    await main.commit()
    assert all(row["committed"] for row in await queue.batches())


@virtually
async def test_a_batch_that_did_not_arrive_is_given_again():
    queue = await filled(4)
    main = consumer(queue)
    assert positions(await main.get_batch()) == [0, 1]
    await main.commit()
    assert positions(await main.get_batch()) == [2, 3]
    main.missed()
    assert positions(await main.get_batch()) == [2, 3]


@virtually
async def test_who_waits_for_long_is_told_once_what_for():
    queue, told = await filled(4), []
    main = consumer(queue, tell=told.append)
    for _ in range(2):
        await main.get_batch()
    with pytest.raises(DeadlineError):
        await main.get_batch(timeout_s=60.0)
    assert told == [
        "no batch for 10 s: it waits for a publish: 4 groups of version 0 were taken or wait"
    ]


@virtually
async def test_a_batch_larger_than_what_may_still_begin_waits_for_a_publish():
    queue = await filled(4)
    main = consumer(queue)
    await main.get_batch(2)
    with pytest.raises(DeadlineError, match="it waits for a publish"):
        await main.get_batch(4, timeout_s=1.0)


@virtually
async def test_a_stream_that_failed_says_so_after_what_it_had():
    queue = await filled(3)
    await queue.fail("the task source raised at task 3: OSError: gone")
    main = consumer(queue)
    assert [len(await main.get_batch()), len(await main.get_batch())] == [2, 1]
    with pytest.raises(StreamError, match="OSError: gone") as caught:
        await main.get_batch()
    assert not isinstance(caught.value, StreamEndedError)


@virtually
async def test_a_batch_that_can_never_be_full_is_refused_with_the_inequality():
    queue = await filled(1)
    for n, told in ((0, "from 1"), (5, "1 <= n <= 4"), (True, "from 1"), (1.5, "from 1")):
        with pytest.raises(ConfigError, match=told):
            await consumer(queue).get_batch(n)
    with pytest.raises(ConfigError, match="consumer"):
        consumer(queue, "")


def test_it_can_be_sent_to_another_process():
    sent = pickle.loads(pickle.dumps(consumer(None, "other")))
    assert sent.name == "other"


class Slow:
    """A queue that commits take their time to reach."""

    def __init__(self, queue, *waits_s):
        self._queue, self._waits_s = queue, list(waits_s)
        self.committed = []

    async def commit(self, number):
        await asyncio.sleep(self._waits_s.pop(0) if self._waits_s else 0.0)
        await self._queue.commit(number)
        self.committed.append(number)

    def __getattr__(self, name):
        return getattr(self._queue, name)


@virtually
async def test_two_commits_at_once_lose_no_batch():
    queue = await filled(4)
    main = consumer(Slow(queue, 1.0, 5.0))
    await main.get_batch()
    first, second = asyncio.ensure_future(main.commit()), asyncio.ensure_future(main.commit())
    await first
    await main.get_batch()
    await second
    await main.commit()
    assert [row["committed"] for row in await queue.batches()] == [True, True]


@virtually
async def test_a_commit_is_of_what_was_there_when_it_was_asked_for():
    queue = await filled(4)
    main = consumer(Slow(queue, 1.0))
    await main.get_batch()
    commit = asyncio.ensure_future(main.commit())
    await asyncio.sleep(0.5)
    await main.get_batch()  # nobody is done with this one
    await commit
    assert [row["committed"] for row in await queue.batches()] == [True, False]


@virtually
async def test_a_loop_that_begins_during_a_commit_gets_what_is_not_committed():
    queue = await filled(4)
    slow = Slow(queue, 1.0, 1.0)
    main = consumer(slow)
    await main.get_batch()
    commit = asyncio.ensure_future(main.commit())
    await asyncio.sleep(0.5)
    await main.again()
    assert positions(await main.get_batch()) == [2, 3]
    await commit


@virtually
async def test_what_did_not_arrive_comes_again_also_where_a_commit_is_under_way():
    queue = await filled(4)
    slow = Slow(queue, 1.0)
    main = consumer(slow)
    await main.get_batch()
    await main.get_batch()
    commit = asyncio.ensure_future(main.commit())
    await asyncio.sleep(0.5)
    main.missed()
    await commit
    assert slow.committed == [1]
    assert positions(await main.get_batch()) == [2, 3]


@virtually
async def test_who_knows_more_of_the_stream_than_its_queue_is_asked_what_it_waits_for():
    queue = await filled(1)

    async def look():
        return replace(await queue.snapshot(), waits_for="room in the pool")

    with pytest.raises(DeadlineError, match="it waits for room in the pool"):
        await consumer(queue, look=look).get_batch(timeout_s=1.0)
