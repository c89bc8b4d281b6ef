"""How long a pool takes to start, to get over a death, to take new weights, and to grow.

Start: two replicas in a Ray that runs already, beside one bare ``AsyncLLM`` in a process of its own
with the same arguments; sides alternate. Failover: from ``kill -9`` of an engine or of its actor
during a streamed call to the next token, which comes from the other replica. Weights: the model's
own, from its directory, while 32 generations are in flight; throughput is what the engines report
they sampled in a window of one mean request before and after. Growth: a third replica on the same
cores, while they serve.
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import time
from typing import TYPE_CHECKING, Any

from benchmarks.lifecycle_load import Load
from benchmarks.lifecycle_start import start_figures
from benchmarks.report import arguments, emit
from workbench.cluster.connection import connect
from workbench.cluster.manager import LLMServerManager
from workbench.config import PoolConfig
from workbench.engines.guard import descendants
from workbench.models import resolve_model
from workbench.supervision import SupervisionConfig
from workbench.types import ReplicaState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workbench.client import LLMServerClient

MODEL = "smollm2-135m"
PROMPT = list(range(100, 148))
POLL_S = 0.05


async def measure(rounds: int) -> dict[str, Any]:
    """All figures of a pool that runs."""
    always = SupervisionConfig(max_restarts=100, backoff_s=0.0)  # whatever is killed here
    config = PoolConfig(
        model=MODEL, replicas=2, name="lifecycle", oversubscribe=True, supervision=always
    )
    manager = await LLMServerManager.create(config)
    try:
        client = await manager.get_client()
        updates = [await updated(manager, client) for _ in range(rounds)]
        failovers = {
            kind: [await failover(manager, client, kind) for _ in range(rounds)]
            for kind in ("engine", "actor")
        }
        grown = await growth(manager, client)
        await client.aclose()
    finally:
        await manager.close()
    every = [seconds for kind in failovers.values() for seconds in kind]
    return {
        "failover_s": median(every),
        "failover_by_kind_s": {kind: median(found) for kind, found in failovers.items()},
        "update_pause_s": median([update["pause_s"] for update in updates]),
        "update_total_s": median([update["total_s"] for update in updates]),
        "throughput_after_update_ratio": median([update["ratio"] for update in updates]),
        "update_failed_calls": sum(update["failed"] for update in updates),
        **grown,
    }


async def updated(manager: LLMServerManager, client: LLMServerClient) -> dict[str, float]:
    """One update under load."""
    directory = str(resolve_model(MODEL))
    async with Load(manager, client) as load:
        await load.settled()
        window_s = load.mean_request_s
        before = await load.tokens_per_s(window_s)
        update = await manager.update_weights(directory)
        after = await load.tokens_per_s(window_s)
    return {
        "pause_s": update.stopped_s,
        "total_s": update.total_s,
        "ratio": after / before,
        "failed": load.failed,
    }


async def failover(manager: LLMServerManager, client: LLMServerClient, kind: str) -> float:
    """Seconds from a kill to the next token of a call that was on the killed replica."""
    session = f"failover-{time.monotonic_ns()}"
    killed_s = 0.0
    sampling = {"max_tokens": 200, "ignore_eos": True}
    async for _ in client.stream(session, prompt_ids=PROMPT, sampling_params=sampling):
        if killed_s:
            waited_s = time.perf_counter() - killed_s
            break
        info = await manager.ask_balancer("session", session)
        kill(await pid_of(manager, info.replica_id), kind)
        killed_s = time.perf_counter()
    else:
        raise RuntimeError("the call was over before anything was killed")
    await until_ready(manager, 2)
    return waited_s


async def pid_of(manager: LLMServerManager, replica_id: str) -> int:
    """Of a replica's process."""
    pids = [s.pid for s in await manager.statuses() if s.replica_id == replica_id]
    assert pids[0] is not None
    return pids[0]


def kill(pid: int, kind: str) -> None:
    """The actor's process, or the engine core below it: the child that computes."""
    if kind == "actor":
        os.kill(pid, signal.SIGKILL)
        return
    for child in descendants(pid):
        os.kill(child, signal.SIGKILL)


async def until_ready(manager: LLMServerManager, count: int) -> None:
    """So many replicas serve."""
    while True:
        states = [status.state for status in await manager.statuses()]
        if states.count(ReplicaState.READY) == count:
            return
        await asyncio.sleep(POLL_S)


async def growth(manager: LLMServerManager, client: LLMServerClient) -> dict[str, float]:
    """What adding a replica costs those that serve meanwhile."""
    async with Load(manager, client) as load:
        await load.settled()
        before = await load.tokens_per_s(2 * load.mean_request_s)
        began_s, sampled = time.perf_counter(), await load.sampled()
        await manager.add_replicas(1)
        took_s = time.perf_counter() - began_s
        during = (await load.sampled() - sampled) / took_s
    return {
        "scale_up_s": round(took_s, 2),
        "scale_up_throughput_ratio": round(during / before, 3),
        "scale_up_failed_calls": load.failed,
    }


def median(values: Sequence[float]) -> float:
    """To the millisecond."""
    return round(statistics.median(values), 3)


def main() -> None:
    """Measure and print."""
    parser = arguments(__doc__)
    parser.add_argument("--starts", type=int, default=3, help="starts per side")
    options = parser.parse_args()
    connection = connect()
    try:
        figures = start_figures(MODEL, options.starts)
        figures |= asyncio.run(measure(min(options.rounds, 3)))
    finally:
        connection.close()
    emit(figures)


if __name__ == "__main__":
    main()
