"""New weights under load: no call is lost, and each token is stamped with what sampled it."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.inprocess import WatchedEngine, assert_aligned, generate, pool_of, until
from workbench.client import FullyAsyncLLMServerClient, LLMServerClient
from workbench.engines.simulated import Fault, FaultKind, SimulatedArgs
from workbench.engines.simulated.tokens import TokenSource
from workbench.engines.virtual_clock import run_virtual
from workbench.errors import ConfigError, ReplicaDiedError
from workbench.types import FinishReason
from workbench.weights import ReplicaUpdate, WeightUpdate, check_mode

MODES = ("keep", "abort", "wait")

Busy = SimulatedArgs(
    step_s=0.01, load_s=0.025, vocab_size=40, max_num_seqs=3, block_tokens=2, kv_blocks=32
)
"""Requests wait inside it, some are preempted, and one token in 40 ends a generation."""


def undisturbed(prompt, budget):
    """What the engine samples, and how that ends, where nothing comes between."""
    source = TokenSource(
        prompt, engine_seed=Busy.seed, request_seed=0, vocab_size=Busy.vocab_size, stop_token=0
    )
    tokens = [source.next() for _ in range(budget)]
    if 0 in tokens:
        return tokens[: tokens.index(0) + 1], FinishReason.STOP
    return tokens, FinishReason.LENGTH


# -- values ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_is_one_of_vllms_words(mode):
    assert check_mode(mode) == mode


@pytest.mark.parametrize("mode", ["", "sleep", None, 1])
def test_any_other_mode_is_refused_with_those_that_there_are(mode):
    with pytest.raises(ConfigError) as refused:
        check_mode(mode)
    assert (refused.value.field, refused.value.allowed) == ("mode", "keep, abort, wait")


def test_an_update_tells_who_is_replaced_and_how_long_the_others_stood_still():
    slow = ReplicaUpdate("replica-0", 3, pause_s=1.0, load_s=2.0, resume_s=0.5)
    broken = ReplicaUpdate("replica-1", 2, load_s=9.0, error="half a file")
    update = WeightUpdate(3, "keep", 0.1, 0.0, (slow, broken, ReplicaUpdate("replica-2", 3)), 4.0)
    assert update.replaced == ("replica-1",)
    assert update.stopped_s == slow.stopped_s == 3.5
    assert replace(update, replicas=(broken,)).stopped_s == 0.0


# -- under load ------------------------------------------------------------------------------


class Noting:
    """A client that notes which replica said what, and which calls were stopped on the way."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.noted = {}

    async def _attempt(self, link, generation):
        async with aclosing(super()._attempt(link, generation)) as deltas:
            async for delta in deltas:
                said = self.noted.setdefault(generation.session_id, [])
                said.append((generation._replica_id, delta))
                yield delta


class Plain(Noting, LLMServerClient):
    pass


class Patient(Noting, FullyAsyncLLMServerClient):
    pass


class Verl(Patient):
    """Leaves it to its caller to go on."""


class Story:
    """A pool to which things happen while calls are in flight."""

    def __init__(self, pool):
        self.pool = pool
        self.changes = []
        self.version = 0
        self.unwanted = set()
        """Requests that somebody stopped on purpose."""
        self.stopped_at = set()
        """Replicas that somebody paused, ending what ran there."""
        patience = {"max_stalled_attempts": 1000}
        self.clients = [
            pool.client(Plain, **patience),
            pool.client(Patient, **patience),
            pool.client(Verl, **patience, partial_rollout=False),
        ]
        self.calls = {}

    def call(self, number, budget):
        prompt = [number + 1, 7, 7, 7]
        client = self.clients[number % 3]
        call = asyncio.ensure_future(
            generate(client, f"s{number}", prompt=prompt, max_tokens=budget)
        )
        self.calls[f"s{number}"] = client, call, undisturbed(prompt, budget)

    def host(self, which):
        ids = list(self.pool.replicas)
        return self.pool.replicas[ids[which % len(ids)]].host

    def begin(self, change):
        self.changes.append(asyncio.ensure_future(change))

    async def happen(self, kind, which, mode, flag):
        await getattr(self, kind)(self.host(which), which, mode, flag)

    async def update_all(self, host, which, mode, flag):
        self.version += 1
        for replica in self.pool.replicas.values():
            self.begin(replica.host.control.update("w", self.version, mode, recompute=flag))

    async def update_one(self, host, which, mode, flag):
        self.version += 1
        self.begin(host.control.update("w", self.version, mode, recompute=flag))

    async def break_load(self, host, which, mode, flag):
        host._engine.inject(Fault(FaultKind.LOAD))
        await self.update_one(host, which, mode, flag)

    async def die(self, host, which, mode, flag):
        host._engine.die()

    async def replace(self, host, which, mode, flag):
        await self.add()
        await self.pool.remove(host.replica_id)

    async def add(self, *_):
        await self.pool.add(WatchedEngine(f"replica-{self.pool._next}", Busy))

    async def pause(self, host, which, mode, flag):
        self.begin(host.control.pause(mode))
        if mode == "abort":
            self.stopped_at.add(host.replica_id)

    async def resume(self, host, which, mode, flag):
        self.begin(host.control.resume())

    async def stop(self, host, which, mode, flag):
        session = f"s{which}" if flag else None
        self.unwanted |= {r for r, s in host._session.items() if session in {s, None}}
        await host.abort_all(session)

    async def cancel(self, host, which, mode, flag):
        if f"s{which}" in self.calls:
            self.calls[f"s{which}"][1].cancel()

    async def end(self):
        """All goes on; what everything came to."""
        for replica in self.pool.replicas.values():
            self.begin(replica.host.control.resume())
        await self.add()
        await asyncio.wait([call for _, call, _ in self.calls.values()])
        for result in await asyncio.gather(*self.changes, return_exceptions=True):
            broken = isinstance(result, RuntimeError) and "broken weights" in str(result)
            assert broken or isinstance(result, None | ReplicaUpdate | ReplicaDiedError), result
        for session, (_, call, _) in self.calls.items():
            if not call.cancelled():
                self.check(session, call.result())
        await until(lambda: not any(host._owner or host._doomed for host in self.pool.hosts))

    def check(self, session, output):
        client, _, (tokens, finish) = self.calls[session]
        said = client.noted.get(session, [])
        assert_aligned(output)
        count = len(output.token_ids)
        assert output.token_ids == tokens[:count]
        assert output.log_probs == [-(1 + token) / Busy.vocab_size for token in tokens[:count]]
        stamped = [d.version for _, d in said for _ in d.token_ids]
        assert stamped == [s.version for s in output.version_spans for _ in range(s.end - s.start)]
        for replica_id in {replica_id for replica_id, _ in said}:
            here = [d.version for r, d in said if r == replica_id and d.token_ids]
            assert here == sorted(here), replica_id
        assert not any(d.interrupted for _, d in said if d.request_id in self.unwanted)
        aborted = [(r, d) for r, d in said if d.finish_reason is FinishReason.ABORT]
        meant = [(r, d) for r, d in aborted if not d.interrupted]
        assert all(d.request_id in self.unwanted or r in self.stopped_at for r, d in meant)
        ends = {Plain: meant, Patient: [], Verl: aborted}[type(client)]
        if ends:
            assert (output.finish_reason, said[-1]) == (FinishReason.ABORT, ends[0])
        else:
            assert (output.finish_reason, count) == (finish, len(tokens))


CHANGES = (
    *("update_all", "update_all", "update_one", "break_load", "die", "replace", "add"),
    *("pause", "resume", "stop", "cancel"),
)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(
    budgets=st.lists(st.integers(1, 25), min_size=3, max_size=12),
    story=st.lists(
        st.tuples(
            st.integers(0, 9),
            st.sampled_from(CHANGES),
            st.integers(0, 11),
            st.sampled_from(MODES),
            st.booleans(),
        ),
        max_size=10,
    ),
)
def test_whatever_happens_every_call_ends_with_what_an_undisturbed_engine_samples(budgets, story):
    async def play():
        engines = [WatchedEngine(f"replica-{i}", Busy) for i in range(3)]
        async with pool_of(engines, no_replica_s=1000.0, probe_s=0.05) as pool:
            told = Story(pool)
            for number, budget in enumerate(budgets):
                told.call(number, budget)
            for pause, *change in story:
                await asyncio.sleep(pause * 0.007)
                await told.happen(*change)
            await told.end()

    run_virtual(asyncio.wait_for(play(), 600))
