"""The balancer ends up with the replicas that there are, in whichever order it hears of them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from tests.unit.cluster.fakes import Method, Pool
from workbench.cluster.balancer import BalancerActor
from workbench.cluster.introduction import Introduction
from workbench.config import RoutingConfig


class Late:
    """Answers a call only when it is let to, as an actor that is busy."""

    def __init__(self):
        self.gates, self.heard = [], []

    async def restore(self, number, known, states, starting):
        gate = asyncio.Event()
        self.gates.append(gate)
        await gate.wait()
        self.heard.append(list(known))


async def test_what_is_said_later_is_heard_later_and_is_the_latest():
    pool, late = Pool(), Late()
    first, second = pool.make("n1"), pool.make("n1")
    first.is_known = second.is_known = True
    introduction = Introduction(SimpleNamespace(restore=Method(late.restore)), pool.members)
    telling = []
    for member in (first, second):
        member.is_known = False
        telling.append(asyncio.ensure_future(introduction.tell()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(late.gates) == 1  # the second waits until the first was heard
    while not all(told.done() for told in telling):
        for gate in late.gates:
            gate.set()
        await asyncio.sleep(0)
    assert late.heard[-1] == []


async def test_one_that_serves_is_not_waited_for():
    pool, heard = Pool(), []
    pool.make("n1").is_known = True  # in the last step of its start
    pool.make("n1")
    restore = Method(lambda number, known, states, starting: heard.append((list(known), starting)))
    await Introduction(SimpleNamespace(restore=restore), pool.members).tell()
    assert heard == [(["replica-0"], ["replica-1"])]


async def test_news_that_come_late_change_nothing():
    balancer = BalancerActor(None, RoutingConfig(), 0)
    try:
        await balancer.restore(2, {"a": "its actor"}, {}, [])
        await balancer.restore(1, {"a": "its actor", "b": "one that is gone"}, {}, ["c"])
        assert balancer.get_all_servers() == ["a"]
        await balancer.restore(3, {"a": "another actor"}, {}, [])
        assert balancer.handles() == {"a": "another actor"}
    finally:
        await balancer._host.close()
