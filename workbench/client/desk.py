"""Where a client gets its leases: at once from pins that it holds, else from the balancer.

What many callers want travels in one call, together with what was given back since the last one.
Owns two tasks: the reporter, which lives while there is something to report, and the watch, a long
poll that brings revocations and tells the balancer that this client lives.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from workbench.aio import end_task
from workbench.client.leases import LeaseBook
from workbench.errors import BalancerLostError, PoolClosedError, RequestError
from workbench.routing.messages import Outcome
from workbench.routing.policies.base import Need
from workbench.routing.prefix import block_hashes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workbench.client.channel import ReplicaPort
    from workbench.routing.messages import Reply, Report
    from workbench.types import Lease

RETRY_S = 0.1
"""Pause before a balancer that could not be reached is tried again."""

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

    def leave(self, owner: str) -> None:
        """The client is gone; does not wait."""
        ...

    async def replica(self, replica_id: str) -> ReplicaPort:
        """The way to a replica; :class:`ReplicaDiedError` if there is none any more."""
        ...


class LeaseDesk:
    """One client's leases; lives on one event loop."""

    def __init__(self, port: BalancerPort, owner: str) -> None:
        self.book = LeaseBook(owner)
        self._port = port
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
            raise self._closed
        if self.book.epoch == 0:  # what the policy has to see is known after the first reply
            self._notice()
            await self._greeted.wait()
        if self._trouble and (self._closed or self.book.epoch == 0):
            raise self._trouble
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
        cached_tokens: int = 0,
        context_tokens: int = 0,
    ) -> bool:
        """End a turn; False when it was over already, which changes nothing."""
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
        self._port.leave(self.book.owner)

    # -- telling ----------------------------------------------------------------------------

    def _notice(self, *, urgent: bool = False) -> None:
        """Something is to be reported: at once, or within the report interval."""
        if self._oldest_s is None:
            self._oldest_s = asyncio.get_running_loop().time()
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
            await asyncio.sleep(RETRY_S)
            return
        if reply.resync:
            self.book.lost(report)
        self._take_in(reply)

    # -- hearing ----------------------------------------------------------------------------

    async def _watch_all(self) -> None:
        try:
            while True:
                try:
                    reply = await self._port.watch(self.book.owner, self.book.cursor)
                except PoolClosedError:
                    raise
                except Exception as error:  # its end would be this client's silence
                    if not isinstance(error, BalancerLostError):
                        logger.exception("the watch of client %s failed", self.book.owner)
                    await asyncio.sleep(RETRY_S)
                    self.book.start_over()
                    self._notice(urgent=True)
                    continue
                self._take_in(reply)
                if reply.resync:  # until the balancer has taken in the report that it asked for
                    await asyncio.sleep(RETRY_S)
        except PoolClosedError as error:
            self._close(error)

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
                waiter.set_exception(error)
