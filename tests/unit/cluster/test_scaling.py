"""More and fewer replicas, whoever asks at the same time, and replicas that fail meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.cluster.fakes import Actor, Engine
from workbench.cluster import scaling
from workbench.cluster.introduction import Introduction
from workbench.cluster.members import Members
from workbench.cluster.replica_verbs import ReplicaVerbs
from workbench.cluster.scaling import Scaling
from workbench.cluster.supervisor import Supervisor
from workbench.config import PoolConfig
from workbench.errors import ConfigError, PoolError
from workbench.supervision import SupervisionConfig
from workbench.types import ReplicaState

CONFIG = PoolConfig(
    model="m", replicas=2, supervision=SupervisionConfig(max_restarts=1, backoff_s=0.0)
)


class Books:
    """The balancer, as far as it is told which replicas there are."""

    def __init__(self):
        self.known, self.starting = [], []

    def restore(self, number, known, states, starting):
        self.known, self.starting = list(known), starting

    def set_state(self, replica_id, state):
        pass

    def get_inflight_count(self, replica_id):
        return 0


class Fleet:
    """Starts and stops at once, unless it is told to wait or to fail."""

    def __init__(self, introduction):
        self.introduction = introduction
        self.broken = False
        self.gate = asyncio.Event()
        self.gate.set()

    async def bring_up(self, member, seat=None):
        member.note(state=ReplicaState.STARTING)
        await self.introduction.tell()
        await self.gate.wait()
        if self.broken:
            await self.take_down(member, ReplicaState.STOPPED)
            raise PoolError("it does not start")
        member.handle, member.is_known = Actor(Engine(member.replica_id)), True
        await self.introduction.tell()
        member.note(state=ReplicaState.READY)

    async def take_down(self, member, state, *, gently=True):
        member.handle, member.is_known = None, False
        member.note(state=state)
        await self.introduction.tell()


class World:
    def __init__(self, monkeypatch):
        async def find_seats(config, count, taken):
            return [None] * count

        monkeypatch.setattr(scaling, "find_seats", find_seats)
        self.books = Books()
        self.members = Members()
        introduction = Introduction(Actor(self.books), self.members)
        self.fleet = Fleet(introduction)
        self.scaling = Scaling(CONFIG, self.members, self.fleet, introduction, Actor(self.books))
        self.supervisor = Supervisor(CONFIG.supervision, self.members, self.fleet)
        self.scaling.take_over = self.supervisor.leave

    @property
    def ids(self):
        return [member.replica_id for member in self.members]

    async def mended(self, member, problem="its process is gone"):
        self.supervisor.mend(member, member.handle, problem)
        while task := self.supervisor._mending.get(member):
            await asyncio.wait([task])
            await asyncio.sleep(0)


@pytest.fixture
async def world(monkeypatch):
    made = World(monkeypatch)
    await made.scaling.first()
    return made


async def test_two_who_want_four_get_four(world):
    await asyncio.gather(*(world.scaling.scale(4, drain_s=0) for _ in range(2)))
    assert world.ids == world.books.known == [f"replica-{i}" for i in range(4)]


async def test_two_who_take_one_each_do_not_empty_the_pool(world):
    results = await asyncio.gather(
        *(world.scaling.remove([name], drain_s=0) for name in ("replica-0", "replica-1")),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [type(None), ConfigError]
    assert world.ids == world.books.known == ["replica-1"]


async def test_the_newest_leave_first_but_those_that_were_given_up_before_them(world):
    await world.scaling.scale(4, drain_s=0)
    world.fleet.broken = True
    await world.mended(world.members.get("replica-1"))
    assert world.members.get("replica-1").status.state is ReplicaState.UNHEALTHY
    await world.scaling.scale(2, drain_s=0)
    assert world.ids == ["replica-0", "replica-2"]


async def test_turns_wait_for_what_starts_and_not_for_what_was_given_up(world):
    world.fleet.gate.clear()
    adding = asyncio.ensure_future(world.scaling.add(1))
    while world.books.starting != ["replica-2"]:
        await asyncio.sleep(0)
    world.fleet.broken = True
    world.fleet.gate.set()
    with pytest.raises(PoolError):
        await adding
    assert world.books.starting == []
    await world.mended(world.members.get("replica-0"))
    assert (world.books.known, world.books.starting) == (["replica-1"], [])
    told = world.members.get("replica-0").status.error
    assert told == "given up after 1 restarts: it does not start"


async def test_news_of_a_former_process_do_not_end_the_one_that_took_its_place(world):
    member = world.members.get("replica-0")
    former = member.handle
    await world.mended(member)
    fresh = member.handle
    world.supervisor.mend(member, former, "weights of version 1: its process is gone")
    await asyncio.sleep(0)
    assert member.handle is fresh is not former
    assert member.budget.used == 1


async def test_who_is_taken_out_need_not_wait_until_its_replacement_has_started(world):
    member = world.members.get("replica-0")
    world.fleet.gate.clear()
    world.supervisor.mend(member, member.handle, "its process is gone")
    while world.books.starting != ["replica-0"]:
        await asyncio.sleep(0)
    await world.scaling.remove(["replica-0"], drain_s=0)
    assert (world.ids, world.books.starting) == (["replica-1"], [])


async def test_one_that_was_given_up_can_be_started_anew(world):
    member = world.members.get("replica-0")
    world.fleet.broken = True
    await world.mended(member)
    with pytest.raises(PoolError, match="it does not start"):
        await world.scaling.restart("replica-0", drain_s=0)
    assert member.status.state is ReplicaState.UNHEALTHY
    assert world.books.starting == []
    world.fleet.broken = False
    await world.scaling.restart("replica-0", drain_s=0)
    assert (member.status.state, member.status.error) == (ReplicaState.READY, "")
    assert sorted(world.books.known) == ["replica-0", "replica-1"]


async def test_an_order_for_all_passes_over_one_that_is_being_replaced(world):
    verbs = ReplicaVerbs(world.members, Actor(world.books))
    gone = world.members.get("replica-0")
    gone.handle = None  # taken down while the order was on its way
    await verbs.pause(None, "keep")
    await verbs.resume(None)
    assert world.members.get("replica-1").status.state is ReplicaState.READY
