"""A pool in this process: real balancer, real hosts, engines that can be watched and broken.

Only the transport is left out: :class:`InProcessBalancer` and :class:`InProcessReplica` are the
client's two protocols over plain objects.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from workbench.client import LLMServerClient
from workbench.cluster.balancer import GlobalRequestLoadBalancer
from workbench.engines.base import EngineLimits
from workbench.engines.host import EngineHost
from workbench.engines.simulated import SimulatedArgs, SimulatedEngine
from workbench.errors import ReplicaDiedError
from workbench.types import (
    EngineFigures,
    FinishReason,
    GenerateRequest,
    Lease,
    ReplicaState,
    TokenDelta,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence

    from workbench.engines.base import Engine

WAIT_S = 5.0
"""No wait of a test is longer."""

Step = SimulatedArgs(step_s=0.0, vocab_size=50, stop_token=-1)
"""As fast as it goes, and never stopping by itself."""


PROMPT = [1, 2, 3]


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

    async def close(self) -> None:
        self.closed = True


class InProcessReplica:
    """:class:`workbench.client.ReplicaPort` over a host in this process."""

    def __init__(self, host: EngineHost) -> None:
        self._host = host
        self._sent: set[asyncio.Task[None]] = set()

    async def submit(self, channel_id: str, requests: Sequence[GenerateRequest]) -> Sequence:
        return await self._host.submit(channel_id, requests)

    async def collect(self, channel_id: str, delivered: int) -> tuple[int, list[TokenDelta]]:
        return await self._host.collect(channel_id, delivered)

    def abort(self, request_ids: Sequence[str]) -> None:
        self._send(self._host.abort(request_ids))

    def close_channel(self, channel_id: str) -> None:
        self._send(self._host.close_channel(channel_id))

    def _send(self, call) -> None:
        task = asyncio.ensure_future(call)
        self._sent.add(task)
        task.add_done_callback(self._sent.discard)


class InProcessBalancer:
    """:class:`workbench.client.BalancerPort` over a balancer in this process."""

    def __init__(self, books: GlobalRequestLoadBalancer) -> None:
        self.books = books
        self.open_gate = asyncio.Event()
        """Cleared: acquiring takes until it is set."""
        self.open_gate.set()
        self.acquiring = 0
        self.ended: list[str] = []

    async def acquire(self, session_id: str, owner: str) -> Lease:
        self.acquiring += 1
        try:
            await self.open_gate.wait()
            return self.books.acquire(session_id, owner)
        finally:
            self.acquiring -= 1

    async def replica(self, replica_id: str) -> InProcessReplica:
        return self.books.handle(replica_id)

    def release(self, lease: Lease) -> None:
        self.books.release_server(lease)

    def report_death(self, lease: Lease) -> None:
        self.books.report_death(lease)

    def end_session(self, session_id: str) -> None:
        self.ended.append(session_id)
        self.books.end_session(session_id)


@dataclass
class Pool:
    """What a test can hold on to."""

    balancer: InProcessBalancer
    engines: list
    hosts: list[EngineHost] = field(default_factory=list)
    clients: list[LLMServerClient] = field(default_factory=list)

    @property
    def books(self) -> GlobalRequestLoadBalancer:
        return self.balancer.books

    @property
    def in_flight(self) -> int:
        return self.books.get_total_inflight()

    def client(self) -> LLMServerClient:
        client = LLMServerClient(self.balancer)
        self.clients.append(client)
        return client

    def pin(self, session_id: str, number: int) -> None:
        """Make ``replica-<number>`` the one that the session's next turn goes to."""
        others = [f"replica-{i}" for i in range(len(self.hosts)) if i != number]
        for replica_id in others:
            self.books.set_state(replica_id, ReplicaState.PAUSED)
        self.books.release_server(self.books.acquire(session_id, "test"))
        for replica_id in others:
            self.books.set_state(replica_id, ReplicaState.READY)

    def check(self) -> None:
        self.books._table.check()


@asynccontextmanager
async def pool_of(engines: Sequence[Engine], *, flush_s: float = 0.001) -> AsyncIterator[Pool]:
    """A pool of these engines. At its end all leases are back and the books are in order."""
    hosts = [
        EngineHost(f"replica-{i}", engine, flush_s=flush_s) for i, engine in enumerate(engines)
    ]
    for host in hosts:
        await host.start()
    books = GlobalRequestLoadBalancer({h.replica_id: InProcessReplica(h) for h in hosts})
    pool = Pool(InProcessBalancer(books), list(engines), hosts)
    try:
        yield pool
        await until(lambda: pool.in_flight == 0)
        pool.check()
    finally:
        for client in pool.clients:
            await client.aclose()
        for host in hosts:
            await host.close()


def simulated_pool(*args: SimulatedArgs, flush_s: float = 0.001):
    """One simulated replica per argument."""
    engines = [WatchedEngine(f"replica-{i}", a) for i, a in enumerate(args or (Step,))]
    return pool_of(engines, flush_s=flush_s)


def manual_pool(count: int = 1, *, flush_s: float = 0.001):
    """Replicas that say what they are told."""
    return pool_of([ManualEngine(f"replica-{i}") for i in range(count)], flush_s=flush_s)


def generate(client, session="s", *, prompt=PROMPT, max_tokens=8, deadline_s=None, **sampling):
    return client.generate(
        session,
        prompt_ids=prompt,
        sampling_params={"max_tokens": max_tokens, **sampling},
        deadline_s=deadline_s,
    )


async def undisturbed(prompt=PROMPT, *, args=Step, **sampling):
    """What a healthy pool says."""
    async with simulated_pool(replace(args, die_after_tokens=None)) as pool:
        return await generate(pool.client(), prompt=prompt, **sampling)


def assert_aligned(output):
    size = len(output.token_ids)
    assert len(output.log_probs) == size
    covered = [i for span in output.version_spans for i in range(span.start, span.end)]
    assert covered == list(range(size))
