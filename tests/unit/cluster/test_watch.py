"""The controller's view of its pool: what cannot be had is missing, and holds up nothing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorUnavailableError

from workbench.cluster.watch import PoolWatch
from workbench.engines.virtual_clock import run_virtual
from workbench.errors import BalancerLostError
from workbench.metrics.samples import Activity
from workbench.types import (
    EngineFigures,
    PoolSnapshot,
    ReplicaLoad,
    ReplicaState,
    ReplicaStatus,
    RoutingSnapshot,
)


class Actor:
    """Has methods with ``remote``, as an actor's handle; ``answer`` says what comes of a call."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[tuple[Any, ...]] = []
        self.figures = self.sample = self.snapshot = SimpleNamespace(remote=self._call)

    async def _call(self, *args: Any) -> Any:
        self.asked.append(args)
        answer = self.answer
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, asyncio.Event):
            await answer.wait()
            return EngineFigures(running=1)
        return answer


@dataclass
class Replica:
    status: ReplicaStatus
    handle: Any = None


def replica(name: str, answer: Any, state: ReplicaState = ReplicaState.READY) -> Replica:
    return Replica(ReplicaStatus(name, state, ""), None if answer is None else Actor(answer))


def load(name: str, state: ReplicaState = ReplicaState.READY) -> ReplicaLoad:
    return ReplicaLoad(name, state, in_flight=3, peak_in_flight=3, sessions=1, acquired=3)


BOOKS = RoutingSnapshot(
    1, "sticky", (load("a"), load("b", ReplicaState.UNHEALTHY)),
    sessions=2, acquired=6, sticky=4, first_touch=2, moves=0,
)  # fmt: skip
DONE = (BOOKS, Activity(cursor=9))


def watch(balancer: Any, *replicas: Replica) -> PoolWatch:
    pool = PoolSnapshot("lab", "model", "cpu", (), None)
    return PoolWatch(pool, balancer, lambda: replicas, period_s=1.0)


def test_a_sample_has_life_books_and_figures_of_each_replica_side_by_side():
    async def story():
        balancer = Actor(DONE)
        one = replica("a", EngineFigures(running=2))
        other = replica("b", EngineFigures(running=5))
        return balancer, await watch(balancer, one, other).take(4)

    balancer, sample = run_virtual(story())
    assert balancer.asked == [(4, 30)]
    assert sample.activity.cursor == 9
    assert (sample.pool.name, sample.pool.routing) == ("lab", BOOKS)
    assert [r.engine.running for r in sample.pool.replicas] == [2, 5]
    assert [r.load.in_flight for r in sample.pool.replicas] == [3, 3]
    assert [r.status.state for r in sample.pool.replicas] == ["ready", "unhealthy"]
    assert dict(sample.heard_s) == dict.fromkeys("ab", sample.time_s)


def test_a_replica_that_hangs_is_missing_in_time_for_the_next_sample_and_not_asked_again():
    async def story():
        hangs = asyncio.Event()
        slow, quick = replica("a", hangs), replica("b", EngineFigures())
        looking = watch(Actor(DONE), slow, quick)
        began_s = asyncio.get_running_loop().time()
        first = await looking.take(0)
        assert asyncio.get_running_loop().time() - began_s < 1.0
        second = await looking.take(0)
        assert len(slow.handle.asked) == 1
        hangs.set()
        third = await looking.take(0)
        fourth = await looking.take(0)
        assert len(slow.handle.asked) == 2
        return first, second, third, fourth

    first, second, third, fourth = run_virtual(story())
    for sample in (first, second):
        assert [r.engine is None for r in sample.pool.replicas] == [True, False]
        assert sample.pool.replicas[0].load == load("a")
        assert [who for who, _ in sample.heard_s] == ["b"]
    assert third.pool.replicas[0].engine == fourth.pool.replicas[0].engine != None  # noqa: E711
    assert dict(third.heard_s)["a"] == third.time_s


def test_a_replica_that_fell_silent_keeps_the_time_it_was_last_heard():
    async def story():
        fell = replica("a", EngineFigures())
        looking = watch(Actor(DONE), fell)
        first = await looking.take(0)
        fell.handle.answer = ActorUnavailableError("gone", None)
        return first, await looking.take(0)

    first, second = run_virtual(story())
    assert second.pool.replicas[0].engine is None
    assert second.heard_s == first.heard_s
    assert second.time_s > first.heard_s[0][1]


@pytest.mark.parametrize("answer", [ActorUnavailableError("starts over", None), "hangs"])
def test_without_the_books_there_are_the_figures_and_the_events_are_read_later(answer):
    async def story():
        balancer = Actor(asyncio.Event() if answer == "hangs" else answer)
        return await watch(balancer, replica("a", EngineFigures(running=2))).take(7)

    sample = run_virtual(story())
    assert sample.pool.routing is None
    assert sample.activity == Activity(cursor=7)
    assert sample.pool.replicas[0].load is None
    assert sample.pool.replicas[0].engine == EngineFigures(running=2)


def test_a_replica_without_a_process_is_there_without_figures():
    async def story():
        stopped = replica("a", None, ReplicaState.STOPPED)
        return await watch(Actor(DONE), stopped).take(0)

    sample = run_virtual(story())
    assert sample.pool.replicas[0].engine is None
    assert sample.pool.replicas[0].status.state == "stopped"
    assert sample.heard_s == ()


def test_who_asks_for_the_pool_is_told_when_the_balancer_is_away():
    looking = watch(
        Actor(ActorUnavailableError("starts over", None)), replica("a", EngineFigures())
    )
    with pytest.raises(BalancerLostError):
        run_virtual(looking.snapshot())
