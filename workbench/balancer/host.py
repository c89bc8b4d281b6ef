"""A balancer on an event loop: long polls, time, probes.

Owns one task, the ticker, and one wait per client that watches.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any

from workbench.aio import end_task
from workbench.errors import WorkbenchError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from workbench.balancer.balancer import GlobalRequestLoadBalancer
    from workbench.routing.messages import Reply
    from workbench.types import EngineFigures

TICK_S = 0.1
"""How often time passes for the books."""

WATCH_S = 2.0
"""How long a watch waits at most when there is nothing to say. Watching again is a client's
heartbeat, so that it is shorter where clients are missed sooner."""

FIGURES_S = 0.5
"""How often engines are asked for their figures, where the policy needs them."""

PROBE_S = 2.0
"""A replica that takes longer to answer than this is not healthy."""

logger = logging.getLogger(__name__)


class BalancerHost:
    """Runs ``balancer``; ``probe`` asks a replica's handle for its figures, or raises.

    ``asks_engines``: for their figures, also where the policy does not need them, since requests
    may come to them past the balancer.
    """

    def __init__(
        self,
        balancer: GlobalRequestLoadBalancer,
        probe: Callable[[Any], Awaitable[EngineFigures]],
        *,
        asks_engines: bool = False,
    ) -> None:
        self._balancer = balancer
        self._probe = probe
        self._watching: dict[str, asyncio.Event] = {}
        self._ticker: asyncio.Task[None] | None = None
        self._probing: dict[str, asyncio.Task[None]] = {}
        self._asks_engines = asks_engines
        self._figures_at_s = 0.0
        self._watch_s = min(WATCH_S, balancer.rules.owner_timeout_s / 4)
        balancer.on_change = self._wake

    def start(self) -> None:
        """Let time pass; needs a running loop. Idempotent."""
        if self._ticker is None or self._ticker.done():
            self._ticker = asyncio.create_task(self._tick(), name="balancer-ticker")

    async def close(self) -> None:
        """Stop. Idempotent."""
        await end_task(self._ticker)
        for probing in list(self._probing.values()):
            await end_task(probing)

    async def watch(self, owner: str, cursor: int) -> Reply:
        """The long poll: what the client was not told yet, as soon as there is something."""
        self.start()
        if news := self._balancer.news(owner, cursor):
            return news
        event = self._watching[owner] = asyncio.Event()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._watch_s):
                    await event.wait()
        finally:
            if self._watching.get(owner) is event:
                del self._watching[owner]
        # Whoever began to watch may be gone by now.
        news = self._balancer.news(owner, cursor, is_sign_of_life=False)
        return news or self._balancer.nothing_new(cursor)

    def _wake(self) -> None:
        for owner in self._balancer.addressees(self._watching.keys()):
            self._watching[owner].set()

    async def _tick(self) -> None:
        while True:
            try:
                self._balancer.tick()
                for replica_id in self._balancer.probes_due():
                    self._ask(replica_id, is_due=True)
                for replica_id in self._figures_due():
                    self._ask(replica_id, is_due=False)
            except Exception:  # the pool must not lose its clock over one bad moment
                logger.exception("a tick of the balancer failed")
            await asyncio.sleep(TICK_S)

    def _figures_due(self) -> list[str]:
        now_s = asyncio.get_running_loop().time()
        wanted = self._asks_engines or self._balancer.needs_engine
        if not wanted or now_s < self._figures_at_s:
            return []
        self._figures_at_s = now_s + FIGURES_S
        return self._balancer.get_all_servers()

    def _ask(self, replica_id: str, *, is_due: bool) -> None:
        if replica_id not in self._probing:
            task = asyncio.create_task(self._ask_replica(replica_id, is_due=is_due))
            self._probing[replica_id] = task
            task.add_done_callback(lambda _: self._probing.pop(replica_id, None))

    async def _ask_replica(self, replica_id: str, *, is_due: bool) -> None:
        """For its figures; where ``is_due``, its health hangs on the answer too."""
        problem, figures = "", None
        try:
            async with asyncio.timeout(PROBE_S):
                figures = await self._probe(self._balancer.handle(replica_id))
        except TimeoutError:
            problem = f"no answer within {PROBE_S:g} s"
        except Exception as error:  # noqa: BLE001 - whatever it is, the replica is not well
            problem = _in_short(error)
        self._balancer.set_engine(replica_id, figures)
        if is_due:
            self._balancer.probed(replica_id, problem)


def _in_short(error: Exception) -> str:
    """One line; our own errors speak for themselves."""
    lines = str(error).strip().splitlines()
    told = lines[0] if lines else ""
    return told if isinstance(error, WorkbenchError) else f"{type(error).__name__}: {told}"
