"""A node of several goes, with all that runs there: the pool is made whole on the others.

The cluster has a process of its own, since a process can be in one cluster only.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import ray

from tests.chaos.pools import rounds, settled, simulated
from tests.chaos.scenario import moments, played
from tests.integration.processes import MARK, RAY_AGENTS, left_behind, new_mark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.chaos, pytest.mark.ray]

TOKENS = 60
NODES = 3
SIZE = {"num_cpus": 2, "object_store_memory": 80 * 2**20, "include_dashboard": False}
SOON = {"health_check_period_ms": 500, "health_check_failure_threshold": 3}
"""When a node whose raylet does not answer counts as gone."""


class Lab:
    """The cluster, in its process."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        head = {**SIZE, "_system_config": SOON}
        self.cluster: Any = Cluster(initialize_head=True, head_node_args=head)
        self.others: list[Any] = []
        self.fill()
        ray.init(address=self.cluster.address, namespace="workbench", log_to_driver=False)

    def fill(self) -> None:
        """As many nodes as there were at first."""
        while len(self.others) < NODES - 1:
            self.others.append(self.cluster.add_node(**SIZE))


lab: Lab


def start(mark: str) -> None:
    global lab  # noqa: PLW0603 - of the process that is the cluster's
    os.environ[MARK] = mark
    lab = Lab()


def stop() -> None:
    ray.shutdown()
    lab.cluster.shutdown()


def node_killed(seed: int, diary: str) -> str:
    """A line about a batch during which a node with a replica was killed."""
    _, (at,) = moments(f"node {seed}")
    lab.fill()
    with simulated(NODES, placement="spread", workers=0) as bench:
        settled(bench, NODES)

        def strike() -> str:
            doomed = without_controller()
            raylet = doomed.all_processes["raylet"][0].process.pid
            lab.others.remove(doomed)
            os.kill(raylet, signal.SIGKILL)
            return "a node killed"

        outcome = played(bench, Path(diary), [(at, strike)], tokens=TOKENS, replicas=NODES)
        assert outcome.resumed > 0
        assert outcome.replaced >= 1
    return str(outcome)


def without_controller() -> Any:
    """A node that is not the head and has a replica, but not what the pool cannot be without."""
    untyped: Any = ray
    where = {}
    for actor in untyped._private.state.actors().values():
        if actor["State"] == "ALIVE":
            where.setdefault(actor["Address"]["NodeID"], []).append(actor["ActorClassName"])
    for node in lab.others:
        there = where.get(node.node_id, [])
        if "ReplicaActor" in there and "PoolController" not in there:
            return node
    raise AssertionError(where)


@pytest.fixture(scope="module")
def inside() -> Iterator[Callable[..., Any]]:
    """Runs something in the cluster's process."""
    mark = new_mark()
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        process.submit(start, mark).result()
        yield lambda *call: process.submit(*call).result()
        process.submit(stop).result()
    assert not left_behind(mark, ignoring=RAY_AGENTS)


@pytest.mark.parametrize("seed", range(rounds(1)))
def test_a_node_is_killed(
    inside: Callable[..., Any], tmp_path: Path, tell: Callable[[str], None], seed: int
) -> None:
    tell(inside(node_killed, seed, str(tmp_path / "turns")))
