"""A balancer on an event loop: long polls, time and probes, in virtual time."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from workbench.balancer import BalancerHost, GlobalRequestLoadBalancer
from workbench.balancer.host import FIGURES_S, PROBE_S, TICK_S, WATCH_S
from workbench.client.leases import LeaseBook
from workbench.config import RoutingConfig
from workbench.engines.virtual_clock import run_virtual
from workbench.types import EngineFigures, ReplicaState

FIGURES = EngineFigures(running=3, kv_cache_usage=0.5)


class Engines:
    """What the probes find; remembers when which was asked."""

    def __init__(self):
        self.answers = {}
        self.asked = []

    async def probe(self, handle):
        self.asked.append((asyncio.get_running_loop().time(), handle))
        answer = self.answers.get(handle, FIGURES)
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            await asyncio.Event().wait()
        return answer


@asynccontextmanager
async def hosted(
    engines=None, *, replicas=2, policy="sticky-least-loaded", asks_engines=False, **rules
):
    """A balancer that runs, and its host."""
    loop = asyncio.get_running_loop()
    books = GlobalRequestLoadBalancer(
        {f"replica-{i}": i for i in range(replicas)},
        rules=RoutingConfig(policy=policy, **rules),
        clock=loop.time,
        wall_clock=loop.time,
    )
    host = BalancerHost(books, (engines or Engines()).probe, asks_engines=asks_engines)
    host.start()
    try:
        yield books, host
    finally:
        await host.close()


def client(books, owner="me"):
    book = LeaseBook(owner)
    book.apply(books.exchange(book.report()))
    return book


def now_s():
    return asyncio.get_running_loop().time()


# ---------------------------------------------------------------------------- watching


def test_a_watch_returns_at_once_when_there_is_news():
    async def main():
        async with hosted() as (books, host):
            book = client(books)
            books.set_state("replica-0", ReplicaState.DRAINING)
            reply = await host.watch("me", book.cursor)
            assert [revoked.replica_id for revoked in reply.revocations] == ["replica-0"]
            assert now_s() == 0.0

    run_virtual(main())


def test_a_watch_returns_as_soon_as_there_is_news():
    async def main():
        async with hosted() as (books, host):
            book = client(books)
            watching = asyncio.create_task(host.watch("me", book.cursor))
            await asyncio.sleep(0.75)
            assert not watching.done()
            books.set_state("replica-0", ReplicaState.DRAINING)
            reply = await watching
            assert [revoked.replica_id for revoked in reply.revocations] == ["replica-0"]
            assert now_s() == 0.75

    run_virtual(main())


def test_every_client_that_watches_is_told():
    async def main():
        async with hosted() as (books, host):
            watching = [
                asyncio.create_task(host.watch(book.owner, book.cursor))
                for book in (client(books, f"client-{i}") for i in range(5))
            ]
            await asyncio.sleep(0.5)
            books.remove_servers(["replica-1"])
            for reply in await asyncio.gather(*watching):
                assert [revoked.replica_id for revoked in reply.revocations] == ["replica-1"]
            assert now_s() == 0.5

    run_virtual(main())


def test_a_watch_without_news_ends_by_itself_and_says_nothing():
    async def main():
        async with hosted() as (books, host):
            book = client(books)
            reply = await host.watch("me", book.cursor)
            assert now_s() == pytest.approx(WATCH_S)
            assert (reply.grants, reply.refusals, reply.revocations, reply.resync) == (
                [], [], [], False,
            )  # fmt: skip
            assert book.apply(reply) == []

    run_virtual(main())


def test_who_waits_is_woken_when_its_turn_comes():
    async def main():
        async with hosted(replicas=1, capacity=1) as (books, host):
            lease = books.acquire_server("s")
            book = client(books)
            wanted = book.want("t")
            book.apply(books.exchange(book.report()))
            watching = asyncio.create_task(host.watch("me", book.cursor))
            await asyncio.sleep(1.0)
            books.release_server(lease)
            reply = await watching
            assert [grant.lease_id for grant in reply.grants] == [wanted]
            assert now_s() == 1.0

    run_virtual(main())


def test_a_client_that_is_not_known_is_asked_for_everything_at_once():
    async def main():
        async with hosted() as (_, host):
            assert (await host.watch("stranger", 7)).resync
            assert now_s() == 0.0

    run_virtual(main())


@pytest.mark.parametrize("owner_timeout_s", [0.5, 2.0, 10.0])
def test_a_client_that_watches_lives(owner_timeout_s):
    async def main():
        async with hosted(owner_timeout_s=owner_timeout_s) as (books, host):
            book = client(books)
            book.want("s")
            book.apply(books.exchange(book.report()))
            while now_s() < 10 * owner_timeout_s:
                reply = await host.watch("me", book.cursor)
                assert not reply.resync
            assert books.get_total_inflight() == 1
            await asyncio.sleep(owner_timeout_s + 2 * TICK_S)
            assert books.get_total_inflight() == 0

    run_virtual(main())


# ---------------------------------------------------------------------------- probing


def test_a_dead_replica_is_probed_with_growing_pauses_until_it_is_well():
    async def main():
        engines = Engines()
        engines.answers[0] = ConnectionError("refused")
        async with hosted(engines, replicas=1, probe_s=1.0) as (books, _):
            books.report_death(books.acquire_server("s"))
            await asyncio.sleep(20.0)
            times = [round(at_s) for at_s, _ in engines.asked]
            assert times == [1, 3, 7, 15]
            (load,) = books.snapshot().replicas
            assert (load.state, load.reason) == (
                ReplicaState.UNHEALTHY, "ConnectionError: refused",
            )  # fmt: skip
            engines.answers[0] = FIGURES
            await asyncio.sleep(12.0)
            assert books.get_status()["active_servers"] == 1
            books.release_server(books.acquire_server("s"))
            for i in range(3):
                books.acquire_server(f"t{i}")
            assert len(engines.asked) == 5

    run_virtual(main())


def test_a_replica_that_does_not_answer_its_probe_is_not_well():
    async def main():
        engines = Engines()
        engines.answers[0] = None
        async with hosted(engines, replicas=1, probe_s=1.0) as (books, _):
            books.report_death(books.acquire_server("s"))
            await asyncio.sleep(1.0 + PROBE_S + 2 * TICK_S)
            assert books.snapshot().replicas[0].reason == f"no answer within {PROBE_S:g} s"

    run_virtual(main())


def test_who_waits_is_served_by_a_replica_that_is_well_again():
    async def main():
        async with hosted(replicas=1, probe_s=1.0) as (books, host):
            books.report_death(books.acquire_server("s"))
            book = client(books)
            wanted = book.want("t")
            book.apply(books.exchange(book.report()))
            reply = await host.watch("me", book.cursor)
            assert [grant.lease_id for grant in reply.grants] == [wanted]
            assert now_s() == pytest.approx(1.0, abs=2 * TICK_S)

    run_virtual(main())


class ReadsFigures:
    needs = frozenset({"engine_figures"})

    def __init__(self):
        self.seen = []

    def choose(self, turn, pinned, candidates):
        self.seen.append([view.engine for view in candidates])
        return candidates[0]


def test_engine_figures_reach_a_policy_that_needs_them_and_go_when_an_engine_is_silent():
    async def main():
        engines, policy = Engines(), ReadsFigures()
        async with hosted(engines, policy=policy) as (books, _):
            await asyncio.sleep(2 * TICK_S)
            books.acquire_server("s")
            engines.answers[1] = ConnectionError("refused")
            await asyncio.sleep(FIGURES_S + 2 * TICK_S)
            books.acquire_server("s")
        assert policy.seen == [[FIGURES, FIGURES], [FIGURES, None]]

    run_virtual(main())


def test_engines_are_asked_for_figures_at_an_interval_of_their_own():
    async def main():
        engines = Engines()
        async with hosted(engines, policy=ReadsFigures(), replicas=3):
            await asyncio.sleep(10.0)
            assert 3 * 10.0 / (FIGURES_S + TICK_S) <= len(engines.asked) <= 3 * 10.0 / FIGURES_S

    run_virtual(main())


def test_engines_are_not_asked_for_what_no_policy_needs():
    async def main():
        engines = Engines()
        async with hosted(engines):
            await asyncio.sleep(5.0)
        assert engines.asked == []

    run_virtual(main())


def test_engines_are_asked_where_requests_may_come_past_the_balancer_and_those_count():
    async def main():
        engines = Engines()
        engines.answers[0] = EngineFigures(external=5)
        async with hosted(engines, asks_engines=True) as (books, _):
            await asyncio.sleep(2 * TICK_S)
            leases = [books.acquire_server(f"s{i}") for i in range(5)]
            assert {lease.replica_id for lease in leases} == {"replica-1"}
            engines.answers[0] = ConnectionError("refused")
            await asyncio.sleep(FIGURES_S + 2 * TICK_S)
            assert books.acquire_server("s5").replica_id == "replica-0", "nobody knows any more"

    run_virtual(main())


def test_asking_for_figures_brings_no_unhealthy_replica_back_early():
    async def main():
        engines = Engines()
        async with hosted(engines, policy=ReadsFigures(), replicas=1, probe_s=5.0) as (books, _):
            books.report_death(books.acquire_server("s"))
            await asyncio.sleep(4.8)
            assert len(engines.asked) > 5
            assert books.get_status()["active_servers"] == 0
            await asyncio.sleep(0.5)
            assert books.get_status()["active_servers"] == 1

    run_virtual(main())


def test_asking_for_figures_does_not_lengthen_the_pause_between_probes():
    async def main():
        engines = Engines()
        engines.answers[0] = ConnectionError("refused")
        async with hosted(engines, policy=ReadsFigures(), replicas=1, probe_s=1.0) as (books, _):
            books.report_death(books.acquire_server("s"))
            await asyncio.sleep(2.0)
            engines.answers[0] = FIGURES
            await asyncio.sleep(1.5)
            assert books.get_status()["active_servers"] == 1

    run_virtual(main())


def test_probing_and_watching_change_no_count():
    async def main():
        async with hosted(policy="kv-aware") as (books, host):
            books.acquire_server("s", "door", prompt_tokens=5)
            book = client(books)
            before = books.snapshot().replicas, books.events()
            for _ in range(3):
                await host.watch("me", book.cursor)
            assert (books.snapshot().replicas, books.events()) == before

    run_virtual(main())


# ---------------------------------------------------------------------------- time


def test_time_goes_on_after_a_tick_that_failed(monkeypatch, caplog):
    async def main():
        async with hosted(owner_timeout_s=1.0) as (books, _):
            books.acquire_server("s", "gateway")
            books.heartbeat("gateway")
            tick = books.tick
            monkeypatch.setattr(books, "tick", lambda: 1 / 0)
            await asyncio.sleep(3 * TICK_S)
            monkeypatch.setattr(books, "tick", tick)
            await asyncio.sleep(1.0 + 2 * TICK_S)
            assert books.get_total_inflight() == 0

    run_virtual(main())
    assert "a tick of the balancer failed" in caplog.text


def test_a_host_closes_twice_and_leaves_nothing_running():
    async def main():
        engines = Engines()
        engines.answers[0] = None
        async with hosted(engines, policy="kv-aware", replicas=1) as (_, host):
            await asyncio.sleep(2 * TICK_S)
            await host.close()
            await host.close()
            assert asyncio.all_tasks() == {asyncio.current_task()}

    run_virtual(main())
