"""Weights reach every replica, those that start too, whatever breaks meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.cluster.fakes import Pool
from workbench.cluster.holding import Holding
from workbench.cluster.rollover import Rollover
from workbench.errors import ConfigError, PoolError, WeightsError


class World(Pool):
    def __init__(self):
        super().__init__()
        self.failed = []
        holding = Holding(self.nodes, checks=True)
        self.rollover = Rollover(self.members, holding, self.balancer, limit_s=5.0)
        self.rollover.on_failure = lambda *told: self.failed.append(told)

    async def start(self, node_id):
        member = self.make(node_id)
        await self.rollover.admit(member)
        return member

    async def send(self, version=None):
        version, key = self.rollover.begin(version)
        await self.rollover.holding.receive(key, ["part"])
        return await self.rollover.update(None, key, version, "keep", recompute=False)

    async def load(self, directory, version=None):
        return await self.rollover.update(directory, None, version, "keep", recompute=False)

    def held(self, node_id):
        return set(self.nodes.on(node_id).behind.parts_of)


@pytest.fixture
async def world():
    made = World()
    for node_id in ("n1", "n2"):
        await made.start(node_id)
    return made


def loaded(member):
    return member.handle.behind.loaded


async def test_each_replica_reads_what_its_own_node_holds(world):
    one, two = world.members
    await world.send()
    assert (loaded(one), loaded(two)) == ([("/n1/1", 1)], [("/n2/1", 1)])
    again, elsewhere = await world.start("n2"), await world.start("n3")
    assert (loaded(again), loaded(elsewhere)) == ([("/n2/1", 1)], [("/n3/1", 1)])
    assert {member.status.version for member in world.members} == {1}


async def test_another_node_gives_them_where_one_is_gone(world):
    await world.send()
    world.nodes.on("n1").dead = True
    assert loaded(await world.start("n3")) == [("/n3/1", 1)]
    for node_id in ("n2", "n3"):
        world.nodes.on(node_id).dead = True
    with pytest.raises(WeightsError, match="no node has these weights any more"):
        await world.start("n4")


async def test_a_receiver_that_dies_costs_no_holder_its_weights(world):
    await world.send()
    world.nodes.on("n3").dead = True
    with pytest.raises(PoolError, match="a node of the pool is gone"):
        await world.start("n3")
    world.nodes.on("n3").dead = False
    assert loaded(await world.start("n3")) == [("/n3/1", 1)]


async def test_of_two_transfers_of_one_version_only_one_gets_in_and_none_gets_mixed(world):
    (_, mine), (version, other) = world.rollover.begin(None), world.rollover.begin(None)
    for key, part in ((mine, "a"), (other, "b")):
        await world.rollover.holding.receive(key, [part])
    await world.rollover.update(None, mine, version, "keep", recompute=False)
    with pytest.raises(ConfigError, match="version: 1 "):
        await world.rollover.update(None, other, version, "keep", recompute=False)
    await world.rollover.holding.discard(other)
    assert world.nodes.on("n1").behind.parts_of == {mine: ["a"]}


async def test_former_weights_are_dropped_also_when_a_directory_takes_their_place(world):
    await world.send()
    await world.send()
    assert world.held("n1") == world.held("n2") == {2}
    await world.load("/checkpoints/3")
    assert world.held("n1") == world.held("n2") == set()


async def test_a_replica_that_goes_during_the_check_keeps_none_of_the_others_behind(world):
    one, two = world.members
    gone = one.handle

    async def replaced():
        gone.dead = True
        one.handle, one.node_id = None, ""

    world.nodes.on("n1").behind.on_check = replaced
    update = await world.load("/checkpoints/1")
    assert update.replaced == ("replica-0",)
    assert world.rollover.version == two.status.version == 1
    assert world.failed == [(one, gone, "weights of version 1: its process is gone")]


async def test_where_nobody_takes_them_the_pool_stays_where_it_was(world):
    await world.load("/checkpoints/1")
    for member in world.members:
        member.handle.dead = True
    with pytest.raises(WeightsError, match="no replica took version 2: replica-0: its process"):
        await world.load("/checkpoints/2")
    assert world.rollover.version == 1
    assert len(world.failed) == 2


async def test_a_checkpoint_that_was_written_over_is_loaded_by_nobody(world):
    for node_id in ("n1", "n2", "n3"):
        world.nodes.on(node_id).behind.stamps["/latest"] = (("model.safetensors", 7, 1),)
    await world.load("/latest")
    assert loaded(await world.start("n3")) == [("/latest", 1)]
    world.nodes.on("n3").behind.stamps["/latest"] = (("model.safetensors", 7, 2),)
    with pytest.raises(WeightsError, match="/latest is not any more what it was"):
        await world.start("n3")


async def test_a_replica_that_starts_during_an_update_gets_the_new_ones(world):
    entered, go = asyncio.Event(), asyncio.Event()

    async def slowly():
        entered.set()
        await go.wait()

    next(iter(world.members)).handle.behind.on_update = slowly
    updating = asyncio.ensure_future(world.load("/checkpoints/1"))
    await entered.wait()
    starting = asyncio.ensure_future(world.start("n1"))
    await asyncio.sleep(0)
    go.set()
    await updating
    assert loaded(await starting) == [("/checkpoints/1", 1)]


async def test_no_update_while_somebody_sleeps(world):
    next(iter(world.members)).is_asleep = True
    with pytest.raises(ConfigError, match=r"replica-0 sleep.*wake"):
        await world.load("/checkpoints/1")
