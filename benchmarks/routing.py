"""What each routing policy makes of the same multi-turn sessions on two real vLLM replicas.

16 sessions of 7 turns run at once. Each turn's prompt is the last one with what was sampled and 128
to 192 new random tokens behind it, so nearly all of it may lie in some replica's prefix cache; the
policy decides whether it is asked there.

*Fair*: prompts, lengths and think times come from the number of the round alone, so every policy
gets the same work; lengths are forced, so all sample the same number of tokens. *Cold*: every
policy starts on engines of its own in every round, and no two sessions share a prefix, so a hit can
only come from an earlier turn of the same session. The KV cache holds the final contexts of all
sessions on each replica, which is checked: no policy loses a hit to eviction. *Noise*: the order of
the policies turns from round to round, and figures are medians over the rounds. Hit rates repeat to
within 0.03 (least-loaded, which follows the load, within 0.06). Rates and times share the machine
with whatever else it does, so the sampled tokens are also set against the processor time that the
replicas used for them.

Sessions think for 0.2 to 1 s before each turn, as agents wait for their tools. Without it they all
start a turn at the same moment, and the time to the first token shows how their prefills collide
rather than where they were sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.report import arguments, emit
from workbench import Workbench
from workbench.cluster.connection import connect
from workbench.errors import NoRoomError
from workbench.routing.policies import POLICIES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workbench.client import LLMServerClient
    from workbench.engines.base import EngineLimits
    from workbench.types import PoolSnapshot

MODEL = "smollm2-135m"
REPLICAS = 2
SESSIONS = 16
TURNS = 7
NEW_TOKENS = (128, 192)
SAMPLED_TOKENS = (16, 48)
THINK_S = (0.2, 1.0)
SAMPLE_S = 0.1
"""Pause between two looks at the books."""
ROOM_S = 20.0
"""How long the places of the last pool may take to come free."""

FIGURES = (
    "hit_rate",
    "tokens_per_s",
    "tokens_per_cpu_s",
    "max_over_mean_inflight",
    "ttft_p50_s",
    "ttft_p95_s",
    "moves",
)


@dataclass(frozen=True, slots=True)
class Turn:
    """What one turn adds and asks for."""

    think_s: float
    new_ids: list[int]
    max_tokens: int


Script = list[list[Turn]]
"""Session by session, turn by turn."""


def make_script(seed: int, vocabulary: int, sessions: int = SESSIONS, turns: int = TURNS) -> Script:
    """The workload of one round, the same for every policy."""
    rng = random.Random(seed)

    def turn() -> Turn:
        new_ids = [rng.randrange(vocabulary) for _ in range(rng.randint(*NEW_TOKENS))]
        return Turn(rng.uniform(*THINK_S), new_ids, rng.randint(*SAMPLED_TOKENS))

    return [[turn() for _ in range(turns)] for _ in range(sessions)]


def sampled_tokens(script: Script) -> int:
    """What a policy has to have sampled in the end."""
    return sum(turn.max_tokens for session in script for turn in session)


def check_fits(script: Script, limits: EngineLimits) -> None:
    """Refuse a workload on which the engines' limits would decide instead of the policy."""
    lengths = [sum(len(t.new_ids) + t.max_tokens for t in session) for session in script]
    if max(lengths) >= limits.max_model_len:
        raise SystemExit(f"a session of {max(lengths)} tokens: the model has {limits}")
    if limits.kv_cache_tokens is not None and sum(lengths) >= limits.kv_cache_tokens:
        raise SystemExit(f"{sum(lengths)} tokens in all would be evicted: the engine has {limits}")


async def play(client: LLMServerClient, name: str, turns: Sequence[Turn]) -> list[float]:
    """One session; seconds to the first token, turn by turn."""
    context: list[int] = []
    first_s: list[float] = []
    for turn in turns:
        await asyncio.sleep(turn.think_s)
        context += turn.new_ids
        sampling = {"temperature": 1.0, "max_tokens": turn.max_tokens, "ignore_eos": True}
        asked = time.perf_counter()
        sampled: list[int] = []
        async for delta in client.stream(name, prompt_ids=context, sampling_params=sampling):
            if delta.token_ids and not sampled:
                first_s.append(time.perf_counter() - asked)
            sampled += delta.token_ids
        assert len(sampled) == turn.max_tokens, (name, len(sampled))
        context += sampled
    client.end_session(name)
    return first_s


async def play_all(client: LLMServerClient, prefix: str, script: Script) -> list[float]:
    """All sessions at once; seconds to the first token of every turn."""
    played = await asyncio.gather(
        *(play(client, f"{prefix}-{number}", turns) for number, turns in enumerate(script))
    )
    return [seconds for session in played for seconds in session]


async def watch(bench: Workbench, ratios: list[float]) -> None:
    """Note the most over the mean of the replicas' requests in flight, while there are any."""
    while True:
        pool = await asyncio.to_thread(bench.snapshot)
        assert pool.routing is not None
        in_flight = [replica.in_flight for replica in pool.routing.replicas]
        if any(in_flight):
            ratios.append(max(in_flight) / statistics.fmean(in_flight))
        await asyncio.sleep(SAMPLE_S)


async def run(bench: Workbench, client: LLMServerClient, seed: int) -> dict[str, float]:
    """One policy, once, on a fresh pool."""
    script = make_script(seed, bench.limits.vocab_size)
    check_fits(script, bench.limits)
    async with client:
        warm_up = make_script(-1 - seed, bench.limits.vocab_size, turns=1)
        await play_all(client, "warm-up", warm_up)
        before = await asyncio.to_thread(bench.snapshot)
        ratios: list[float] = []
        watching = asyncio.create_task(watch(bench, ratios))
        started, cpu_s = time.perf_counter(), replicas_cpu_s(before)
        first_s = await play_all(client, "session", script)
        wall_s, cpu_s = time.perf_counter() - started, replicas_cpu_s(before) - cpu_s
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
        after = await asyncio.to_thread(bench.snapshot)
    return {
        **from_engines(before, after, sampled_tokens(script)),
        "tokens_per_s": sampled_tokens(script) / wall_s,
        "tokens_per_cpu_s": sampled_tokens(script) / cpu_s,
        "max_over_mean_inflight": statistics.fmean(ratios),
        "ttft_p50_s": statistics.median(first_s),
        "ttft_p95_s": statistics.quantiles(first_s, n=20)[-1],
        "wall_s": wall_s,
        "looks": len(ratios),
    }


def from_engines(before: PoolSnapshot, after: PoolSnapshot, expected: int) -> dict[str, float]:
    """The hit rate by the engines' own counters, and the moves by the balancer's books."""
    assert before.routing is not None
    assert after.routing is not None
    prompt = cached = sampled = 0
    for old, new in zip(before.replicas, after.replicas, strict=True):
        assert old.engine is not None, old.status
        assert new.engine is not None, new.status
        prompt += new.engine.prompt_tokens - old.engine.prompt_tokens
        cached += new.engine.cached_prompt_tokens - old.engine.cached_prompt_tokens
        sampled += new.engine.generation_tokens - old.engine.generation_tokens
    assert sampled == expected, (sampled, expected)
    return {"hit_rate": cached / prompt, "moves": after.routing.moves - before.routing.moves}


def replicas_cpu_s(pool: PoolSnapshot) -> float:
    """Processor time until now of the replicas and of the engine processes below them."""
    pids = [str(replica.status.pid) for replica in pool.replicas]
    ticks = 0
    while pids:
        process = Path("/proc", pids.pop())
        user, system = (process / "stat").read_text().rpartition(")")[2].split()[11:13]
        ticks += int(user) + int(system)
        for children in process.glob("task/*/children"):
            pids += children.read_text().split()
    return ticks / os.sysconf("SC_CLK_TCK")


def start(policy: str, seed: int) -> Workbench:
    """A pool, once Ray has noticed that the last one gave its places back."""
    until = time.monotonic() + ROOM_S
    while True:
        try:
            return Workbench(MODEL, REPLICAS, policy=policy, workers=0, seed=seed, progress=False)
        except NoRoomError:
            if time.monotonic() > until:
                raise
            time.sleep(0.5)


def run_cold(policy: str, number: int) -> dict[str, float]:
    """One policy in one round, engines and all."""
    started = time.perf_counter()
    with start(policy, number) as bench:
        start_s = time.perf_counter() - started
        figures = asyncio.run(run(bench, bench.client(), number))
    return figures | {"start_s": start_s}


def measure(policies: Sequence[str], rounds: int, *, quiet: bool) -> dict[str, Any]:
    """Every policy in every round, in an order that turns by one from round to round."""
    raw: dict[str, list[dict[str, float]]] = {policy: [] for policy in policies}
    for number in range(rounds):
        turned = number % len(policies)
        for policy in [*policies[turned:], *policies[:turned]]:
            figures = {k: round(v, 4) for k, v in run_cold(policy, number).items()}
            raw[policy].append(figures)
            if not quiet:
                print(f"round {number}, {policy}: {figures}", file=sys.stderr)
    return {
        "policies": {
            policy: {f: round(statistics.median(run[f] for run in runs), 4) for f in FIGURES}
            for policy, runs in raw.items()
        },
        "raw": raw,
    }


def chosen(text: str) -> list[str]:
    """The policies of ``--policies``, checked before anything starts."""
    policies = text.split(",") if text else list(POLICIES)
    if unknown := set(policies) - set(POLICIES):
        raise SystemExit(f"no such policy: {sorted(unknown)}; there are {sorted(POLICIES)}")
    return policies


def main() -> None:
    """Command line."""
    parser = arguments(__doc__)
    parser.set_defaults(rounds=3)
    parser.add_argument("--policies", default="", help="names with commas between; all by default")
    options = parser.parse_args()
    policies = chosen(options.policies)
    connection = connect()
    try:
        figures = measure(policies, options.rounds, quiet=options.json)
    finally:
        connection.close()
    workload = {
        "model": MODEL,
        "replicas": REPLICAS,
        "sessions": SESSIONS,
        "turns": TURNS,
        "new_tokens": NEW_TOKENS,
        "sampled_tokens": SAMPLED_TOKENS,
        "think_s": THINK_S,
    }
    emit({**figures, "rounds": options.rounds, "workload": workload})


if __name__ == "__main__":
    main()
