"""Who is woken, who is not, and what a watch says of its client, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.balancer.test_host import Engines, client, hosted, now_s
from workbench.balancer import BalancerHost, GlobalRequestLoadBalancer
from workbench.balancer.host import TICK_S, WATCH_S
from workbench.engines.virtual_clock import run_virtual
from workbench.routing.exchange import Exchange


def test_a_report_costs_no_look_at_each_client_that_watches(monkeypatch):
    looked = []
    has_news = Exchange.has_news
    monkeypatch.setattr(Exchange, "has_news", lambda *a: looked.append(a[1]) or has_news(*a))

    async def main():
        async with hosted(capacity=1) as (books, host):
            held = [books.acquire_server("s"), books.acquire_server("t")]
            clients = [client(books, f"client-{i}") for i in range(50)]
            watching = [
                asyncio.create_task(host.watch(book.owner, book.cursor)) for book in clients
            ]
            await asyncio.sleep(0.05)
            looked.clear()
            wanted = clients[7].want("u")
            for book in clients:
                book.apply(books.exchange(book.report()))
            assert looked == []
            books.release_server(held.pop())
            reply = await watching[7]
            assert [grant.lease_id for grant in reply.grants] == [wanted]
            assert now_s() == pytest.approx(0.05)
            assert looked == ["client-7"]
            await asyncio.gather(*watching)

    run_virtual(main())


def test_who_has_to_say_everything_again_is_woken():
    async def main():
        async with hosted() as (books, host):
            book = client(books)
            watching = asyncio.create_task(host.watch("me", book.cursor))
            await asyncio.sleep(0.25)
            books.release_owner("me")
            assert (await watching).resync
            assert now_s() == 0.25

    run_virtual(main())


def test_who_named_a_replica_before_it_was_known_is_woken_when_it_comes():
    async def main():
        loop = asyncio.get_running_loop()
        before = GlobalRequestLoadBalancer({"replica-0": 0}, clock=loop.time)
        book = client(before)
        book.want("s")
        book.apply(before.exchange(book.report()))
        books = GlobalRequestLoadBalancer(epoch=2, recovering=True, clock=loop.time)
        host = BalancerHost(books, Engines().probe)
        for _ in range(2):
            book.apply(books.exchange(book.report()))
        watching = asyncio.create_task(host.watch("me", book.cursor))
        await asyncio.sleep(0.25)
        books.add_servers({"replica-0": 0})
        assert (await watching).resync
        assert now_s() == 0.25
        await host.close()

    run_virtual(main())


def test_who_is_refused_is_woken():
    async def main():
        async with hosted(replicas=0, no_replica_s=1.0) as (books, host):
            book = client(books)
            wanted = book.want("s")
            book.apply(books.exchange(book.report()))
            reply = await host.watch("me", book.cursor)
            assert [refusal.lease_id for refusal in reply.refusals] == [wanted]
            assert now_s() == pytest.approx(1.0, abs=2 * TICK_S)

    run_virtual(main())


@pytest.mark.parametrize("brings", ["news", "nothing"])
def test_the_end_of_a_watch_is_no_sign_of_life(brings):
    async def main():
        async with hosted() as (books, host):
            book = client(books)
            book.want("s")
            book.apply(books.exchange(book.report()))
            watching = asyncio.create_task(host.watch("me", book.cursor))
            await asyncio.sleep(WATCH_S - TICK_S)
            if brings == "news":
                books.remove_servers(["replica-1"])
            assert bool((await watching).revocations) == (brings == "news")
            await asyncio.sleep(books.rules.owner_timeout_s - 2 * TICK_S - now_s())
            assert books.snapshot().clients == 1
            await asyncio.sleep(4 * TICK_S)
            assert books.snapshot().clients == 0
            assert books.get_total_inflight() == 0

    run_virtual(main())
