"""Seats in a cluster of several nodes: real raylets on one machine, with GPUs that only count.

The cluster has a process of its own, since a process can be in one cluster only.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import ray
from ray.util import placement_group_table

from workbench.cluster import seats
from workbench.cluster.placement import GIB, Seat, plan
from workbench.errors import NoRoomError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

pytestmark = [pytest.mark.ray]

SIZES: dict[str, dict[str, int]] = {
    "small": {"num_cpus": 2},
    "middle": {"num_cpus": 4, "num_gpus": 4},
    "large": {"num_cpus": 8, "num_gpus": 2},
}
MEMORY = 8 * GIB
WAIT_S = 30.0
ON_CORES: dict[str, Any] = {"on_gpu": False, "devices": 1, "memory_bytes": GIB}
ON_GPUS: dict[str, Any] = {"on_gpu": True, "devices": 2, "memory_bytes": GIB}
SIMULATED: dict[str, Any] = {"on_gpu": True, "devices": 0, "memory_bytes": GIB}


class Lab:
    """The cluster, in its process."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self.cluster: Any = Cluster()
        self.names: dict[str, str] = {}
        for name, size in SIZES.items():
            self.add(name, **size)
        ray.init(address=self.cluster.address, namespace="workbench", log_to_driver=False)

    def add(self, name: str, **size: int) -> Any:
        node = self.cluster.add_node(
            **size, memory=MEMORY, object_store_memory=80 * 2**20, include_dashboard=False
        )
        self.names[node.node_id] = name
        return node

    def named(self, node_ids: list[str]) -> list[str]:
        return [self.names[node_id] for node_id in node_ids]


lab: Lab


def start() -> None:
    global lab  # noqa: PLW0603 - of the process that is the cluster's
    lab = Lab()


def stop() -> None:
    ray.shutdown()
    lab.cluster.shutdown()


def play(scenario: Callable[..., Any], *args: Any) -> Any:
    """Run a scenario; afterwards nothing may be taken."""

    async def whole() -> Any:
        told = await scenario(*args)
        async with asyncio.timeout(WAIT_S):
            while any(node.free != node.total for node in seats.look()):
                await asyncio.sleep(0.05)
        groups = placement_group_table().values()
        assert {group["state"] for group in groups} <= {"REMOVED"}
        return told

    try:
        return asyncio.run(whole())
    except NoRoomError:
        raise
    except BaseException as error:  # noqa: BLE001 - not all that fails here could be sent to the test
        raise AssertionError("".join(traceback.format_exception(error))) from None


@pytest.fixture(scope="module")
def played() -> Iterator[Callable[..., Any]]:
    """Runs a scenario in the cluster's process and hands back what it returns or raises."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        process.submit(start).result()
        yield lambda *call: process.submit(play, *call).result()
        process.submit(stop).result()


@ray.remote
class Replica:
    """What a replica's actor finds where it runs."""

    def node(self) -> str:
        return ray.get_runtime_context().get_node_id()

    def gpus(self) -> str:
        return os.environ.get("CUDA_VISIBLE_DEVICES", "")

    def taken(self) -> dict[str, float]:
        return ray.get_runtime_context().get_assigned_resources()

    def is_in_group(self) -> bool:
        return ray.util.get_current_placement_group() is not None

    def is_child_in_group(self) -> bool:
        child: Any = Replica
        return bool(ray.get(child.remote().is_in_group.remote()))


@asynccontextmanager
async def running(planned: list[Seat], name: str = "pool") -> AsyncIterator[list[Any]]:
    """An actor on each seat."""
    groups: list[Any] = []
    try:
        for index, seat in enumerate(planned):
            groups.append(await seats.reserve(seat, f"{name}-{index}", WAIT_S))
        cls: Any = Replica
        yield [
            cls.options(**seats.options(group, seat)).remote()
            for group, seat in zip(groups, planned, strict=True)
        ]
    finally:
        for group in groups:
            seats.release(group)


async def asked(actors: list[Any], method: str) -> list[Any]:
    return list(await asyncio.gather(*(getattr(actor, method).remote() for actor in actors)))


async def growing(strategy: str) -> list[list[str]]:
    """Nodes of three replicas, and of three more that came later."""
    wanted: dict[str, Any] = {**ON_CORES, "replicas": 3, "strategy": strategy}
    async with running(await seats.find_room(**wanted)) as actors:
        first = await asked(actors, "node")
        async with running(await seats.find_room(**wanted, taken=first), "more") as others:
            return [lab.named(first), lab.named(await asked(others, "node"))]


def test_a_pool_packs_itself_where_it_fits_best_and_so_does_what_it_grows_by(
    played: Callable[..., Any],
) -> None:
    assert played(growing, "pack") == [["middle"] * 3, ["large"] * 3]


def test_a_pool_spreads_itself_evenly_and_so_does_what_it_grows_by(
    played: Callable[..., Any],
) -> None:
    first, more = played(growing, "spread")
    assert Counter(first) == Counter(list(SIZES))
    assert Counter(more) == Counter(list(SIZES))


async def on_gpus() -> tuple[list[str], list[str], str]:
    async with running(await seats.find_room(**ON_GPUS, replicas=3)) as actors:
        nodes, gpus = lab.named(await asked(actors, "node")), await asked(actors, "gpus")
        with pytest.raises(NoRoomError) as refused:
            await seats.find_room(**ON_GPUS, replicas=1, patience_s=0)
    return nodes, gpus, str(refused.value)


def test_each_replica_sees_gpus_of_its_own_and_one_too_many_is_told_how_few_are_free(
    played: Callable[..., Any],
) -> None:
    nodes, gpus, refused = played(on_gpus)
    assert nodes == ["middle", "middle", "large"]
    assert sorted("".join(gpus[:2]).replace(",", "")) == ["0", "1", "2", "3"]
    assert sorted(gpus[2].split(",")) == ["0", "1"]
    assert "room for 0 (3 if nothing else ran here)" in refused
    assert "0 of 4 GPU, 2 of 4 CPU" in refused
    assert "0 of 2 GPU, 7 of 8 CPU" in refused


async def never() -> None:
    await seats.find_room(**ON_GPUS | {"devices": 5}, replicas=1, patience_s=3600)


def test_what_can_never_fit_is_refused_at_once(played: Callable[..., Any]) -> None:
    with pytest.raises(NoRoomError, match=r"never fit.* the largest of which has 4 GPU, 4 CPU"):
        played(never)


async def booked(oversubscribe: bool) -> tuple[list[dict[str, float]], float]:
    """What two replicas took that compute on four cores each, and the cores that are free."""
    wanted = ON_CORES | {"devices": 4, "oversubscribe": oversubscribe}
    async with running(await seats.find_room(**wanted, replicas=2)) as actors:
        taken = await asked(actors, "taken")
        free = sum(node.free.get("CPU", 0) for node in seats.look())
        assert await asked(actors, "is_in_group") == [True, True]
        assert await asked(actors, "is_child_in_group") == [False, False]
        return taken, free


@pytest.mark.parametrize(
    ("oversubscribe", "taken", "free"),
    [(False, {"CPU": 4.0, "memory": GIB}, 6.0), (True, {"memory": GIB}, 14.0)],
)
def test_an_actor_alone_takes_its_whole_seat_and_oversubscribed_ones_no_core(
    played: Callable[..., Any], oversubscribe: bool, taken: dict[str, float], free: float
) -> None:
    assert played(booked, oversubscribe) == ([taken] * 2, free)


async def contended() -> tuple[str, str]:
    """The refusal of a seat that others hold, and the node of one that came free."""
    nodes = [node for node in seats.look() if lab.names[node.node_id] == "small"]
    (seat,) = plan(nodes, **ON_CORES | {"devices": 2}, replicas=1)
    first = await seats.reserve(seat, "first", WAIT_S)
    with pytest.raises(NoRoomError) as refused:
        await seats.reserve(seat, "second", 0.1)
    cancelled = asyncio.create_task(seats.reserve(seat, "cancelled", WAIT_S))
    while "PENDING" not in (g["state"] for g in placement_group_table().values()):
        await asyncio.sleep(0.01)
    cancelled.cancel()
    await asyncio.wait({cancelled})
    waiting = asyncio.create_task(seats.reserve(seat, "third", WAIT_S))
    while "PENDING" not in (g["state"] for g in placement_group_table().values()):
        await asyncio.sleep(0.01)
    for _ in range(2):
        seats.release(first)
    third = await waiting
    (node_id,) = placement_group_table(third)["bundles_to_node_id"].values()
    seats.release(third)
    return str(refused.value), lab.names[node_id]


def test_a_seat_that_others_hold_is_waited_for_and_refused_with_what_is_free_now(
    played: Callable[..., Any],
) -> None:
    refused, node = played(contended)
    assert refused.startswith("second: no place came free in 0.1 s. It needs 2 CPU, 1.0 GiB")
    assert "0 of 2 CPU, 7.0 GiB of 8.0 GiB memory" in refused
    assert node == "small"


async def closing() -> list[str]:
    """Room that was all taken when somebody asked for it, and came free then."""
    full = asyncio.Event()
    loop = asyncio.get_running_loop()
    look = seats.look

    def seen() -> list[Any]:
        nodes = look()
        loop.call_soon_threadsafe(full.set)
        return nodes

    async with running(await seats.find_room(**ON_GPUS, replicas=3)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(seats, "look", seen)
            asking = asyncio.create_task(seats.find_room(**ON_GPUS, replicas=3, patience_s=WAIT_S))
            await full.wait()
            patch.undo()
    return lab.named([seat.node_id for seat in await asking])


def test_room_is_found_where_another_pool_is_just_closing(played: Callable[..., Any]) -> None:
    assert played(closing) == ["middle", "middle", "large"]


@ray.remote(num_cpus=0)
class Owner:
    """Takes seats as a pool's controller does."""

    async def take(self) -> None:
        (seat,) = await seats.find_room(**ON_GPUS, replicas=1)
        await seats.reserve(seat, "lost-replica-0", WAIT_S)


async def abandoned() -> list[str]:
    """Which groups are left of a pool that lost its controller, and of one of nearly its name."""
    owner: Any = Owner.remote()
    await owner.take.remote()
    ray.kill(owner)
    async with running(await seats.find_room(**ON_CORES, replicas=1), "lost-replica-replica"):
        seats.release_all("lost")
        left = [g for g in placement_group_table().values() if g["state"] != "REMOVED"]
    return [group["name"] for group in left]


def test_the_seats_of_a_lost_controller_can_be_given_back(played: Callable[..., Any]) -> None:
    assert played(abandoned) == ["lost-replica-replica-0"]


async def leaving() -> tuple[str, list[tuple[str, str]]]:
    """A node ends after seats were planned on it: the refusal, and (planned, actual) nodes."""
    node = lab.add("extra", num_cpus=16)
    (seat,) = await seats.find_room(**ON_CORES | {"devices": 16}, replicas=1)
    assert lab.names[seat.node_id] == "extra"
    others = plan(seats.look(), **SIMULATED, replicas=8, strategy="spread")
    full = Seat(seat.node_id, {"CPU": 99}, "cpu", 99)
    waiting = asyncio.create_task(seats.reserve(full, "waiting", 3600))
    await asyncio.to_thread(lab.cluster.remove_node, node)
    with pytest.raises(NoRoomError, match=r"^waiting: the node of its place is gone"):
        await waiting
    with pytest.raises(NoRoomError) as refused:
        await seats.reserve(seat, "late", 3600)
    async with running(others) as actors:
        here = lab.named(await asked(actors, "node"))
        for actor in actors:
            ray.kill(actor)
    planned = lab.named([other.node_id for other in others])
    return str(refused.value), list(zip(planned, here, strict=True))


def test_a_seat_on_a_node_that_is_gone_is_refused_and_what_takes_nothing_goes_elsewhere(
    played: Callable[..., Any],
) -> None:
    refused, nodes = played(leaving)
    assert refused.startswith("late: the node of its place is gone. It needs 16 CPU")
    assert Counter(planned for planned, _ in nodes) == Counter([*SIZES, "extra"] * 2)
    assert all(actual == planned for planned, actual in nodes if planned != "extra")


async def rollouts_on_every_node() -> list[tuple[str, str]]:
    """A loop and a client that only this process knows, on workers all over the cluster."""
    from workbench.cluster.workers import RayWorker
    from workbench.rollout.loop import AgentLoopBase
    from workbench.rollout.tasks import RolloutSpec
    from workbench.rollout.worker import RolloutSetup
    from workbench.types import FinishReason, TokenOutput, VersionSpan

    class Client:
        async def generate(self, *_: Any, **__: Any) -> TokenOutput:
            return TokenOutput([7], [-0.5], FinishReason.STOP, (VersionSpan(0, 0, 1),), "replica-0")

        def end_session(self, session_id: str) -> None:
            pass

    class Where(AgentLoopBase):
        async def run(self, sampling_params: Any, **_: Any) -> None:
            await self.generate([1, 2], sampling_params)
            self.trajectory.extra["node"] = ray.get_runtime_context().get_node_id()

    workers = [RayWorker("smollm2-135m") for _ in range(6)]
    try:
        client: Any = Client()
        await asyncio.gather(*(worker.connect(client) for worker in workers))
        setup = RolloutSetup("where", Where)
        rows = await asyncio.gather(
            *(w.run(setup, RolloutSpec(f"t/{n}", "t", n, {})) for n, w in enumerate(workers))
        )
    finally:
        for worker in workers:
            worker.close()
    nodes = lab.named([row.extra["node"] for row in rows])
    return [(str(row.status), node) for row, node in zip(rows, nodes, strict=True)]


def test_workers_spread_over_the_nodes_and_play_loops_that_only_their_driver_knows(
    played: Callable[..., Any],
) -> None:
    told = played(rollouts_on_every_node)
    assert {status for status, _ in told} == {"done"}
    assert {node for _, node in told} >= {"small", "middle", "large"}
