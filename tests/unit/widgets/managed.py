"""A pool that a test holds in its hands, and its verbs, which do what they say to it."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tests.unit.widgets.dashboard.pools import MadePool
from tests.unit.widgets.feeds import WAIT_S
from tests.unit.widgets.pictures.scenes import make_replica, make_sample
from workbench.errors import CheckpointError, ReplicaDiedError
from workbench.types import ReplicaState
from workbench.weights import ReplicaUpdate, WeightUpdate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from workbench.types import ReplicaSnapshot


@dataclass
class ManagedPool(MadePool):
    """Its replicas have states of their own."""

    states: dict[str, ReplicaState] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    restarts: dict[str, int] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    ids: list[str] = field(default_factory=lambda: ["replica-0", "replica-1", "replica-2"])

    def step(self, in_flight: int = 3, **_: Any) -> None:
        """A second passes."""
        sample = make_sample(
            tuple(self._replica(name, in_flight) for name in self.ids), time_s=self._next_s
        )
        with self._lock:
            self.history.add(sample)
        self._next_s += 1.0

    def _replica(self, name: str, in_flight: int) -> ReplicaSnapshot:
        state = self.states.get(name, ReplicaState.READY)
        note = self.notes.get(name, "")
        is_starting = state is ReplicaState.STARTING
        made = make_replica(
            name,
            in_flight=0 if is_starting else in_flight,
            state=state,
            stage=note if is_starting else "",
            error="" if is_starting else note,
        )
        status = replace(
            made.status,
            version=self.versions.get(name, 3),
            restarts=self.restarts.get(name, 0),
            log_path=f"/var/log/workbench/lab/{name}.log",
        )
        return replace(made, status=status, engine=None if is_starting else made.engine)


class MadeVerbs:
    """What was asked of it, in order, and gates that a test opens."""

    def __init__(self, pool: ManagedPool | None = None) -> None:
        self.pool = pool or ManagedPool()
        self.asked: list[tuple[Any, ...]] = []
        self.begun = threading.Semaphore(0)
        """Counts what was asked."""
        self.problem: Exception | None = None
        """Raised by whatever is asked next."""
        self._gates: dict[str, threading.Event] = {}
        self._lock = threading.Lock()

    @property
    def feed(self) -> Any:
        return self.pool.feed

    @contextmanager
    def held(self, verb: str) -> Iterator[None]:
        """While the block runs this verb does not return."""
        gate = self._gates[verb] = threading.Event()
        try:
            yield
        finally:
            gate.set()

    def _note(self, verb: str, *values: Any) -> None:
        with self._lock:
            self.asked.append((verb, *values))
        self.begun.release()
        gate = self._gates.get(verb)
        assert gate is None or gate.wait(WAIT_S * 3)
        if self.problem is not None:
            problem, self.problem = self.problem, None
            raise problem

    def _turn(self, replica_id: str | None, state: ReplicaState) -> None:
        for name in [replica_id] if replica_id else self.pool.ids:
            self.pool.states[name] = state
        self.pool.step()

    def scale(self, replicas: int) -> list[str]:
        self._note("scale", replicas)
        self.pool.ids = [f"replica-{n}" for n in range(replicas)]
        self.pool.step()
        return list(self.pool.ids)

    def add_replicas(self, count: int = 1) -> list[str]:
        raise NotImplementedError

    def remove_replicas(self, replica_ids: Any, *, drain: bool = True) -> None:
        raise NotImplementedError

    def restart(self, replica_id: str, *, drain: bool = False) -> None:
        self._note("restart", replica_id, drain)
        self.pool.restarts[replica_id] = self.pool.restarts.get(replica_id, 0) + 1
        self._turn(replica_id, ReplicaState.READY)

    def drain(self, replica_id: str) -> None:
        self._note("drain", replica_id)
        self._turn(replica_id, ReplicaState.DRAINING)

    def readmit(self, replica_id: str) -> None:
        self._note("readmit", replica_id)
        self._turn(replica_id, ReplicaState.READY)

    def pause(self, replica_id: str | None = None, *, mode: str = "keep") -> None:
        self._note("pause", replica_id, mode)
        self._turn(replica_id, ReplicaState.PAUSED)

    def resume(self, replica_id: str | None = None) -> None:
        self._note("resume", replica_id)
        self._turn(replica_id, ReplicaState.READY)

    def update_weights(
        self,
        source: Any,
        *,
        version: int | None = None,
        mode: Any = "keep",
        recompute: bool = False,
    ) -> WeightUpdate:
        self._note("publish", source, version, mode, recompute)
        if "broken" in source:
            raise CheckpointError(
                "lm_head.weight", "is missing", allowed="every tensor of the model"
            )
        version = 4 if version is None else version
        self.pool.versions = dict.fromkeys(self.pool.ids, version)
        self.pool.step()
        updates = tuple(ReplicaUpdate(name, version, 0.1, 0.4, 0.1) for name in self.pool.ids)
        return WeightUpdate(version, mode, 0.2, 0.0, updates, 1.0)

    def logs(self, replica_id: str, lines: int = 50) -> str:
        self._note("logs", replica_id, lines)
        if self.pool.states.get(replica_id) is ReplicaState.STOPPED:
            raise ReplicaDiedError(replica_id, "no log is left")
        times = sum(one[:2] == ("logs", replica_id) for one in self.asked)
        said = "engine.py:42 Avg prompt throughput: 1234.5 tokens/s, Running: 3 reqs"
        lines = [f"\x1b[36mINFO\x1b[0m 12:03:{second:02} {said}" for second in range(30)]
        return "\n".join([*lines, f"read {times}"])

    def abort(self, session_id: str | None = None) -> int:
        raise NotImplementedError

    def clear_kv_cache(self, replica_id: str | None = None) -> None:
        raise NotImplementedError
