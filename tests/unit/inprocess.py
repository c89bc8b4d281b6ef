"""A pool in this process: real balancer, real hosts, engines that can be watched and broken."""

from __future__ import annotations

import asyncio
import functools
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from workbench.client import LLMServerClient
from workbench.client import client as client_module
from workbench.config import RoutingConfig
from workbench.engines.base import EngineLimits
from workbench.engines.simulated import SimulatedArgs, SimulatedEngine
from workbench.engines.virtual_clock import run_virtual
from workbench.errors import ReplicaDiedError
from workbench.local import LocalBalancer, LocalPool
from workbench.types import (
    EngineFigures,
    FinishReason,
    GenerateRequest,
    ReplicaState,
    TokenDelta,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence

    from workbench.engines.base import Engine
    from workbench.engines.host import EngineHost
    from workbench.routing.messages import Reply, Report

WAIT_S = 5.0
"""No wait of a test is longer."""

Step = SimulatedArgs(step_s=0.0, vocab_size=50, stop_token=-1)
"""As fast as it goes, and never stopping by itself."""


PROMPT = [1, 2, 3]


VIRTUAL_S = 600.0
"""No test on the virtual clock takes longer, by that clock."""


def virtually(test):
    """Run an async test on a clock that jumps instead of waiting."""

    @functools.wraps(test)
    def run(*args, **kwargs):
        async def bounded():
            async with asyncio.timeout(VIRTUAL_S):
                await test(*args, **kwargs)

        run_virtual(bounded())

    return run


def now() -> float:
    """By the clock of the running loop."""
    return asyncio.get_running_loop().time()


async def until(condition: Callable[[], bool]) -> None:
    """Return once ``condition`` holds."""
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.001)


class WatchedEngine(SimulatedEngine):
    """A simulated engine that remembers what it was asked and what it sampled."""

    def __init__(self, replica_id: str, args: SimulatedArgs) -> None:
        super().__init__(replica_id, args)
        self.asked: list[GenerateRequest] = []
        self.aborted: list[str] = []
        self.said: dict[str, list[int]] = {}

    async def add(self, request: GenerateRequest) -> None:
        await super().add(request)
        self.asked.append(request)

    async def abort(self, request_ids: Iterable[str]) -> None:
        ids = list(request_ids)
        self.aborted += ids
        await super().abort(ids)

    def drain(self) -> list[TokenDelta]:
        deltas = super().drain()
        for delta in deltas:
            self.said.setdefault(delta.request_id, []).extend(delta.token_ids)
        return deltas


class ManualEngine:
    """An engine that says what the test tells it to, when the test tells it to."""

    def __init__(self, replica_id: str = "replica-0") -> None:
        self._replica_id = replica_id
        self.asked: list[GenerateRequest] = []
        self.open: set[str] = set()
        self.aborted: list[str] = []
        self.admit = asyncio.Event()
        """Cleared: requests stay in :meth:`add`."""
        self.admit.set()
        self.arriving: list[str] = []
        """Ids in the order in which :meth:`add` was entered."""
        self.refusals: dict[str, Exception] = {}
        """By session: what :meth:`add` raises."""
        self.broken: Exception | None = None
        """What :meth:`drain` raises."""
        self.closed = False
        self._news: list[TokenDelta] = []
        self._urgent = asyncio.Event()

    async def start(self) -> EngineLimits:
        return EngineLimits(4096, 1000, 64)

    async def add(self, request: GenerateRequest) -> None:
        self.arriving.append(request.request_id)
        await self.admit.wait()
        if request.session_id in self.refusals:
            raise self.refusals[request.session_id]
        self.asked.append(request)
        self.open.add(request.request_id)

    def say(
        self,
        request: GenerateRequest,
        *ids: int,
        finish: FinishReason | None = None,
        version: int = 0,
    ) -> None:
        delta = TokenDelta(
            request.request_id, list(ids), [-0.5 * i for i in ids], version, finish_reason=finish
        )
        self._news.append(delta)
        if finish:
            self.open.discard(request.request_id)
        self._urgent.set()

    def die(self) -> None:
        self.fail(ReplicaDiedError(self._replica_id, "told to"))

    def fail(self, error: Exception) -> None:
        self.broken = error
        self._urgent.set()

    async def wait(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._urgent.wait()
        except TimeoutError:
            return
        self._urgent.clear()

    def drain(self) -> list[TokenDelta]:
        if self.broken:
            raise self.broken
        news, self._news = self._news, []
        return news

    async def abort(self, request_ids: Iterable[str]) -> None:
        for request_id in request_ids:
            self.aborted.append(request_id)
            if request_id in self.open:
                self.open.discard(request_id)
                self._news.append(
                    TokenDelta(request_id, [], [], 0, finish_reason=FinishReason.ABORT)
                )
        self._urgent.set()

    def figures(self) -> EngineFigures:
        return EngineFigures(running=len(self.open))

    def check(self) -> None:
        if isinstance(self.broken, ReplicaDiedError):
            raise self.broken

    async def close(self) -> None:
        self.closed = True


class GatedBalancer(LocalBalancer):
    """A balancer that answers when the test lets it."""

    def __init__(self, pool: LocalPool) -> None:
        super().__init__(pool)
        self.open_gate = asyncio.Event()
        """Cleared: asking takes until it is set."""
        self.open_gate.set()
        self.broken: Exception | None = None
        """What every call raises."""
        self.reports: list[Report] = []
        self.watches = 0

    async def exchange(self, report: Report) -> Reply:
        self.reports.append(report)
        await self.open_gate.wait()
        self._fail()
        return await super().exchange(report)

    async def watch(self, owner: str, cursor: int) -> Reply:
        self.watches += 1
        self._fail()
        reply = await super().watch(owner, cursor)
        self._fail()
        return reply

    def leave(self, report: Report) -> None:
        if self.broken is None:
            super().leave(report)

    def _fail(self) -> None:
        if self.broken is not None:
            raise self.broken

    @property
    def ended(self) -> list[str]:
        return [session for report in self.reports for session in report.ended]

    @property
    def asked(self) -> int:
        """Turns that were asked for."""
        return sum(len(report.wants) for report in self.reports)


class Pool(LocalPool):
    """What a test can hold on to."""

    def __init__(self, engines: Sequence[Engine], *, flush_s: float, **routing) -> None:
        rules = RoutingConfig(**{"report_s": 0.001, "no_replica_s": 0.3, **routing})
        super().__init__(engines, routing=rules, flush_s=flush_s)
        self.engines = list(engines)
        self.port = GatedBalancer(self)

    def client(self, client_cls=None, **kwargs):
        """With short pauses."""
        return super().client(client_cls, **{"backoff_s": 0.001, **kwargs})

    def client_by(self, port: LocalBalancer, **kwargs) -> LLMServerClient:
        """A client with a way to the balancer of its own."""
        client = self.client(**kwargs)
        client._balancer = port
        return client

    @property
    def hosts(self) -> list[EngineHost]:
        return [replica.host for replica in self.replicas.values()]

    @property
    def in_flight(self) -> int:
        return self.balancer.get_total_inflight()

    def pin(self, session_id: str, number: int) -> None:
        """Make ``replica-<number>`` the one that the session's next turn goes to."""
        others = [r for r in self.replicas if r != f"replica-{number}"]
        for replica_id in others:
            self.balancer.set_state(replica_id, ReplicaState.PAUSED)
        self.balancer.release_server(self.balancer.acquire_server(session_id))
        for replica_id in others:
            self.balancer.set_state(replica_id, ReplicaState.READY)

    async def greeted(self, session: str = "warm") -> LLMServerClient:
        """A client whose first exchange is over, and that has nothing to report."""
        client = self.client()
        await generate(client, session, max_tokens=1)
        await until(lambda: not self.in_flight)
        return client

    def jump(self, seconds: float) -> None:
        """Let time pass for the balancer, all at once."""
        clock = self.balancer._clock
        self.balancer._clock = lambda: clock() + seconds
        self.balancer.tick()

    def check(self) -> None:
        self.balancer.check()


@asynccontextmanager
async def pool_of(
    engines: Sequence[Engine], *, flush_s: float = 0.001, **routing
) -> AsyncIterator[Pool]:
    """A pool of these engines. At its end all leases are back and the books are in order."""
    async with Pool(engines, flush_s=flush_s, **routing) as pool:
        yield pool
        await until(lambda: pool.in_flight == 0)
        pool.check()


def simulated_pool(*args: SimulatedArgs, flush_s: float = 0.001, **routing):
    """One simulated replica per argument."""
    engines = [WatchedEngine(f"replica-{i}", a) for i, a in enumerate(args or (Step,))]
    return pool_of(engines, flush_s=flush_s, **routing)


def manual_pool(count: int = 1, *, flush_s: float = 0.001, **routing):
    """Replicas that say what they are told."""
    engines = [ManualEngine(f"replica-{i}") for i in range(count)]
    return pool_of(engines, flush_s=flush_s, **routing)


class _Hasty:
    """:mod:`asyncio` for one module, without its pauses."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    def __getattr__(self, name: str):
        return getattr(asyncio, name)

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0)


def noted_pauses(monkeypatch) -> list[float]:
    """The client's pauses between attempts from now on, which take no time."""
    hasty = _Hasty()
    monkeypatch.setattr(client_module, "asyncio", hasty)
    return hasty.pauses


async def begun(client: LLMServerClient, turns: int = 1) -> None:
    """Return in the very step of the loop in which the client has this many leases."""
    async with asyncio.timeout(WAIT_S):
        while client._link is None or client._link.desk.book.num_open < turns:
            await asyncio.sleep(0)


def generate(client, session="s", *, prompt=PROMPT, max_tokens=8, deadline_s=None, **sampling):
    return client.generate(
        session,
        prompt_ids=prompt,
        sampling_params={"max_tokens": max_tokens, **sampling},
        deadline_s=deadline_s,
    )


async def opened(pool, client, session="s", *, engine=0, **options):
    """A call that the manual engine has, and its request there."""
    call = asyncio.ensure_future(generate(client, session, **options))
    there = pool.engines[engine]

    def requests():
        return [r for r in there.asked if r.session_id == session and r.request_id in there.open]

    await until(requests)
    return call, requests()[-1]


async def answered(pool, call, request, *ids, engine=0):
    """The output of a call whose engine says these tokens, and that it is done."""
    pool.engines[engine].say(request, *(ids or (5,)), finish=FinishReason.STOP)
    return await call


async def undisturbed(prompt=PROMPT, *, args=Step, **sampling):
    """What a healthy pool says."""
    async with simulated_pool(replace(args, die_after_tokens=None)) as pool:
        return await generate(pool.client(), prompt=prompt, **sampling)


def assert_aligned(output):
    size = len(output.token_ids)
    assert len(output.log_probs) == size
    covered = [i for span in output.version_spans for i in range(span.start, span.end)]
    assert covered == list(range(size))
