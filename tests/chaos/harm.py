"""What is done to pools. Each returns once it is done, and says in words what it was."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import RayActorError

from tests.chaos.pools import actors, balancer_pid, pids
from tests.integration.processes import children
from workbench.engines.simulated import Fault, FaultKind

if TYPE_CHECKING:
    from random import Random

    from workbench import Workbench


def one(bench: Workbench, rng: Random) -> str:
    """A replica that serves."""
    return rng.choice(sorted(actors(bench)))


def kill(pid: int) -> None:
    """At once. Who is gone already stays gone."""
    _send(pid, signal.SIGKILL)


def freeze(pid: int) -> None:
    _send(pid, signal.SIGSTOP)


def _send(pid: int, what: signal.Signals) -> None:
    try:
        os.kill(pid, what)
    except ProcessLookupError:
        return


def kill_actor(bench: Workbench, replica_id: str) -> str:
    kill(pids(bench)[replica_id])
    return f"{replica_id} killed"


def freeze_actor(bench: Workbench, replica_id: str) -> str:
    freeze(pids(bench)[replica_id])
    return f"{replica_id} stopped by a signal"


def kill_engine(bench: Workbench, replica_id: str) -> str:
    """The processes of a real engine, and not the one that hosts it."""
    for pid in engine_processes(bench, replica_id):
        kill(pid)
    return f"engine of {replica_id} killed"


def freeze_engine(bench: Workbench, replica_id: str) -> str:
    for pid in engine_processes(bench, replica_id):
        freeze(pid)
    return f"engine of {replica_id} stopped by a signal"


def engine_processes(bench: Workbench, replica_id: str) -> list[int]:
    found = children(pids(bench)[replica_id])
    assert found
    return found


def kill_balancer(bench: Workbench) -> str:
    kill(balancer_pid(bench))
    return "balancer killed"


def inject(bench: Workbench, replica_id: str, kind: FaultKind, **settings: Any) -> str:
    """A fault of a simulated engine, if that is still there to have one."""
    fault = Fault(kind, **settings)
    try:
        ray.get(actors(bench)[replica_id].__ray_call__.remote(_inject, fault))
    except RayActorError:
        return f"{replica_id} was gone already"
    return f"{kind} in the engine of {replica_id}"


def _inject(actor: Any, fault: Fault) -> None:
    actor._engine.inject(fault)


def workers() -> list[int]:
    """The processes that play rollouts, of this cluster."""
    untyped: Any = ray
    return [
        actor["Pid"]
        for actor in untyped._private.state.actors().values()
        if actor["ActorClassName"] == "_WorkerActor" and actor["State"] == "ALIVE"
    ]
