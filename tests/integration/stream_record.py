"""Streams on a real engine in this process, published to in the middle, beside its core's record.

Run as a program of its own: on the same engine it plays the rollouts of ``engine_record`` first. It
prints one JSON object: what came of those, and of streams by mode of the publish.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any

from tests.integration.engine_record import MODEL, RecordedEngine, compared, play_rollouts
from tests.unit.inprocess import pool_of
from workbench.engines.vllm_setup import prepare_environment
from workbench.models import resolve_model
from workbench.rollout.manager import prepare
from workbench.rollout.rendering import make_renderer
from workbench.rollout.single_turn import SingleTurnAgentLoop
from workbench.rollout.worker import AgentLoopWorker
from workbench.stream.consuming import Consumer
from workbench.stream.manager import FullyAsyncAgentLoopManager
from workbench.stream.publishing import Publisher
from workbench.stream.queue import StreamQueue
from workbench.stream.rollouter import Rollouter
from workbench.stream.rules import StreamRules
from workbench.stream.source import TaskSource
from workbench.weights import PauseMode, WeightUpdate

if TYPE_CHECKING:
    from collections.abc import Iterable

    from workbench.stream.groups import GroupBatch, Ticket
    from workbench.types import SamplingParams

GROUPS, N, TOKENS = 4, 8, 48

MODES: tuple[PauseMode, ...] = ("keep", "abort", "wait")


class Known(SingleTurnAgentLoop):
    """Leaves word of the session under which it sampled."""

    async def run(self, sampling_params: SamplingParams, **task: Any) -> None:
        self.trajectory.extra["session"] = self.session_id
        await super().run(sampling_params, **task)


async def until_half(engine: RecordedEngine) -> None:
    """The 32 rollouts are all in the middle of what they say."""
    while True:
        said = [len(made.token_ids) for made in engine.sampled.values()]
        if len(said) >= GROUPS * N and min(said) >= TOKENS // 4:
            return
        await asyncio.sleep(0.01)


async def play(engine: RecordedEngine, pool: Any, mode: Any) -> tuple[GroupBatch, WeightUpdate]:
    """One batch, with new weights (the same ones) in the middle of it."""
    (replica,) = pool.replicas.values()
    rules = StreamRules(required_samples=GROUPS, update_mode=mode)
    queue = StreamQueue(rules, version=replica.host.control.version)
    renderer = make_renderer(str(resolve_model(MODEL)), MODEL)
    manager = FullyAsyncAgentLoopManager(
        [AgentLoopWorker(pool.client(), renderer)], concurrency=GROUPS * N, pad_id=0
    )
    sampling = {"temperature": 1.0, "max_tokens": TOKENS, "ignore_eos": True}
    tasks = [f"Count to {number}." for number in range(GROUPS)]
    rollouter = Rollouter(
        queue,
        TaskSource(tasks, Known),
        manager,
        prepare([], agent=Known, n=N, sampling_params=sampling),
        max_failures=1,
        keeps=lambda _: True,
    )

    async def update(weights: Any, *, version: int, mode: Any) -> WeightUpdate:
        done = await replica.host.control.update(weights, version, mode)
        return WeightUpdate(version, mode, 0.0, 0.0, (done,), done.stopped_s)

    async def pool_version() -> int:
        return int(replica.host.control.version)

    def cancel(tickets: Iterable[Ticket]) -> None:
        rollouter.cancel_groups(tickets, "cancelled")

    publisher = Publisher(
        queue, rules, update=update, pool_version=pool_version, cancel=cancel, idle=rollouter.idle
    )
    playing = asyncio.create_task(rollouter.run())
    await until_half(engine)
    done = await publisher.publish(str(resolve_model(MODEL)))
    consumer = Consumer(queue, "main", required_samples=GROUPS, pad_id=renderer.pad_id)
    batch = await consumer.get_batch()
    await consumer.commit()
    await playing
    return batch, done


def told(engine: RecordedEngine, batch: GroupBatch, update: WeightUpdate) -> dict[str, Any]:
    """What came of it; fails where a row is not what the core sampled."""
    rows = batch.trajectories
    return {
        "rollouts": len(rows),
        "status": sorted({str(row.status) for row in rows}),
        "tokens": sum(compared(row, engine.of_session[row.extra["session"]]) for row in rows),
        "crossed": sum(row.versions == (update.version - 1, update.version) for row in rows),
        "attempts": sorted({turn.attempts for row in rows for turn in row.turns}),
        "ages": [group.staleness for group in batch.groups],
        "stopped_s": update.stopped_s,
    }


async def main() -> None:
    given = {"dtype": "float32", "max_model_len": 2048, "max_num_seqs": GROUPS * N}
    engine = RecordedEngine("replica-0", str(resolve_model(MODEL)), given, device="cpu")
    by_mode = {}
    async with pool_of([engine]) as pool:
        rollouts = await play_rollouts(engine, pool)
        for mode in MODES:
            engine.sampled.clear()
            by_mode[mode] = told(engine, *await play(engine, pool, mode))
    await engine.close()
    sys.stdout.write(json.dumps({"rollouts": rollouts, "streams": by_mode}) + "\n")


if __name__ == "__main__":
    prepare_environment("cpu", threads=1, log_level="ERROR")
    asyncio.run(main())
