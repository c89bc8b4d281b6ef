"""A pool in this process, without Ray: real balancer, real hosts, simulated engines.

For property tests, faults and what-if studies. On a :mod:`workbench.engines.virtual_clock` hours of
a large pool take seconds; never a claim about serving speed.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any, Self, TypeVar

from workbench.balancer import BalancerHost, GlobalRequestLoadBalancer
from workbench.client import LLMServerClient
from workbench.engines.host import FLUSH_S, EngineHost
from workbench.engines.simulated import SimulatedArgs, SimulatedEngine
from workbench.engines.virtual_clock import VirtualClockLoop
from workbench.errors import (
    BalancerLostError,
    ConfigError,
    PoolClosedError,
    ReplicaDiedError,
    ReplicaError,
)
from workbench.metrics.feed import Feed
from workbench.metrics.recorder import Recorder
from workbench.metrics.samples import Activity, Sample
from workbench.metrics.tables import event_frame, session_frame
from workbench.types import (
    EngineFigures,
    PoolSnapshot,
    ReplicaSnapshot,
    ReplicaState,
    ReplicaStatus,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    import pandas as pd

    from workbench.config import RoutingConfig
    from workbench.engines.base import Engine
    from workbench.metrics.history import HistoryPage
    from workbench.routing.messages import Reply, Report
    from workbench.types import GenerateRequest, TokenDelta

T = TypeVar("T")
ClientT = TypeVar("ClientT", bound=LLMServerClient)


HOT_SESSIONS = 30
"""Told one by one in a sample, the busiest."""

ANSWER_S = 5.0
"""Other threads wait no longer for the pool's event loop."""


class LocalReplica:
    """The client's way to a host in this process."""

    def __init__(self, host: EngineHost) -> None:
        self.host = host
        self._killed = asyncio.Event()
        self._sent: set[asyncio.Task[None]] = set()

    def kill(self) -> None:
        """From now on it answers nobody, as a process that was killed."""
        self._killed.set()

    async def submit(
        self, channel_id: str, requests: Sequence[GenerateRequest]
    ) -> Sequence[Exception | None]:
        """See :meth:`EngineHost.submit`."""
        answer: list[Exception | None]
        answer = await self._unless_killed(self.host.submit(channel_id, requests))
        return answer

    async def collect(self, channel_id: str, delivered: int) -> tuple[int, list[TokenDelta]]:
        """See :meth:`EngineHost.collect`."""
        answer: tuple[int, list[TokenDelta]]
        answer = await self._unless_killed(self.host.collect(channel_id, delivered))
        return answer

    async def probe(self) -> EngineFigures:
        """See :meth:`EngineHost.probe`."""
        if self._killed.is_set():
            raise self._death()
        return self.host.probe()

    def abort(self, request_ids: Sequence[str]) -> None:
        """Does not wait."""
        self._send(self.host.abort(request_ids))

    def close_channel(self, channel_id: str) -> None:
        """Does not wait."""
        self._send(self.host.close_channel(channel_id))

    async def _unless_killed(self, call: Coroutine[Any, Any, Any]) -> Any:
        return await _unless(self._killed, call, self._death())

    def _death(self) -> ReplicaDiedError:
        return ReplicaDiedError(self.host.replica_id, "it was killed")

    def _send(self, call: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(call)
        self._sent.add(task)
        task.add_done_callback(self._sent.discard)


class LocalBalancer:
    """The client's way to the pool's balancer, whichever life of it that is."""

    def __init__(self, pool: LocalPool) -> None:
        self._pool = pool

    async def exchange(self, report: Report) -> Reply:
        """See :meth:`GlobalRequestLoadBalancer.exchange`."""
        return self._pool.living_balancer().exchange(report)

    async def watch(self, owner: str, cursor: int) -> Reply:
        """See :meth:`BalancerHost.watch`."""
        self._pool.living_balancer()
        reply: Reply = await _unless(
            self._pool.balancer_died,
            self._pool.balancer_host.watch(owner, cursor),
            BalancerLostError("the balancer was killed"),
        )
        return reply

    async def replica(self, replica_id: str) -> LocalReplica:
        """The way to a replica."""
        replica: LocalReplica = self._pool.living_balancer().handle(replica_id)
        return replica

    def leave(self, report: Report) -> None:
        """See :meth:`GlobalRequestLoadBalancer.leave`."""
        if self._pool.balancer_lives:
            self._pool.balancer.leave(report)


class LocalPool:
    """Simulated replicas behind one balancer.

    Args:
        engines: the number of replicas, or one engine or :class:`SimulatedArgs` for each.
        args: of the replicas that are given by number.
        routing: how turns find their replicas.
        seed: of the policy's chances.
        flush_s: see :class:`EngineHost`.
        sample_s: how often the pool is looked at for its history.
    """

    def __init__(
        self,
        engines: int | Sequence[SimulatedArgs | Engine] = 1,
        args: SimulatedArgs | None = None,
        *,
        routing: RoutingConfig | None = None,
        seed: int = 0,
        flush_s: float = FLUSH_S,
        sample_s: float = 1.0,
    ) -> None:
        if isinstance(engines, int):
            if engines < 1:
                raise ConfigError("engines", f"{engines}", allowed="a whole number from 1")
            engines = [args or SimulatedArgs()] * engines
        self._routing = routing
        self._seed = seed
        self._flush_s = flush_s
        self._next = 0
        self._epoch = 0
        self._clients: list[LLMServerClient] = []
        self._given = engines
        self.replicas: dict[str, LocalReplica] = {}
        self._states: dict[str, ReplicaState] = {}
        self.port = LocalBalancer(self)
        self._sample_s = sample_s
        self._heard_s: dict[str, float] = {}
        self._closed = False

    async def __aenter__(self) -> Self:
        self._loop = loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        # Virtual time is shown as it is: it has nothing to do with the world's.
        virtual = isinstance(loop, VirtualClockLoop)
        self._unix_at_zero_s = 0.0 if virtual else time.time() - loop.time()
        self.balancer_died: asyncio.Event = asyncio.Event()
        for engine in self._given:
            await self._make(engine)
        self._start_balancer(recovering=False)
        self.recorder = Recorder(self._sample, loop.time, self._sample_s)
        self.recorder.start()
        self.feed = Feed(
            "local",
            self._read,
            sessions=lambda start, limit: self._on_loop(lambda: self._sessions(start, limit)),
            events=lambda cursor, limit: self._on_loop(lambda: self._events(cursor, limit)),
            rollouts=lambda name: self._on_loop(lambda: self.recorder.runs.trajectories(name)),
            period_s=self._sample_s,
        )
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the clients it gave, the balancer and the replicas."""
        await self.recorder.close()
        self._closed = True
        for client in self._clients:
            await client.aclose()
        await self.balancer_host.close()
        for replica in self.replicas.values():
            await replica.host.close()

    def client(self, client_cls: type[ClientT] | None = None, **kwargs: Any) -> ClientT:
        """A token client, which is closed with the pool."""
        client: Any = (client_cls or LLMServerClient)(self.port, **kwargs)
        self._clients.append(client)
        return client  # type: ignore[no-any-return]

    # -- replicas ---------------------------------------------------------------------------

    async def add(self, engine: SimulatedArgs | Engine) -> str:
        """One more replica; its id."""
        replica_id = await self._make(engine)
        self.balancer.add_servers({replica_id: self.replicas[replica_id]})
        return replica_id

    def set_state(self, replica_id: str, state: ReplicaState) -> None:
        """Drain a replica, pause it, or take it back; a restart of the balancer keeps it so."""
        self.balancer.set_state(replica_id, state)
        self._states[replica_id] = state

    async def remove(self, replica_id: str) -> None:
        """Take a replica out of rotation and stop it."""
        self.balancer.remove_servers([replica_id])
        self._states.pop(replica_id, None)
        await self.replicas.pop(replica_id).host.close()

    async def _make(self, engine: SimulatedArgs | Engine) -> str:
        replica_id = f"replica-{self._next}"
        self._next += 1
        if isinstance(engine, SimulatedArgs):
            engine = SimulatedEngine(replica_id, engine)
        host = EngineHost(replica_id, engine, flush_s=self._flush_s)
        await host.start()
        self.replicas[replica_id] = LocalReplica(host)
        return replica_id

    # -- the balancer's lives ---------------------------------------------------------------

    def _start_balancer(self, *, recovering: bool) -> None:
        self._epoch += 1
        self.balancer_died.clear()
        self.balancer = GlobalRequestLoadBalancer(
            self.replicas,
            seed=self._seed,
            rules=self._routing,
            epoch=self._epoch,
            recovering=recovering,
            clock=self._loop.time,
            wall_clock=self._now,
        )
        self.balancer_host = BalancerHost(self.balancer, LocalReplica.probe)
        self.balancer_host.start()

    async def kill_balancer(self) -> None:
        """The balancer is gone, with all that it knew, until :meth:`restart_balancer`."""
        self.balancer_died.set()
        await self.balancer_host.close()

    def restart_balancer(self) -> None:
        """A new life of the balancer, which knows the replicas and nothing else."""
        self._start_balancer(recovering=True)
        for replica_id, state in self._states.items():
            self.balancer.set_state(replica_id, state)

    @property
    def balancer_lives(self) -> bool:
        """Whether it can be reached."""
        return not self.balancer_died.is_set()

    def living_balancer(self) -> GlobalRequestLoadBalancer:
        """The balancer.

        Raises:
            BalancerLostError: it was killed.
        """
        if not self.balancer_lives:
            raise BalancerLostError("the balancer was killed")
        return self.balancer

    # -- figures ----------------------------------------------------------------------------

    def _now(self) -> float:
        """Seconds since 1970; in virtual time, of that."""
        return self._unix_at_zero_s + self._loop.time()

    async def _sample(self, cursor: int) -> Sample:
        """The pool at this moment; without its books while there is no balancer."""
        now_s, routing, activity = self._now(), None, Activity(cursor)
        if self.balancer_lives:
            routing, activity = self.balancer.sample(cursor, HOT_SESSIONS)
        loads = {load.replica_id: load for load in routing.replicas} if routing else {}
        replicas = []
        for replica_id, replica in list(self.replicas.items()):
            load = loads.get(replica_id)
            state = load.state if load else self._states.get(replica_id, ReplicaState.READY)
            engine = await _figures(replica)
            replicas.append(ReplicaSnapshot(ReplicaStatus(replica_id, state, ""), load, engine))
            if engine:
                self._heard_s[replica_id] = now_s
        heard_s = tuple(
            (name, self._heard_s[name]) for name in self.replicas if name in self._heard_s
        )
        pool = PoolSnapshot("local", "simulated", "cpu", tuple(replicas), routing)
        return Sample(now_s, pool, activity, heard_s=heard_s)

    def _read(self, cursor: int) -> HistoryPage:
        page = self.recorder.read(cursor)
        if self._closed and not len(page.seconds):
            raise PoolClosedError("the pool was closed")
        return page

    def _sessions(self, start: int, limit: int) -> pd.DataFrame:
        return session_frame(self.living_balancer().sessions(start, limit))

    def _events(self, cursor: int, limit: int) -> pd.DataFrame:
        page = self.living_balancer().events(cursor, limit)
        return event_frame(page.items, cursor=page.cursor, lost=page.lost)

    def _on_loop(self, call: Callable[[], T]) -> T:
        """What ``call`` returns, from any thread: the pool is changed on its own alone.

        Raises:
            PoolClosedError: the pool was closed.
            BalancerLostError: it is too busy to answer.
        """
        if self._closed:
            raise PoolClosedError("the pool was closed")
        if threading.get_ident() == self._thread:
            return call()

        async def answer() -> T:
            return call()

        asked = asyncio.run_coroutine_threadsafe(answer(), self._loop)
        try:
            return asked.result(ANSWER_S)
        except TimeoutError:
            asked.cancel()
            raise BalancerLostError(f"no answer within {ANSWER_S:g} s") from None


async def _figures(replica: LocalReplica) -> EngineFigures | None:
    """None where the engine does not answer."""
    try:
        return await replica.probe()
    except ReplicaError:
        return None


async def _unless(event: asyncio.Event, call: Coroutine[Any, Any, Any], lost: Exception) -> Any:
    """What ``call`` returns; raises ``lost`` if ``event`` comes first."""
    answering = asyncio.ensure_future(call)
    coming: asyncio.Future[Any] = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait([answering, coming], return_when=asyncio.FIRST_COMPLETED)
        if event.is_set():
            raise lost
        return answering.result()
    finally:
        answering.cancel()
        coming.cancel()
