"""What a stream's queue carries: trajectories per second through its actor, journal included.

Groups of eight trajectories of 4,096 sampled tokens each, with token ids and log-probabilities, are
packed, put, taken, and unpacked, by one process that fills and one that takes; the queue's actor
writes each to its journal in between. All that a real stream does with a group between its last
token and its learner is in it; nothing is played and nothing learned. The filler packs every group
anew. Groups are committed as they are taken, and a version ends with each batch.

The first round warms up and does not count. What counts is the wall time from the first put to the
last commit, and the processor time of each of the three processes.
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import time
from typing import Any, NamedTuple

import ray

from benchmarks.balancer_ray import cpu_s
from benchmarks.report import arguments, emit
from workbench.cluster.connection import connect
from workbench.cluster.group_queue import RayQueue
from workbench.errors import StreamEndedError
from workbench.metrics.streams import PublishMark
from workbench.stream.groups import GroupHeader, Ticket
from workbench.stream.packing import pack, unpack
from workbench.stream.rules import StreamRules
from workbench.trajectory import RolloutStatus, Segment, Trajectory, Turn
from workbench.types import FinishReason, VersionSpan

GROUPS = 400
"""In a round."""
ROLLOUTS = 8
"""In a group."""
TOKENS = 4096
"""Sampled in each."""
PROMPT_TOKENS = 128
BATCH = 8
"""Groups that are taken at once."""
IN_PUTS = 4
"""Groups that are on their way to the queue at once."""
WAIT_S = 5.0


def make_rows(seed: int) -> tuple[Trajectory, ...]:
    """One group's rollouts."""
    rng = random.Random(seed)
    return tuple(_row(rng, number) for number in range(ROLLOUTS))


def _row(rng: random.Random, number: int) -> Trajectory:
    ids = [rng.randrange(49_000) for _ in range(PROMPT_TOKENS + TOKENS)]
    segment = Segment(
        ids[:PROMPT_TOKENS],
        ids[PROMPT_TOKENS:],
        [1] * TOKENS,
        [-rng.random() for _ in range(TOKENS)],
        (VersionSpan(0, 0, TOKENS),),
    )
    turn = Turn(0, 0, TOKENS, FinishReason.LENGTH, "replica-0", PROMPT_TOKENS, 0, 1, 0.0, 0.1, 60.0)
    task = {"prompt": "What is the answer?"}
    messages = ({"role": "user", "content": task["prompt"]},)
    return Trajectory(
        f"task-0/{number}", "task-0", number, "single_turn", task, (segment,), (turn,), (),
        messages, RolloutStatus.DONE, rng.random(), wall_s=60.0,
    )  # fmt: skip


class Filler:
    """Puts groups as a rollouter does; becomes a Ray actor."""

    def __init__(self, queue: RayQueue) -> None:
        self._queue = queue
        self._rows = [make_rows(seed) for seed in range(4)]

    async def pid(self) -> int:
        """Of its process."""
        return os.getpid()

    async def fill(self) -> None:
        """Until the stream ends."""
        waiting: dict[asyncio.Task[None], Ticket] = {}
        try:
            while True:
                most = IN_PUTS - len(waiting)
                held = list(waiting.values())
                for ticket in await self._queue.admit(held, most, WAIT_S):
                    if ticket.position < GROUPS:
                        waiting[asyncio.create_task(self._put(ticket))] = ticket
                    else:
                        await self._queue.source_ended(GROUPS)
                if waiting:
                    done, _ = await asyncio.wait(waiting, return_when="FIRST_COMPLETED")
                    for task in done:
                        task.result()
                        del waiting[task]
        except StreamEndedError:
            return

    async def _put(self, ticket: Ticket) -> None:
        rows = self._rows[ticket.position % len(self._rows)]
        kept = await self._queue.put(GroupHeader.of(ticket, rows), pack(rows))
        assert kept


class Taker:
    """Takes batches as a learner does; becomes a Ray actor."""

    def __init__(self, queue: RayQueue) -> None:
        self._queue = queue

    async def pid(self) -> int:
        """Of its process."""
        return os.getpid()

    async def take(self) -> int:
        """Until the stream ends; the trajectories."""
        rows, after = 0, 0
        while True:
            try:
                taken = await self._queue.take(BATCH, WAIT_S, "main", after)
            except StreamEndedError:
                return rows
            if taken is not None:
                rows += sum(len(unpack(blob)) for _, blob, *_ in taken.groups)
                after = taken.number
                await self._queue.commit(after)
                await self._publish(taken.version + 1)

    async def _publish(self, version: int) -> None:
        await self._queue.begin_publish(version)
        await self._queue.end_publish(PublishMark(time.time(), version, "keep", 0.0, 0.0))


class Round(NamedTuple):
    """What one round came to."""

    trajectories: int
    seconds: float
    cpu: dict[str, float]
    """Processor seconds by process."""

    @property
    def rate(self) -> float:
        """Trajectories per second."""
        return self.trajectories / self.seconds


async def measure() -> Round:
    """One round, on a queue of its own."""
    # The bound of the age is off: what is measured here has no learner that could be late.
    rules = StreamRules(required_samples=BATCH, max_staleness=None, staleness_threshold=1)
    queue = await RayQueue.open(rules)
    filler_class: Any = ray.remote(Filler)
    taker_class: Any = ray.remote(Taker)
    filler = filler_class.options(num_cpus=0).remote(queue)
    taker = taker_class.options(num_cpus=0).remote(queue)
    pids = {
        "queue": await queue.pid(),
        "filler": await filler.pid.remote(),
        "taker": await taker.pid.remote(),
    }
    before = {name: cpu_s(pid) for name, pid in pids.items()}
    started = time.perf_counter()
    filling = filler.fill.remote()
    rows: int = await taker.take.remote()
    seconds = time.perf_counter() - started
    await filling
    spent = {name: cpu_s(pid) - before[name] for name, pid in pids.items()}
    await queue.close()
    ray.kill(filler)
    ray.kill(taker)
    return Round(rows, seconds, spent)


def summary(rounds: list[Round]) -> dict[str, Any]:
    """The figures of the rounds that count."""
    rate = statistics.median(one.rate for one in rounds)
    rows = sum(one.trajectories for one in rounds)
    return {
        "queue_trajectories_per_s": round(rate),
        "queue_tokens_per_s": round(rate * TOKENS),
        "queue_cpu_s_per_trajectory": {
            name: round(sum(one.cpu[name] for one in rounds) / rows, 6) for name in rounds[0].cpu
        },
        "blob_bytes": len(pack(make_rows(0))),
        "runs": [round(one.rate) for one in rounds],
        "groups": GROUPS,
        "rollouts": ROLLOUTS,
        "tokens": TOKENS,
    }


def main() -> None:
    """Run it."""
    asked = arguments(__doc__).parse_args()
    connection = connect()
    try:
        rounds = [asyncio.run(measure()) for _ in range(asked.rounds + 1)]
    finally:
        connection.close()
    figures = summary(rounds[1:])
    if not asked.json:
        print(f"{figures['queue_trajectories_per_s']} trajectories per second")
    emit(figures)


if __name__ == "__main__":
    main()
