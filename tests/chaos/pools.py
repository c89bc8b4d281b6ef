"""Pools that are to be harmed, and what has to be true of them afterwards."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import ray
from ray.util import placement_group_table

from tests.chaos.conversation import NO_STOP, PATIENCE_S, VOCABULARY
from tests.integration.processes import MARK, left_behind, new_mark
from workbench import Workbench
from workbench.cluster.connection import connect
from workbench.supervision import SupervisionConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

    from workbench.types import PoolSnapshot

MODEL = "smollm2-135m"
STEP_S = 0.02
ARGS: dict[str, Any] = {"vocab_size": VOCABULARY, "step_s": STEP_S, "stop_token": NO_STOP}
ALWAYS_AGAIN = SupervisionConfig(hang_s=2.0, max_restarts=1000, backoff_s=0.0)


@contextmanager
def pool(replicas: int = 2, **options: Any) -> Iterator[Workbench]:
    """A pool of which nothing is left afterwards: no actor, no place, no process."""
    with pytest.MonkeyPatch.context() as patch:
        mark = new_mark()
        patch.setenv(MARK, mark)
        place = connect()  # stays until the cluster was looked at
        try:
            with Workbench(MODEL, replicas, progress=False, **options) as bench:
                yield bench
            nothing_left()
        finally:
            place.close()
        assert not left_behind(mark)


def simulated(replicas: int = 2, **options: Any) -> Any:
    """One with simulated engines, that is watched over closely."""
    return pool(
        replicas,
        **{"engine": "simulated", "engine_args": ARGS, "supervision": ALWAYS_AGAIN, **options},
    )


def nothing_left() -> None:
    """No actor lives in this cluster, and nothing is reserved."""
    deadline = time.monotonic() + 60
    untyped: Any = ray
    while True:
        actors = [a for a in untyped._private.state.actors().values() if a["State"] != "DEAD"]
        groups = [g for g in placement_group_table().values() if g["state"] != "REMOVED"]
        if not actors and not groups:
            return
        assert time.monotonic() < deadline, (actors, groups)
        time.sleep(0.05)


def settled(bench: Workbench, replicas: int = 2) -> PoolSnapshot:
    """The pool once so many replicas are ready, on one version, with nothing in flight.

    Then its books have to be consistent, and each replica has to serve.
    """
    deadline = time.monotonic() + PATIENCE_S
    while True:
        seen = bench.snapshot()
        if is_settled(seen, replicas):
            break
        assert time.monotonic() < deadline, seen
        time.sleep(0.05)
    ask(bench, "check")
    assert every_one_serves(bench) == {r.status.replica_id for r in seen.replicas}
    assert len(set(bench.weight_versions().values())) == 1
    return seen


def is_settled(seen: PoolSnapshot, replicas: int) -> bool:
    books = seen.routing
    return (
        len(seen.replicas) == replicas
        and books is not None
        and not books.in_flight
        and not books.queued
        and len(books.replicas) == replicas
        and all(load.state == "ready" for load in books.replicas)
        and all(replica.status.state == "ready" for replica in seen.replicas)
        and all(r.engine is not None and not r.engine.running for r in seen.replicas)
        and len({replica.status.version for replica in seen.replicas}) == 1
    )


def every_one_serves(bench: Workbench) -> set[str]:
    """Who answers, when twice as many sessions ask as there are replicas."""
    count = 2 * len(bench.snapshot().replicas)
    rollout = bench.rollout(["Who is there?"] * count, sampling_params={"max_tokens": 4})
    rows = rollout.result(PATIENCE_S)
    assert {str(row.status) for row in rows} == {"done"}
    return {turn.replica_id for row in rows for turn in row.turns}


def ask(bench: Workbench, method: str, *args: Any) -> Any:
    """Call the balancer."""
    return bench._call(bench.manager.ask_balancer(method, *args))


def actors(bench: Workbench) -> dict[str, Any]:
    """Replica id → actor, of those that serve."""
    return bench._call(bench.manager.get_replicas())


def pids(bench: Workbench) -> dict[str, int]:
    """Replica id → process, of those that have one."""
    return {
        r.status.replica_id: r.status.pid
        for r in bench.snapshot().replicas
        if r.status.pid is not None
    }


def balancer_pid(bench: Workbench) -> int:
    return int(ask(bench, "pid"))


def rounds(short: int) -> int:
    """How many seeds are played: ``WORKBENCH_CHAOS_ROUNDS``, or so many."""
    return int(os.environ.get("WORKBENCH_CHAOS_ROUNDS", short))
