"""Where a client gets its leases: at once from pins that it holds, else from the balancer.

What many callers want travels in one call, together with what was given back since the last one.
Owns two tasks: the reporter, which lives while there is something to report, and the watch, a long
poll that brings revocations and tells the balancer that this client lives.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from typing import TYPE_CHECKING, Protocol

from workbench.aio import end_task
from workbench.client.leases import LeaseBook
from workbench.errors import BalancerLostError, PoolClosedError, RequestError
from workbench.routing.messages import Outcome
from workbench.routing.policies.base import Need
from workbench.routing.prefix import block_hashes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from workbench.client.channel import ReplicaPort
    from workbench.routing.messages import Reply, Report
    from workbench.types import Lease

RETRY_S = 0.05
"""Pause before a balancer that could not be reached is tried again; doubles each time."""

MAX_RETRY_S = 0.4
"""Longest such pause; well within the time that a restarted balancer waits for its clients."""

IDLE_S = 60.0
"""A client that was not used for this long stops listening; a next call begins afresh."""

logger = logging.getLogger(__name__)


class BalancerPort(Protocol):
    """The way to the balancer."""

    async def exchange(self, report: Report) -> Reply:
        """Report and be answered.

        Raises:
            BalancerLostError: it cannot be reached just now.
            PoolClosedError: it is gone for good.
        """
        ...

    async def watch(self, owner: str, cursor: int) -> Reply:
        """The long poll. Raises as :meth:`exchange` does."""
        ...

    def leave(self, report: Report) -> None:
        """The client is gone, and this is its last report; does not wait."""
        ...

    async def replica(self, replica_id: str) -> ReplicaPort:
        """The way to a replica; :class:`ReplicaDiedError` if there is none any more."""
        ...


class LeaseDesk:
    """One client's leases; lives on one event loop."""

    def __init__(
        self, port: BalancerPort, owner: str, *, on_void: Callable[[str], None] | None = None
    ) -> None:
        self.book = LeaseBook(owner, on_void)
        self._port = port
        self._retry_s = RETRY_S
        self._used_s = 0.0
        self._waiters: dict[int, asyncio.Future[Lease]] = {}
        self._oldest_s: float | None = None
        self._urgent = asyncio.Event()
        self._greeted = asyncio.Event()
        self._reporter: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._closed: PoolClosedError | None = None
        self._trouble: Exception | None = None

    def take(self, session_id: str, prompt_tokens: int = 0) -> Lease | None:
        """Begin a turn on a pin that this client holds; None where :meth:`acquire` must ask."""
        lease = None if self._closed else self.book.take(session_id, prompt_tokens)
        if lease is not None:
            self._notice()
        return lease

    async def acquire(
        self,
        session_id: str,
        prompt_ids: Sequence[int] = (),
        *,
        priority: int = 0,
    ) -> Lease:
        """Ask the balancer for a turn, and wait until a replica can take it.

        Raises:
            NoReplicaError: no replica was ready for too long; names the reason for each.
            PoolClosedError: the pool was closed.
            RequestError: the policy has to see the prompt, and it is none.
        """
        if self._closed:
            raise copy.copy(self._closed)
        if self.book.epoch == 0:  # what the policy has to see is known after the first reply
            self._notice()
            await self._greeted.wait()
        if self._trouble and (self._closed or self.book.epoch == 0):
            raise copy.copy(self._trouble)
        lease_id = self.book.want(session_id, len(prompt_ids), priority, self._blocks(prompt_ids))
        waiter: asyncio.Future[Lease] = asyncio.get_running_loop().create_future()
        self._waiters[lease_id] = waiter
        self._notice(urgent=True)
        try:
            return await waiter
        except BaseException:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self.give_back(waiter.result())  # it came too late for the caller
            else:
                self.book.withdraw(lease_id)
            self._notice()
            raise
        finally:
            del self._waiters[lease_id]

    def _blocks(self, prompt_ids: Sequence[int]) -> tuple[int, ...]:
        if Need.PROMPT_BLOCKS not in self.book.needs:
            return ()
        try:
            return block_hashes(prompt_ids)
        except (TypeError, OverflowError) as error:
            raise RequestError("prompt_ids", f"{error}", allowed="token ids") from None

    def give_back(
        self,
        lease: Lease,
        outcome: Outcome = Outcome.OK,
        *,
        sampled_tokens: int = 0,
        cached_tokens: int | None = None,
        context_tokens: int = 0,
    ) -> bool:
        """End a turn; False when it was over already, which changes nothing.

        ``cached_tokens``: None when unknown.
        """
        was_open = self.book.give_back(
            lease,
            outcome,
            sampled_tokens=sampled_tokens,
            cached_tokens=cached_tokens,
            context_tokens=context_tokens,
        )
        self._notice(urgent=outcome >= Outcome.FAILED)
        return was_open

    def end_session(self, session_id: str) -> None:
        """Say that no further turn of it will come."""
        self.book.end_session(session_id)
        self._notice()

    async def flush(self) -> None:
        """Return when the balancer has taken in all that was done so far.

        Raises:
            PoolClosedError: the pool was closed.
        """
        while self.book.dirty or (self._reporter is not None and not self._reporter.done()):
            if self._closed:
                raise self._closed
            self._notice(urgent=True)
            assert self._reporter is not None
            await asyncio.wait([self._reporter])

    async def aclose(self) -> None:
        """Tell the balancer that this client is gone. Idempotent; the end of this desk."""
        self._close(PoolClosedError("the client was closed during this call"))
        await end_task(self._reporter)
        await end_task(self._watch)
        self._port.leave(self.book.report())

    # -- telling ----------------------------------------------------------------------------

    def _notice(self, *, urgent: bool = False) -> None:
        """Something is to be reported: at once, or within the report interval."""
        if self._oldest_s is None:
            self._used_s = self._oldest_s = asyncio.get_running_loop().time()
        if urgent:
            self._urgent.set()
        if self._closed is None and (self._reporter is None or self._reporter.done()):
            self._reporter = asyncio.create_task(self._report_all(), name="lease-reporter")

    async def _report_all(self) -> None:
        try:
            while self.book.dirty:
                if not self.book.urgent:
                    await self._rest()
                self._urgent.clear()
                await self._report()
                if self._watch is None or self._watch.done():
                    self._watch = asyncio.create_task(self._watch_all(), name="lease-watch")
        except PoolClosedError as error:
            self._close(error)

    async def _rest(self) -> None:
        try:
            async with asyncio.timeout(self.book.report_s):
                await self._urgent.wait()
        except TimeoutError:
            return

    async def _report(self) -> None:
        report = self.book.report()
        oldest_s, self._oldest_s = self._oldest_s, None
        if oldest_s is not None:
            report.age_s = asyncio.get_running_loop().time() - oldest_s
        try:
            reply = await self._port.exchange(report)
        except PoolClosedError:
            raise
        except Exception as error:  # noqa: BLE001 - told to everybody who waits
            self.book.lost(report)
            self._oldest_s = oldest_s
            if not isinstance(error, BalancerLostError):
                self._fail_waiting(error)
            await self._pause()
            return
        if reply.resync:
            self.book.lost(report)
            await self._pause()
        else:
            self._retry_s = RETRY_S
        self._take_in(reply)

    async def _pause(self) -> None:
        """Before the balancer is tried again; longer each time."""
        await asyncio.sleep(self._retry_s)
        self._retry_s = min(MAX_RETRY_S, 2 * self._retry_s)

    # -- hearing ----------------------------------------------------------------------------

    async def _watch_all(self) -> None:
        try:
            while not self._idle():
                try:
                    reply = await self._port.watch(self.book.owner, self.book.cursor)
                except PoolClosedError:
                    raise
                except Exception as error:  # its end would be this client's silence
                    if not isinstance(error, BalancerLostError):
                        logger.exception("the watch of client %s failed", self.book.owner)
                    await self._pause()
                    self.book.start_over()
                    self._notice(urgent=True)
                    continue
                self._take_in(reply)
                if reply.resync:  # until the balancer has taken in the report that it asked for
                    await self._pause()
        except PoolClosedError as error:
            self._close(error)
        except asyncio.CancelledError:
            if self._closed is None:  # the loop ends, and nobody said goodbye
                self._port.leave(self.book.report())
            raise

    def _idle(self) -> bool:
        """Whether nobody seems to use this client any more: then nobody need hear of it.

        Its pins go too, since it hears of no revocation from here on; it starts over when used.
        """
        unused_s = asyncio.get_running_loop().time() - self._used_s
        if self.book.num_open or self._waiters or self.book.dirty or unused_s < IDLE_S:
            return False
        self._port.leave(self.book.report())
        self.book.start_over(forget_pins=True)
        return True

    def _take_in(self, reply: Reply) -> None:
        for lease_id, answer in self.book.apply(reply):
            waiter = self._waiters.get(lease_id)
            if isinstance(answer, Exception):
                if waiter is not None and not waiter.done():
                    waiter.set_exception(answer)
            elif waiter is not None and not waiter.done():
                waiter.set_result(answer)
            else:
                self.give_back(answer)
        if not reply.resync:
            self._greeted.set()
        if self.book.dirty:
            self._notice(urgent=self.book.urgent)

    def _close(self, error: PoolClosedError) -> None:
        self._closed = error
        self._fail_waiting(error)

    def _fail_waiting(self, error: Exception) -> None:
        """Everybody who waits at this moment gets ``error``."""
        self._trouble = error
        self._greeted.set()
        self._greeted = asyncio.Event()
        for waiter in self._waiters.values():
            if not waiter.done():
                waiter.set_exception(copy.copy(error))  # each grows a traceback of its own
