"""The balancer benchmark's part through Ray: verl's actor and ours, the same turns.

A turn on verl's side is what its client does: one call to acquire, which is awaited, and one to
release, which is not. A turn on ours is what :class:`LLMServerClient` does: a lease from a pin that
is held or from the balancer, kept across one pass of the event loop, and given back. Both sides'
clock stops when the balancer has taken in everything.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
import uuid
from typing import TYPE_CHECKING, Any

import ray

from benchmarks.peers import verl_balancer_class
from benchmarks.turns import conversations
from workbench.client.desk import LeaseDesk
from workbench.cluster.balancer import MAX_CALLS, BalancerActor
from workbench.cluster.ports import RayBalancer
from workbench.config import RoutingConfig

if TYPE_CHECKING:
    from workbench.routing.messages import Reply, Report

REPLICAS = 64
CALLERS = 256
CLIENTS = 8
STICKY_CALLS = 400


class TimedBalancer(BalancerActor):
    """Says how old the news in each report were when they were booked: how far it is behind."""

    def __init__(self) -> None:
        super().__init__(None, RoutingConfig(), 0)
        self._lags_s: list[float] = []

    def exchange_sent(self, report: Report, sent_s: float) -> Reply:
        """The clock is the machine's own, which all processes share."""
        reply = self.exchange(report)
        self._lags_s.append(report.age_s + time.monotonic() - sent_s)
        return reply

    def take_lags(self) -> list[float]:
        taken, self._lags_s = self._lags_s, []
        return taken


class TimedPort(RayBalancer):
    """Sends the time along."""

    async def exchange(self, report: Report) -> Reply:
        reply: Reply = await self._handle.exchange_sent.remote(report, time.monotonic())
        return reply


class Client:
    """A process that plays turns; becomes a Ray actor."""

    async def ready(self) -> int:
        return os.getpid()

    async def verl(self, balancer: Any, callers: int, each: int, seed: int) -> float:
        """Seconds for all turns."""

        async def play(sessions: list[str]) -> None:
            for session in sessions:
                server_id, _ = await balancer.acquire_server.remote(session)
                balancer.release_server.remote(server_id)

        played = conversations(callers, each, seed)
        started = time.perf_counter()
        await asyncio.gather(*(play(sessions) for sessions in played))
        await balancer.get_total_inflight.remote()
        return time.perf_counter() - started

    async def ours(self, balancer: Any, callers: int, each: int, seed: int) -> float:
        """Seconds for all turns."""
        desk = LeaseDesk(TimedPort(balancer), uuid.uuid4().hex)

        async def play(sessions: list[str]) -> None:
            for session in sessions:
                lease = desk.take(session) or await desk.acquire(session)
                await asyncio.sleep(0)
                desk.give_back(lease)

        played = conversations(callers, each, seed)
        started = time.perf_counter()
        await asyncio.gather(*(play(sessions) for sessions in played))
        await desk.flush()
        spent = time.perf_counter() - started
        await desk.aclose()
        return spent

    async def verl_sticky(self, balancer: Any) -> float:
        """Median seconds until a pinned turn has its server; one caller."""
        spent = []
        for _ in range(STICKY_CALLS):
            started = time.perf_counter()
            server_id, _ = await balancer.acquire_server.remote("sticky")
            spent.append(time.perf_counter() - started)
            await balancer.release_server.remote(server_id)
        return statistics.median(spent)

    async def our_sticky(self, balancer: Any) -> float:
        """The same; the first turn, which has to ask, is not among them."""
        desk = LeaseDesk(TimedPort(balancer), uuid.uuid4().hex)
        desk.give_back(await desk.acquire("sticky"))
        spent = []
        for _ in range(STICKY_CALLS):
            started = time.perf_counter()
            lease = desk.take("sticky") or await desk.acquire("sticky")
            spent.append(time.perf_counter() - started)
            desk.give_back(lease)
            await asyncio.sleep(0)
        await desk.aclose()
        return statistics.median(spent)


class Sides:
    """Both balancers with the same replicas, and the clients that use them."""

    def __init__(self) -> None:
        client: Any = ray.remote(Client)
        self.clients = [client.options(num_cpus=0).remote() for _ in range(CLIENTS)]
        servers = {f"replica-{number}": self.clients[0] for number in range(REPLICAS)}
        verl: Any = ray.remote(verl_balancer_class())
        self.verl = verl.options(num_cpus=0).remote(servers)
        ours: Any = ray.remote(TimedBalancer)
        self.ours = ours.options(num_cpus=0, max_concurrency=MAX_CALLS).remote()
        ray.get([self.ours.add_servers.remote(servers), self.ours.start.remote()])
        ray.get([one.ready.remote() for one in self.clients])

    def verl_rate(self, clients: int, each: int, seed: int) -> float:
        """Turns per second of all clients together."""
        started = time.perf_counter()
        ray.get(
            [
                one.verl.remote(self.verl, CALLERS, each, seed + number)
                for number, one in enumerate(self.clients[:clients])
            ]
        )
        return clients * CALLERS * each / (time.perf_counter() - started)

    def our_rate(self, clients: int, each: int, seed: int) -> tuple[float, list[float]]:
        """The same, and the lags."""
        ray.get(self.ours.take_lags.remote())
        started = time.perf_counter()
        ray.get(
            [
                one.ours.remote(self.ours, CALLERS, each, seed + number)
                for number, one in enumerate(self.clients[:clients])
            ]
        )
        rate = clients * CALLERS * each / (time.perf_counter() - started)
        return rate, ray.get(self.ours.take_lags.remote())


def measure(rounds: int) -> dict[str, Any]:
    """Alternating rounds; each side plays about as long as the other."""
    sides = Sides()
    rates: dict[str, list[float]] = {name: [] for name in ("verl", "ours", "verl_8", "ours_8")}
    sticky: dict[str, list[float]] = {"verl": [], "ours": []}
    lags: list[float] = []
    lags_8: list[float] = []
    for number in range(rounds + 1):
        seed = 1000 * number
        verl = sides.verl_rate(1, 8, seed)
        ours, behind = sides.our_rate(1, 400, seed)
        verl_8 = sides.verl_rate(CLIENTS, 2, seed)
        ours_8, behind_8 = sides.our_rate(CLIENTS, 100, seed)
        verl_p50 = ray.get(sides.clients[0].verl_sticky.remote(sides.verl))
        our_p50 = ray.get(sides.clients[0].our_sticky.remote(sides.ours))
        if number == 0:
            continue  # warms up
        for name, rate in zip(rates, (verl, ours, verl_8, ours_8), strict=True):
            rates[name].append(rate)
        lags += behind
        lags_8 += behind_8
        sticky["verl"].append(verl_p50)
        sticky["ours"].append(our_p50)
    return {**_summary(rates, sticky), **_behind(lags), **_behind(lags_8, "_8_clients")}


def _behind(lags: list[float], suffix: str = "") -> dict[str, float]:
    cuts = statistics.quantiles(lags, n=100)
    return {
        f"lag_p50_s{suffix}": round(cuts[49], 4),
        f"lag_p99_s{suffix}": round(cuts[98], 4),
        f"reports{suffix}": len(lags),
    }


def _summary(rates: dict[str, list[float]], sticky: dict[str, list[float]]) -> dict[str, Any]:
    median = {name: statistics.median(values) for name, values in rates.items()}
    p50 = {name: statistics.median(values) for name, values in sticky.items()}
    return {
        "ours_turns_per_s": round(median["ours"]),
        "verl_turns_per_s": round(median["verl"]),
        "ratio": round(median["ours"] / median["verl"], 1),
        "ours_turns_per_s_8_clients": round(median["ours_8"]),
        "verl_turns_per_s_8_clients": round(median["verl_8"]),
        "ratio_8_clients": round(median["ours_8"] / median["verl_8"], 1),
        "sticky_acquire_p50_s": {name: round(value, 7) for name, value in p50.items()},
        "sticky_acquire_p50_ratio": round(p50["ours"] / p50["verl"], 4),
        "raw_turns_per_s": {n: [round(v) for v in values] for n, values in rates.items()},
        "replicas": REPLICAS,
        "callers_per_client": CALLERS,
    }
