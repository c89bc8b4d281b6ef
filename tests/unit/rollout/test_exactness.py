"""Rows hold what engines sampled, to the token, whatever happens to tools, pools and rollouts.

The chat format of these tests reads any tokens: whether a completion calls tools, which, and
whether it can be read at all follows from its ids, so that engines may sample what they like.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.inprocess import WatchedEngine, pool_of
from workbench.client import FullyAsyncLLMServerClient, LLMServerClient
from workbench.engines.simulated import Fault, FaultKind, SimulatedArgs
from workbench.engines.simulated.tokens import TokenSource
from workbench.engines.virtual_clock import run_virtual
from workbench.rollout.manager import AgentLoopManager
from workbench.rollout.rendering import Bridge, ParsedCall, ParsedReply
from workbench.rollout.tool_loop import ToolAgentLoop, ToolLimits
from workbench.rollout.worker import AgentLoopWorker
from workbench.trajectory import RolloutStatus

Busy = SimulatedArgs(
    step_s=0.01, load_s=0.025, vocab_size=24, max_num_seqs=4, block_tokens=2, kv_blocks=64
)
"""Requests wait in it, some are preempted, and one token in 24 ends a generation."""

BUDGET = 30
"""Tokens of a rollout."""
CALLS = ("quick", "slow", "failing", "nobody's", "unreadable")


class AnyTokens:
    """A chat format in which every sequence of tokens is a reply."""

    pad_id, tokenizer = 0, None

    def __init__(self, refuses):
        self._refuses = refuses

    def prompt(self, messages, tools=()):
        return [token for message in messages for token in self._told(message)]

    def extend(self, prompt_ids, completion_ids, messages, tools=()):
        if completion_ids and completion_ids[0] % 7 == self._refuses:
            return Bridge(None, "it is that token")
        told = [token for message in messages for token in self._told(message)]
        return Bridge([*prompt_ids, *completion_ids, *told])

    def parse(self, completion_ids, tools=()):
        text = " ".join(map(str, completion_ids))
        calls = [CALLS[token % 5] for token in completion_ids[:3] if token % 3]
        return ParsedReply(
            text,
            tuple(
                ParsedCall("" if name == "unreadable" else name, {}, "", problem)
                for name in calls
                for problem in ["no JSON" if name == "unreadable" else ""]
            ),
        )

    def decode(self, ids):
        return " ".join(map(str, ids))

    @staticmethod
    def _told(message):
        return [1, *(2 + byte % 20 for byte in message["content"].encode()[:8])]


async def quick() -> str:
    """Answer at once."""
    return "4"


async def slow() -> str:
    """Answer late, or too late."""
    await asyncio.sleep(0.03)
    return "late"


async def failing() -> str:
    """Fail."""
    raise ValueError("not today")


class Noting:
    """A client that notes what came for each call, in the order of calls of a session."""

    noted: dict

    async def _attempt(self, link, generation):
        calls = self.noted.setdefault(generation.session_id, {})
        said = calls.setdefault(id(generation), (generation, []))[1]
        async with aclosing(super()._attempt(link, generation)) as deltas:
            async for delta in deltas:
                said.append(delta)
                yield delta


class Plain(Noting, LLMServerClient):
    pass


class Patient(Noting, FullyAsyncLLMServerClient):
    pass


class Watched(ToolAgentLoop):
    """Leaves word of the session under which it sampled."""

    async def run(self, sampling_params, **task):
        self.trajectory.extra["session"] = self.session_id
        await super().run(sampling_params, **task)


def assert_exact(row, noted):
    """Each turn is what its call brought: ids, log-probabilities, versions; and it was asked so."""
    row.check()
    calls = list(noted.get(row.extra.get("session"), {}).values())
    for turn, (_, said) in zip(row.turns, calls, strict=False):
        segment = row.segments[turn.segment]
        sampled = segment.response_ids[turn.start : turn.end]
        assert sampled == [token for delta in said for token in delta.token_ids]
        assert segment.log_probs[turn.start : turn.end] == [
            -(1 + token) / Busy.vocab_size for token in sampled
        ]
        stamped = [delta.version for delta in said for _ in delta.token_ids]
        spans = [s for s in segment.version_spans if turn.start <= s.start < turn.end]
        assert [s.version for s in spans for _ in range(s.end - s.start)] == stamped
        prompt = segment.prompt_ids + segment.response_ids[: turn.start]
        undisturbed = TokenSource(
            prompt, engine_seed=Busy.seed, request_seed=0, vocab_size=Busy.vocab_size, stop_token=0
        )
        assert sampled == [undisturbed.next() for _ in sampled]
    assert len(row.turns) <= len(calls) or not row.turns
    assert row.sampled_tokens <= BUDGET


class World:
    """A pool to which things happen while rollouts are played."""

    def __init__(self, pool, run):
        self.pool, self.run, self.version = pool, run, 0
        self.changes = []

    async def happen(self, kind, which, mode):
        replicas = list(self.pool.replicas.values())
        host = replicas[which % len(replicas)].host
        if kind == "update":
            self.version += 1
            for replica in replicas:
                self._begin(replica.host.control.update("w", self.version, mode))
        elif kind == "pause":
            self._begin(host.control.pause("keep"))
            await asyncio.sleep(0.02)
            await host.control.resume()
        elif kind == "break":
            host._engine.inject(Fault(FaultKind.LOAD))
        elif kind == "die":
            host._engine.die()
        elif kind == "cancel":
            tasks = list(self.run._tasks.values())
            tasks[which % len(tasks)].cancel()
        if kind in {"die", "break"}:
            await self.add()

    async def add(self):
        await self.pool.add(WatchedEngine(f"replica-{self.pool._next}", Busy))

    def _begin(self, change):
        self.changes.append(asyncio.ensure_future(change))


async def play(story, rollouts, refuses, limits, rules, turn_tokens):
    Noting.noted = noted = {}
    engines = [WatchedEngine(f"replica-{i}", Busy) for i in range(2)]
    async with pool_of(engines, no_replica_s=1000.0, probe_s=0.05) as pool:
        renderer = AnyTokens(refuses)
        workers = [
            AgentLoopWorker(pool.client(kind, max_stalled_attempts=1000), renderer)
            for kind in (Plain, Patient)
        ]
        manager = AgentLoopManager(workers, concurrency=6, pad_id=0)
        tasks = [{"prompt": f"task {number}"} for number in range(rollouts)]
        run = manager.start(
            tasks,
            agent=Watched,
            tools=[quick, slow, failing],
            limits=limits,
            sampling_params={"max_tokens": turn_tokens},
            **rules,
        )
        world = World(pool, run)
        for pause, *change in story:
            await asyncio.sleep(pause * 0.02)
            await world.happen(*change)
        await world.add()
        rows = await run
        await asyncio.gather(*world.changes, return_exceptions=True)
    for row in [*rows, *(out.trajectory for out in run.left_out())]:
        assert_exact(row, noted)
        assert row.status is not RolloutStatus.FAILED or row.error
    assert len(rows) + run.snapshot().missing == rollouts
    tensors = run.batch().tensors
    masked = tensors["responses"][tensors["response_mask"] == 1].tolist()
    sampled = [token for row in rows for segment in row.segments for token in segment.sampled_ids]
    assert masked == sampled


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(
    story=st.lists(
        st.tuples(
            st.integers(0, 9),
            st.sampled_from(("update", "pause", "break", "die", "cancel")),
            st.integers(0, 9),
            st.sampled_from(("keep", "abort", "wait")),
        ),
        max_size=6,
    ),
    rollouts=st.integers(1, 8),
    refuses=st.integers(0, 9),
    limits=st.builds(
        ToolLimits,
        max_turns=st.integers(1, 8),
        max_response_tokens=st.integers(BUDGET // 2, BUDGET),
        max_calls_per_turn=st.integers(1, 3),
        tool_timeout_s=st.sampled_from((0.02, 1.0)),
    ),
    rules=st.fixed_dictionaries(
        {
            "max_attempts": st.integers(1, 2),
            "spare": st.integers(0, 1),
            "on_failure": st.sampled_from(("keep", "drop")),
        }
    ),
    turn_tokens=st.integers(1, 12),
)
def test_rows_are_what_the_engines_sampled_whatever_happens(**case):
    run_virtual(asyncio.wait_for(play(**case), 2000))
