"""Routing on real actors: pins, moves, drains, deaths, restarts. Engines are simulated.

What the engines sample does not matter here; that no session, count or token is lost does. The
same with real engines, where it is about them, is in ``test_engine_death.py``.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import ray

from workbench import LLMServerClient, RoutingConfig, Workbench
from workbench.errors import BalancerLostError, NoReplicaError
from workbench.supervision import SupervisionConfig
from workbench.types import Lease, ReplicaState, RoutingSnapshot

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from workbench.types import TokenOutput

pytestmark = [pytest.mark.ray]

TOKENS = 40
LONG = 3000
OWNER_TIMEOUT_S = 3.0


def simulated(replicas: int, **options: Any) -> Workbench:
    """40 tokens take a fifth of a second."""
    args = {"step_s": 0.005, "stop_token": -1}
    return Workbench(
        replicas=replicas,
        engine="simulated",
        engine_args=args,
        workers=0,
        progress=False,
        **options,
    )


@pytest.fixture(scope="module")
def pool() -> Iterator[Workbench]:
    rules = RoutingConfig(owner_timeout_s=OWNER_TIMEOUT_S, recovery_s=0.5)
    with simulated(4, routing=rules) as made:
        yield made


@pytest.fixture
async def client(pool: Workbench) -> AsyncIterator[LLMServerClient]:
    async with await pool.manager.get_client() as made:
        yield made


async def books(pool: Workbench) -> RoutingSnapshot:
    snapshot: RoutingSnapshot = await pool.manager.ask_balancer("snapshot")
    return snapshot


async def until(holds: Callable[[], Awaitable[Any]]) -> Any:
    async with asyncio.timeout(30):
        while not (found := await holds()):
            await asyncio.sleep(0.02)
        return found


async def until_idle(pool: Workbench) -> None:
    async def idle() -> bool:
        return not (await books(pool)).in_flight

    await until(idle)


def turn(client: LLMServerClient, session: str, tokens: int = TOKENS) -> Awaitable[TokenOutput]:
    return client.generate(
        session, prompt_ids=[1, 2, 3], sampling_params={"max_tokens": tokens, "ignore_eos": True}
    )


def whole(output: TokenOutput, tokens: int = TOKENS) -> bool:
    covered = [i for span in output.version_spans for i in range(span.start, span.end)]
    aligned = len(output.token_ids) == len(output.log_probs) == tokens
    return aligned and covered == list(range(tokens))


# -- spreading and pins ----------------------------------------------------------------------


async def test_sessions_opened_together_spread_evenly_and_stay(
    pool: Workbench, client: LLMServerClient
) -> None:
    names = [f"even-{i}" for i in range(40)]
    first = await asyncio.gather(*(turn(client, name) for name in names))
    counts = Counter(output.replica_id for output in first)
    assert max(counts.values()) - min(counts.values()) <= 1
    second = [await turn(client, name) for name in names[:8]]
    assert [o.replica_id for o in second] == [o.replica_id for o in first[:8]]


async def test_a_burst_of_turns_spreads_before_any_engine_reported(
    pool: Workbench, client: LLMServerClient
) -> None:
    before = {r.replica_id: r.acquired for r in (await books(pool)).replicas}
    burst = await asyncio.gather(*(turn(client, f"burst-{i}", 2) for i in range(2000)))
    assert len(burst) == 2000
    grown = [r.acquired - before[r.replica_id] for r in (await books(pool)).replicas]
    assert max(grown) <= 1.2 * min(grown)


async def test_two_clients_in_two_processes_see_one_pin(
    pool: Workbench, client: LLMServerClient
) -> None:
    here = await turn(client, "shared")
    elsewhere = ray.remote(_Elsewhere).options(num_cpus=0).remote(client)
    there = [await elsewhere.turn.remote(name) for name in ("shared", "theirs")]
    assert there[0] == here.replica_id
    assert (await turn(client, "theirs")).replica_id == there[1]
    ray.kill(elsewhere)


async def test_sessions_can_be_listed_with_their_history_and_ended(
    pool: Workbench, client: LLMServerClient
) -> None:
    for _ in range(3):
        await turn(client, "told")

    async def told() -> Any:
        info = await pool.manager.ask_balancer("session", "told")
        return info if info and info.turns == 3 and info.sampled_tokens == 3 * TOKENS else None

    info = await until(told)
    assert (info.prompt_tokens, info.moves, info.in_flight) == (9, 0, 0)
    listed = pool.routing.sessions(limit=100_000)
    assert "told" in set(listed.session_id)
    assert "sticky-least-loaded" in repr(pool.routing)
    assert "replica-3" in pool.routing._repr_html_()
    assert pool.routing.end("told")
    assert "told" not in set(pool.routing.sessions(limit=100_000).session_id)


async def test_a_moved_session_goes_on_elsewhere_with_its_next_turn(
    pool: Workbench, client: LLMServerClient
) -> None:
    home = (await turn(client, "mover")).replica_id
    other = next(r for r in (f"replica-{i}" for i in range(4)) if r != home)
    await asyncio.to_thread(pool.routing.move, "mover", other)

    async def moved() -> bool:
        return (await turn(client, "mover")).replica_id == other

    await until(moved)
    kinds = await asyncio.to_thread(lambda: pool.routing.events().kind)
    assert "moved" in set(kinds)


# -- draining --------------------------------------------------------------------------------


async def test_draining_loses_nothing_and_gives_no_new_work(
    pool: Workbench, client: LLMServerClient
) -> None:
    names = [f"drain-{i}" for i in range(32)]
    at_work = [asyncio.ensure_future(turn(client, name)) for name in names]
    await until(lambda: _in_flight(pool, "replica-1"))
    await asyncio.to_thread(pool.routing.drain, "replica-1", timeout_s=30)
    assert all(whole(output) for output in await asyncio.gather(*at_work))
    after = await asyncio.gather(*(turn(client, name) for name in names))
    assert "replica-1" not in {output.replica_id for output in after}
    assert "drained" in set(await asyncio.to_thread(lambda: pool.routing.events().kind))
    await asyncio.to_thread(pool.routing.readmit, "replica-1")
    fresh = await asyncio.gather(*(turn(client, f"fresh-{i}") for i in range(32)))
    assert "replica-1" in {output.replica_id for output in fresh}


async def _in_flight(pool: Workbench, replica_id: str) -> int:
    count: int = await pool.manager.ask_balancer("get_inflight_count", replica_id)
    return count


# -- counts ----------------------------------------------------------------------------------


async def test_counts_are_level_after_cancels_at_any_moment(
    pool: Workbench, client: LLMServerClient
) -> None:
    calls = [asyncio.ensure_future(turn(client, f"gone-{i}")) for i in range(60)]
    for number, call in enumerate(calls):
        await asyncio.sleep(0.002 * (number % 3))
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    await until_idle(pool)


async def test_the_door_leases_and_takes_back_once(pool: Workbench) -> None:
    ask = pool.manager.ask_balancer
    lease: Lease = await ask("acquire_server", "door")
    replica_id, handle = lease
    assert replica_id == lease.replica_id
    assert handle is not None
    assert await ask("release_server", lease)
    assert not await ask("release_server", lease)
    await until_idle(pool)


async def test_a_killed_client_gives_its_leases_back_in_time(pool: Workbench) -> None:
    client = await pool.manager.get_client()
    doomed = ray.remote(_Elsewhere).options(num_cpus=0).remote(client)
    doomed.hold.remote(12)

    async def held() -> bool:
        return (await books(pool)).in_flight == 12

    await until(held)
    ray.kill(doomed)
    async with asyncio.timeout(OWNER_TIMEOUT_S + 4):
        await until_idle(pool)
    assert "reclaimed" in set(await asyncio.to_thread(lambda: pool.routing.events().kind))


# -- the balancer's death --------------------------------------------------------------------


async def test_calls_outlive_the_balancer_and_it_gets_its_books_back(
    pool: Workbench, client: LLMServerClient
) -> None:
    names = [f"survivor-{i}" for i in range(24)]
    # Opened together, so that they spread by load: one by one they would all go where the fewest
    # sessions are, which is too many for one replica once they work side by side.
    opened = await asyncio.gather(*(turn(client, name, 2) for name in names))
    homes = [output.replica_id for output in opened]
    before = await books(pool)
    # Long enough to be at work still when the balancer is back, also on a busy machine.
    at_work = [asyncio.ensure_future(turn(client, name, LONG)) for name in names]
    await asyncio.sleep(0.1)
    os.kill(await pool.manager.ask_balancer("pid"), signal.SIGKILL)
    newcomers = [asyncio.ensure_future(turn(client, f"newcomer-{i}")) for i in range(8)]

    async def restored() -> Any:
        try:
            now = await books(pool)
        except BalancerLostError:
            return None
        return now if now.epoch != before.epoch and now.in_flight >= len(names) else None

    assert len((await until(restored)).replicas) == 4
    outputs = await asyncio.gather(*at_work)
    assert all(whole(output, LONG) for output in outputs)
    assert [output.replica_id for output in outputs] == homes
    assert all(whole(output) for output in await asyncio.gather(*newcomers))
    again = [(await turn(client, name, 2)).replica_id for name in names]
    assert again == homes
    await until_idle(pool)


async def test_what_was_drained_stays_so_when_the_balancer_starts_over(pool: Workbench) -> None:
    await asyncio.to_thread(pool.routing.drain, "replica-3", timeout_s=30)
    before = await books(pool)
    os.kill(await pool.manager.ask_balancer("pid"), signal.SIGKILL)

    async def restored() -> Any:
        try:
            now = await books(pool)
        except BalancerLostError:
            return None
        return now if now.epoch != before.epoch and len(now.replicas) == 4 else None

    states = {r.replica_id: r.state for r in (await until(restored)).replicas}
    assert states.pop("replica-3") is ReplicaState.DRAINING
    assert set(states.values()) == {ReplicaState.READY}
    assert "3/4 replicas ready" in await asyncio.to_thread(repr, pool)
    await asyncio.to_thread(pool.routing.readmit, "replica-3")
    ready = {r.replica_id for r in (await books(pool)).replicas if r.state is ReplicaState.READY}
    assert "replica-3" in ready


# -- dead replicas ---------------------------------------------------------------------------


async def test_one_dead_replica_of_four_costs_no_call_and_one_attempt_per_session_at_most() -> None:
    never = SupervisionConfig(max_restarts=0)
    bench = await asyncio.to_thread(lambda: simulated(4, supervision=never))
    try:
        async with await bench.manager.get_client() as client:
            names = [f"s{i}" for i in range(64)]
            at_work = [asyncio.ensure_future(turn(client, name)) for name in names]
            await until(lambda: _in_flight(bench, "replica-2"))
            (status,) = [s for s in await bench.manager.statuses() if s.replica_id == "replica-2"]
            assert status.pid is not None
            os.kill(status.pid, signal.SIGKILL)
            outputs = await asyncio.gather(*at_work)
            assert all(whole(output) for output in outputs)
            assert max(output.attempts for output in outputs) == 2
            later = await asyncio.gather(*(turn(client, name) for name in names))
            assert {output.attempts for output in later} == {1}
            assert "replica-2" not in {output.replica_id for output in later}
            booked = {r.replica_id: r.state for r in (await books(bench)).replicas}
            # Out of the books once it is given up, which may have happened by now.
            assert booked.pop("replica-2", ReplicaState.UNHEALTHY) is ReplicaState.UNHEALTHY
            assert set(booked.values()) == {ReplicaState.READY}
    finally:
        await asyncio.to_thread(bench.close)


async def test_with_all_replicas_dead_a_call_says_why_for_each() -> None:
    rules = RoutingConfig(no_replica_s=0.5)
    never = SupervisionConfig(max_restarts=0)
    bench = await asyncio.to_thread(lambda: simulated(2, routing=rules, supervision=never))
    try:
        async with await bench.manager.get_client() as client:
            for status in await bench.manager.statuses():
                assert status.pid is not None
                os.kill(status.pid, signal.SIGKILL)
            with pytest.raises(NoReplicaError, match=r"replica-\d is unhealthy|the pool is empty"):
                await turn(client, "s")
    finally:
        await asyncio.to_thread(bench.close)


async def test_with_a_capacity_turns_wait_instead_of_failing() -> None:
    rules = RoutingConfig(capacity=3)
    bench = await asyncio.to_thread(lambda: simulated(2, routing=rules))
    try:
        async with await bench.manager.get_client() as client:
            outputs = await asyncio.gather(*(turn(client, f"s{i}") for i in range(30)))
            assert all(whole(output) for output in outputs)
            assert max(r.peak_in_flight for r in (await books(bench)).replicas) == 3
    finally:
        await asyncio.to_thread(bench.close)


class _Elsewhere:
    """A client in another process."""

    def __init__(self, client: LLMServerClient) -> None:
        self._client = client

    async def turn(self, session: str) -> str:
        return (await turn(self._client, session)).replica_id

    async def hold(self, count: int) -> None:
        await asyncio.gather(*(turn(self._client, f"held-{i}", 4000) for i in range(count)))
