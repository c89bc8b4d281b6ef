"""The balancer benchmark's part through Ray: verl's actor and ours, used as their clients do.

A turn on verl's side is what its client does at the balancer: one call to acquire, which is
awaited, and one to release, which is not. A turn on ours is what :class:`LLMServerClient` does at
the balancer: a lease from a pin that is held or from the balancer, with the prompt's tokens, given
back with its usage. Nothing is generated on either side.

Closed loop (``ratio``, ``ratio_8_clients``): each turn is taken, kept across one pass of the event
loop, and given back, as fast as it goes. An upper bound: what the decision path can do. On our side
most such turns begin and end between two reports, and the balancer hears of them as counters of
their session only (``told_of_turns`` is the share of the others). A turn that lasts costs it more,
while verl's cost does not depend on how long turns last.

Turns that last (``held``): each lease is kept for ``HOLD_S``, longer than the report interval, so
that our balancer is told of nearly each one's beginning, end and usage. There can be no more than
``CALLERS_HELD / HOLD_S`` per second, which only ours comes near: ``ratio`` says less here than the
CPU time per turn of the balancer's and the client's process, with all their threads. verl's
balancer is busy all the time. Ratios of costs are ours / verl's: below 1, ours is cheaper.

Equal on both sides: replicas, callers, the generator and its seed (who plays fewer turns plays the
first ones of the same sequences), the share of first turns (each caller's first session is warmed
up before the clock starts; ``first_turns`` is what was counted), how long a lease is kept, what is
prepared beforehand, and where the clock stops: when the balancer has taken in everything. Not
equal: the number of turns, as one side is slower and both are to play for about as long
(``seconds``); and what travels, as verl's client names the session alone.

``sticky_acquire_p50_s`` is how long a lone caller at an idle balancer waits until a turn of a
pinned session has its replica, as a median: on verl's side a call to the actor and back, on ours a
look into what the client holds, with no call. ``lag_*`` is how old the oldest news in a report was
when our balancer had booked it; verl's has no such lag, as its callers wait instead.
"""

from __future__ import annotations

import asyncio
import gc
import math
import os
import statistics
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import ray

from benchmarks.peers import verl_balancer_class
from benchmarks.turns import Caller, OurPlayer, VerlPlayer, callers, first_turns
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

CALLERS_HELD = 2048
HOLD_S = 0.15
HELD_S = 4.0
"""After this long no further turn begins in a run with turns that last."""


class Load(NamedTuple):
    """What each client process plays."""

    callers: int
    each: int
    """Turns per caller, at most."""
    hold_s: float = 0.0
    for_s: float = math.inf


HELD = Load(CALLERS_HELD, math.ceil(HELD_S / HOLD_S), HOLD_S, HELD_S)

LOADS = {
    "": (1, {"verl": Load(CALLERS, 8), "ours": Load(CALLERS, 600)}),
    "_8_clients": (CLIENTS, {"verl": Load(CALLERS, 2), "ours": Load(CALLERS, 150)}),
    "_held": (1, {"verl": HELD, "ours": HELD}),
}
"""By the ending of their figures' names: client processes, and what each plays on either side."""


class Heard(NamedTuple):
    """One report, as our balancer saw it."""

    lag_s: float
    """How old its oldest news were when they were booked."""
    begun: int
    """Turns that are in it one by one: asked for, or open when it was made."""


class TimedBalancer(BalancerActor):
    """Notes how far it is behind."""

    def __init__(self) -> None:
        super().__init__(None, RoutingConfig(), 0)
        self._heard: list[Heard] = []

    def exchange_sent(self, report: Report, sent_s: float) -> Reply:
        """The clock is the machine's own, which all processes share."""
        reply = self.exchange(report)
        lag_s = report.age_s + time.monotonic() - sent_s
        self._heard.append(Heard(lag_s, len(report.wants) + len(report.opened)))
        return reply

    def take_heard(self) -> list[Heard]:
        """What was noted since the last call."""
        taken, self._heard = self._heard, []
        return taken


class TimedPort(RayBalancer):
    """Sends the time along."""

    async def exchange(self, report: Report) -> Reply:
        """One round trip."""
        reply: Reply = await self._actor.ask("exchange_sent", report, time.monotonic())
        return reply


def player(side: str, balancer: Any) -> VerlPlayer | OurPlayer:
    """For one run of one client process."""
    return VerlPlayer(balancer) if side == "verl" else OurPlayer(TimedPort(balancer))


class Client:
    """A process that plays turns; becomes a Ray actor."""

    def __init__(self) -> None:
        self._player: VerlPlayer | OurPlayer
        self._load = Load(0, 0)
        self._callers: list[Caller] = []
        self._played: list[int] = []

    async def pid(self) -> int:
        """Of its process."""
        return os.getpid()

    async def prepare(self, side: str, balancer: Any, load: Load, seed: int) -> None:
        """All that is not to be measured."""
        self._player, self._load = player(side, balancer), load
        self._callers = callers(load.callers, load.each, seed)
        await asyncio.gather(*(self._player.warm_up(caller.warm_up) for caller in self._callers))
        await self._player.settle()
        gc.collect()
        gc.freeze()  # what was prepared is not the sides' to look through

    async def play(self) -> int:
        """The number of turns; callers that hold their leases begin evenly spread."""
        hold_s = self._load.hold_s
        started = asyncio.get_running_loop().time()

        async def call(number: int, caller: Caller) -> int:
            if hold_s:
                await asyncio.sleep(hold_s * number / self._load.callers)
            return await self._player.play(caller.turns, hold_s, started + self._load.for_s)

        calls = (call(*numbered) for numbered in enumerate(self._callers))
        self._played = await asyncio.gather(*calls)
        await self._player.settle()
        return sum(self._played)

    async def close(self) -> float:
        """Forget what was prepared; the share of first turns in what was played."""
        await self._player.aclose()
        share = first_turns(self._callers, self._played)
        self._callers = []
        gc.unfreeze()
        return share

    async def verl_sticky(self, balancer: Any) -> float:
        """Median seconds until a pinned turn has its server; one caller."""
        spent = []
        for _ in range(STICKY_CALLS):
            started = time.perf_counter()
            server_id, _ = await balancer.acquire_server.remote(request_id="sticky")
            spent.append(time.perf_counter() - started)
            await balancer.release_server.remote(server_id=server_id)
        return statistics.median(spent)

    async def our_sticky(self, balancer: Any) -> float:
        """The same; the first turn, which has to ask, is not among them."""
        desk = LeaseDesk(TimedPort(balancer), uuid.uuid4().hex)
        turn = callers(1, 0)[0].warm_up
        desk.give_back(await desk.acquire("sticky", turn.prompt_ids), **turn.usage)
        spent = []
        for _ in range(STICKY_CALLS):
            started = time.perf_counter()
            lease = desk.take("sticky", len(turn.prompt_ids))
            lease = lease or await desk.acquire("sticky", turn.prompt_ids)
            spent.append(time.perf_counter() - started)
            desk.give_back(lease, **turn.usage)
            await asyncio.sleep(0)
        await desk.aclose()
        return statistics.median(spent)


@dataclass
class Run:
    """One side under one load."""

    turns: int
    seconds: float
    first_turns: float
    balancer_cpu_s: float
    client_cpu_s: float
    heard: list[Heard]

    @property
    def rate(self) -> float:
        """Turns per second of all clients together."""
        return self.turns / self.seconds

    @property
    def told(self) -> float:
        """The share of turns of which our balancer heard one by one."""
        return sum(report.begun for report in self.heard) / self.turns


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
        self._client_pids = ray.get([one.pid.remote() for one in self.clients])
        self._pids = {
            "verl": ray.get(self.verl.__ray_call__.remote(lambda _: os.getpid())),
            "ours": ray.get(self.ours.pid.remote()),
        }

    def run(self, side: str, clients: int, load: Load, seed: int) -> Run:
        """Prepare, warm up, and measure."""
        used, balancer = self.clients[:clients], {"verl": self.verl, "ours": self.ours}[side]
        ray.get([one.prepare.remote(side, balancer, load, seed + n) for n, one in enumerate(used)])
        ray.get(self.ours.take_heard.remote())
        before = self._cpu_s(side, clients)
        started = time.perf_counter()
        played = ray.get([one.play.remote() for one in used])
        seconds = time.perf_counter() - started
        after = self._cpu_s(side, clients)
        heard = ray.get(self.ours.take_heard.remote())
        firsts = ray.get([one.close.remote() for one in used])
        spent = (after[0] - before[0], after[1] - before[1])
        return Run(sum(played), seconds, statistics.mean(firsts), *spent, heard)

    def sticky(self, side: str) -> float:
        """See the module."""
        one = self.clients[0]
        method, balancer = {
            "verl": (one.verl_sticky, self.verl),
            "ours": (one.our_sticky, self.ours),
        }[side]
        spent_s: float = ray.get(method.remote(balancer))
        return spent_s

    def _cpu_s(self, side: str, clients: int) -> tuple[float, float]:
        return cpu_s(self._pids[side]), sum(map(cpu_s, self._client_pids[:clients]))


def cpu_s(pid: int) -> float:
    """CPU seconds of a process so far, in user and system mode, of all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(rounds: int) -> dict[str, Any]:
    """Rounds in which the sides alternate; the first warms up and does not count."""
    sides = Sides()
    runs: dict[tuple[str, str], list[Run]] = {}
    sticky: dict[str, list[float]] = {"verl": [], "ours": []}
    for number in range(rounds + 1):
        order = ("verl", "ours") if number % 2 else ("ours", "verl")
        for place, (load, (clients, plays)) in enumerate(LOADS.items()):
            for side in order:
                run = sides.run(side, clients, plays[side], 1000 * number + 100 * place)
                runs.setdefault((load, side), []).append(run)
        for side in order:
            sticky[side].append(sides.sticky(side))
    counted = {key: values[1:] for key, values in runs.items()}
    p50s = {side: statistics.median(values[1:]) for side, values in sticky.items()}
    return _summary(counted, p50s)


def _summary(runs: dict[tuple[str, str], list[Run]], p50s: dict[str, float]) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for load in ("", "_8_clients"):
        rates = _rates(runs[load, "ours"], runs[load, "verl"])
        figures |= {f"{name}{load}": value for name, value in rates.items()}
    figures["sticky_acquire_p50_s"] = {side: round(p50, 7) for side, p50 in p50s.items()}
    figures["sticky_acquire_p50_ratio"] = round(p50s["ours"] / p50s["verl"], 4)
    figures["held"] = _held(runs["_held", "ours"], runs["_held", "verl"])
    for load in LOADS:
        figures |= _behind(runs[load, "ours"], load)
    figures["runs"] = {side + load: _raw(values) for (load, side), values in runs.items()}
    return {**figures, "replicas": REPLICAS, "callers_per_client": CALLERS}


def _rates(ours: list[Run], verl: list[Run]) -> dict[str, float]:
    our_rate = statistics.median(run.rate for run in ours)
    verl_rate = statistics.median(run.rate for run in verl)
    return {
        "ours_turns_per_s": round(our_rate),
        "verl_turns_per_s": round(verl_rate),
        "ratio": round(our_rate / verl_rate, 1),
    }


def _held(ours: list[Run], verl: list[Run]) -> dict[str, Any]:
    figures: dict[str, Any] = _rates(ours, verl)
    balancer, both = {}, {}
    for side, runs in (("ours", ours), ("verl", verl)):
        turns = sum(run.turns for run in runs)
        balancer[side] = sum(run.balancer_cpu_s for run in runs) / turns
        client = sum(run.client_cpu_s for run in runs) / turns
        both[side] = balancer[side] + client
        figures[f"{side}_balancer_cpu_s_per_turn"] = round(balancer[side], 7)
        figures[f"{side}_client_cpu_s_per_turn"] = round(client, 7)
    return {
        **figures,
        "balancer_cpu_ratio": round(balancer["ours"] / balancer["verl"], 4),
        "balancer_and_client_cpu_ratio": round(both["ours"] / both["verl"], 4),
        "told_of_turns": round(statistics.mean(run.told for run in ours), 3),
        "callers": CALLERS_HELD,
        "hold_s": HOLD_S,
        "most_turns_per_s": round(CALLERS_HELD / HOLD_S),
    }


def _behind(runs: list[Run], ending: str) -> dict[str, float]:
    lags = [report.lag_s for run in runs for report in run.heard]
    cuts = statistics.quantiles(lags, n=100)
    return {
        f"lag_p50_s{ending}": round(cuts[49], 4),
        f"lag_p99_s{ending}": round(cuts[98], 4),
        f"reports{ending}": len(lags),
    }


def _raw(runs: list[Run]) -> dict[str, list[float]]:
    figures: dict[str, list[float]] = {
        "turns_per_s": [round(run.rate) for run in runs],
        "seconds": [round(run.seconds, 2) for run in runs],
        "first_turns": [round(run.first_turns, 3) for run in runs],
    }
    if any(run.heard for run in runs):  # verl's hears of every turn twice
        figures["told_of_turns"] = [round(run.told, 3) for run in runs]
    return figures
