"""What may happen together: each act draws its victim, and says what it did."""

from __future__ import annotations

import random
import time
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Self

from tests.chaos import harm
from tests.chaos.conversation import PATIENCE_S, ROLLOUTS, TURNS
from tests.chaos.harm import FaultKind
from tests.chaos.pools import pids
from workbench.errors import ConfigError, WeightsError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from workbench import Workbench

    Act = Callable[[], str]

STRIKES = 5


class Mix:
    """Some acts of many, at moments of a batch. Verbs that wait run beside what comes next."""

    def __init__(self, bench: Workbench, seed: int, folder: Path) -> None:
        self._bench = bench
        self._rng = random.Random(f"mix {seed}")
        self._folder = folder
        self._beside = ThreadPoolExecutor(STRIKES)
        self._asked: list[Future[str]] = []
        one = self._one
        self._acts: dict[str, Act] = {
            "kill": lambda: harm.kill_actor(bench, one()),
            "stop": lambda: harm.freeze_actor(bench, one()),
            "kill the balancer": lambda: harm.kill_balancer(bench),
            "kill a worker": self._kill_worker,
            "crash": lambda: harm.inject(bench, one(), FaultKind.CRASH),
            "die": lambda: harm.inject(bench, one(), FaultKind.DEATH),
            "hang": lambda: harm.inject(bench, one(), FaultKind.HANG),
            "refuse": lambda: harm.inject(bench, one(), FaultKind.REFUSE, requests=5),
            "weights": self._weights,
            "broken weights": self._broken_weights,
            "scale": self._scale,
            "restart": self._restart,
            "pause": partial(self._pause, None),
            "pause one": lambda: self._pause(one()),
            "clear caches": self._clear,
        }

    def strikes(self) -> list[tuple[int, Act]]:
        """At so many turns, which act."""
        every = ROLLOUTS * TURNS
        at = sorted(self._rng.randrange(every // 8, every // 2) for _ in range(STRIKES))
        drawn = self._rng.sample(sorted(self._acts), STRIKES)
        return [(turns, self._acts[name]) for turns, name in zip(at, drawn, strict=True)]

    def finish(self) -> list[str]:
        """What the verbs that were asked for said."""
        return [asked.result(PATIENCE_S) for asked in self._asked]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._beside.shutdown(wait=False, cancel_futures=True)

    def _one(self) -> str:
        """A replica that serves, once there is one."""
        deadline = time.monotonic() + PATIENCE_S
        while not (found := sorted(set(harm.actors(self._bench)) & set(pids(self._bench)))):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return self._rng.choice(found)

    def _ask(self, name: str, verb: Callable[[], object], *refusals: type[Exception]) -> str:
        """Have a verb run beside. What else happens may be why it is refused; else it works."""

        def run() -> str:
            try:
                return f"{name}: {verb()}"
            except refusals as refused:
                return f"{name}: {type(refused).__name__}"

        self._asked.append(self._beside.submit(run))
        return name

    def _kill_worker(self) -> str:
        harm.kill(self._rng.choice(sorted(harm.workers())))
        return "worker killed"

    def _weights(self) -> str:
        mode = self._rng.choice(["keep", "abort", "wait"])
        update = partial(self._bench.update_weights, self._folder, mode=mode)
        return self._ask(f"new weights ({mode})", lambda: update().version, WeightsError)

    def _broken_weights(self) -> str:
        return f"{harm.inject(self._bench, self._one(), FaultKind.LOAD)}, {self._weights()}"

    def _scale(self) -> str:
        count, drain_s = self._rng.choice([1, 2, 4, 5]), self._rng.choice([0.0, 0.5, 60.0])
        scale = partial(self._bench.scale, count, drain_s=drain_s)
        return self._ask(f"scaled to {count} within {drain_s:g} s", lambda: len(scale()))

    def _restart(self) -> str:
        replica_id, drain = self._one(), self._rng.random() < 0.5
        restart = partial(self._bench.restart, replica_id, drain=drain)
        return self._ask(f"{replica_id} restarted", restart, ConfigError)

    def _pause(self, replica_id: str | None) -> str:
        mode = self._rng.choice(["keep", "wait"])  # ``abort`` would end turns early, as it should

        def both() -> None:
            try:
                self._bench.pause(replica_id, mode=mode)
            finally:
                self._bench.resume(replica_id)

        return self._ask(f"{replica_id or 'all'} paused ({mode})", both, ConfigError)

    def _clear(self) -> str:
        return self._ask("caches cleared", self._bench.clear_kv_cache)
