"""A pool at work, harmed at a moment that is counted in turns, and looked over afterwards."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.chaos.conversation import (
    ROLLOUTS,
    TURNS,
    Batch,
    begin,
    check_rows,
    check_simulated,
    tally,
)
from tests.chaos.pools import pids, settled
from tests.chaos.witness import Witnesses

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from workbench import Trajectory, Workbench

    Strike = Callable[[], str]


@dataclass
class Outcome:
    """What came of it."""

    rows: list[Trajectory]
    told: list[str] = field(default_factory=list)
    why: list[str] = field(default_factory=list)
    """Of each replica that has another process than before, what became of the last one."""
    elsewhere_s: float | None = None
    wall_s: float = 0.0

    @property
    def replaced(self) -> int:
        """Replicas that have another process than before."""
        return len(self.why)

    @property
    def resumed(self) -> int:
        """Turns that took more than one attempt."""
        return sum(turn.attempts > 1 for row in self.rows for turn in row.turns)

    @property
    def versions(self) -> set[int]:
        """Under which the tokens of finished rows were sampled."""
        return {s.version for row in self.rows for g in row.segments for s in g.version_spans}

    def __str__(self) -> str:
        late = "nobody moved" if self.elsewhere_s is None else f"{self.elsewhere_s:.1f} s"
        return (
            f"{', '.join(self.told)}; {tally(self.rows)}, {self.replaced} replaced, "
            f"first token elsewhere: {late}, {self.wall_s:.1f} s in all"
        )


def moments(seed: int | str, count: int = 1) -> tuple[random.Random, list[int]]:
    """A source of choices, and so many moments of a batch, in turns that have ended."""
    rng = random.Random(str(seed))
    every = ROLLOUTS * TURNS
    return rng, sorted(rng.randrange(every // 8, every // 2) for _ in range(count))


def played(
    bench: Workbench,
    diary: Path,
    strikes: Sequence[tuple[int, Strike]],
    *,
    tokens: int,
    lost: bool = False,
    replicas: int = 2,
    witnesses: int = 4,
    afterwards: Strike | None = None,
) -> Outcome:
    """Play a batch; at so many turns each strike falls. Then check all that has to hold.

    Args:
        bench: the pool.
        diary: a file that is not there yet.
        strikes: what happens at how many ended turns.
        tokens: of each turn.
        lost: whether rollouts may fail with the worker that played them.
        replicas: how many there are to be at the end.
        witnesses: calls that last as long as the batch; a ``wait`` for all to end waits for them.
        afterwards: what has to be done before the pool can settle.
    """
    before = pids(bench)
    began_s = time.monotonic()
    with Witnesses(bench, witnesses) as witness:
        batch = begin(bench, diary, tokens=tokens)
        told, struck_s = _strike(batch, strikes)
        rows = batch.result()
    outcome = Outcome(rows, told, wall_s=time.monotonic() - began_s)
    outcome.elsewhere_s = witness.until_elsewhere(struck_s)
    check_rows(batch, rows, lost=lost)
    if bench.config.engine == "simulated":
        check_simulated(batch, rows)
        witness.check_simulated()
    if afterwards:
        outcome.told.append(afterwards())
    seen = settled(bench, replicas)
    again = [r.status for r in seen.replicas if r.status.pid != before.get(r.status.replica_id)]
    outcome.why = [f"{s.replica_id}: {s.error}" for s in again if s.replica_id in before]
    return outcome


def _strike(batch: Batch, strikes: Sequence[tuple[int, Strike]]) -> tuple[list[str], float]:
    told, struck_s = [], 0.0
    for turns, strike in strikes:
        batch.wait_for(turns)
        assert not batch.rollout.done, "it came too late to harm anybody"
        struck_s = struck_s or time.monotonic()
        told.append(f"at {turns} turns {strike()}")
    return told, struck_s
