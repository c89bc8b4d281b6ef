"""The queue between the rollouts and the learner: a ledger, the groups' bytes, and who waits.

All that is asked of it is answered within one step of the event loop, or waits for a change and
looks again: nothing runs by itself, and nothing turns in circles while there is nothing to do. With
a folder, everything is in its journal before it is answered.
"""

from __future__ import annotations

import asyncio
import pickle
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from workbench.errors import StreamError
from workbench.ids import new_id
from workbench.stream.facts import Fact, Queued
from workbench.stream.journal import Journal, Record
from workbench.stream.ledger import StreamLedger
from workbench.stream.views import batch_rows, group_rows, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from workbench.metrics.streams import PublishMark, StreamSnapshot
    from workbench.stream.books import Out
    from workbench.stream.facts import Terms
    from workbench.stream.groups import GroupHeader, Ticket
    from workbench.stream.rules import StreamRules

T = TypeVar("T")


class Taken(NamedTuple):
    """A batch, as whoever takes it gets it."""

    number: int
    version: int
    """The learner's, when it was handed out, the last time if it was given again."""
    groups: list[tuple[GroupHeader, bytes, int, float]]
    """Header, packed rollouts, staleness when handed out, seconds in the queue."""


class AsBooked(NamedTuple):
    """In a journal that was written anew: the books as they stood, pickled."""


class Kept(NamedTuple):
    """In a journal that was written anew: a group that is still asked for."""

    ticket: Ticket


class StreamQueue:
    """See the module. Every method but the constructor belongs to one event loop.

    Args:
        rules: the stream's.
        folder: where its journal is; None keeps it in memory alone. Goes on with what is there.
        version: what the stream's pool is on.
        clock: seconds since 1970.
        run: names a run of the stream; the same one, asked for again after this process's death,
            goes on where it was. Another one begins with nothing in flight.
        lock_wait_s: how long another process may take to let go of the folder.
        terms: of whoever runs it; None asks for nothing and says nothing.

    Raises:
        ConfigError: the folder cannot be made, or not be written in, or its stream has other terms.
        StreamError: another process has the folder, or there is no journal of a stream in it.
    """

    def __init__(
        self,
        rules: StreamRules,
        *,
        folder: Path | None = None,
        version: int = 0,
        clock: Callable[[], float] = time.time,
        run: str | None = None,
        lock_wait_s: float = 0.0,
        terms: Terms | None = None,
    ) -> None:
        self._clock = clock
        self._blobs: dict[Ticket, bytes] = {}
        self._blob_bytes = 0
        self._changed = asyncio.Event()
        self._admitting = 0
        """Number of the last call for tickets."""
        self._taking: dict[str, int] = {}
        """The same by consumer, for batches."""
        self._asked: dict[str, int] = {}
        """By consumer that waits: how many groups it wants."""
        self._broken = ""
        """Why nothing can be written down any more."""
        self._journal = None if folder is None else Journal(folder, lock_wait_s)
        self._ledger = StreamLedger(rules)
        try:
            if self._journal is not None:
                self._read(rules, self._journal)
            self._ledger.open(run or new_id(), version, terms)
            self._keep()
            if self._journal is not None:
                self._journal.rewrite(self._live(), wait=True)
        except BaseException:
            self.shut()
            raise

    # -- the rollouter's side -----------------------------------------------------------------

    async def admit(self, held: Sequence[Ticket], most: int, wait_s: float) -> list[Ticket]:
        """Tickets for at most ``most`` groups, as soon as there is one; none when time is up.

        Args:
            held: all whose play is not over and told. Others in flight are played again: their
                ticket was lost on its way, or who played them died. One rollouter asks at a time;
                an older call gets nothing any more.
            most: how many.
            wait_s: for the first.

        Raises:
            StreamEndedError: nothing will ever be begun again. Only once all batches are
                committed, or the stream was stopped: what is out may come back, and be too old.
            StreamError: the stream failed.
        """
        self._admitting = call = self._admitting + 1
        self._ledger.reconcile(held)
        self._keep()

        def begin() -> list[Ticket] | None:
            if call != self._admitting:
                return []
            return self._ledger.begin(most, self._clock()) or None

        return await self._when(begin, wait_s) or []

    async def put(self, header: GroupHeader, blob: bytes) -> bool:
        """A group was played; whether it is kept. If not, it was too old, or not in flight.

        Made again since its answer was lost, it changes nothing, and is answered as of now: a
        group that was committed meanwhile is not kept.
        """
        is_new = header.ticket not in self._blobs
        is_kept = self._ledger.put(header, self._clock())
        if is_kept and is_new:
            self._blobs[header.ticket] = blob
            self._blob_bytes += len(blob)
        self._keep(blob)
        return is_kept

    async def leave(self, header: GroupHeader, cause: str, *, replay: bool) -> None:
        """A group that was in flight is not queued; see :meth:`StreamLedger.leave`."""
        self._ledger.leave(header, cause, replay=replay)
        self._keep()

    async def source_ended(self, total: int) -> None:
        """There are no positions from this one on."""
        self._ledger.source_ended(total)
        self._keep()

    async def fail(self, error: str) -> None:
        """The stream failed; what is queued can still be taken."""
        self._ledger.stop(error or "it failed")
        self._keep()

    async def stop(self) -> None:
        """Nothing more is begun; what is queued and in flight can still be taken."""
        self._ledger.stop()
        self._keep()

    # -- the learner's side -------------------------------------------------------------------

    async def take(self, n: int, wait_s: float, consumer: str, after: int) -> Taken | None:
        """``n`` groups, fewer in the end; None when time is up.

        Args:
            n: how many.
            wait_s: for them.
            consumer: who takes them.
            after: number of the last batch that this consumer has; what it was given since is
                given again, unless it has become too old. 0 for none: what it took before and did
                not commit is queued again.

        Raises:
            ConfigError: so many are never there at once.
            StreamEndedError: there is nothing left.
            StreamError: the stream failed, and there is nothing left.
        """
        began_s = self._clock()
        call = self._begin_taking(consumer)
        if not after:
            self._ledger.reclaim(consumer)
            self._keep()

        def take() -> list[Out] | None:
            if call != self._taking[consumer]:
                return []
            now_s = self._clock()
            out = self._ledger.held_by(consumer, after)
            out = out or self._ledger.take(n, consumer, now_s, now_s - began_s)
            return [out] if out else None

        self._asked[consumer] = n
        outs = await self._when(take, wait_s)
        if outs:
            self._asked.pop(consumer, None)
        return self._taken(outs[0]) if outs else None

    def _begin_taking(self, consumer: str) -> int:
        """Older calls of this consumer get nothing any more: nobody waits for what they return."""
        self._taking[consumer] = number = self._taking.get(consumer, 0) + 1
        return number

    async def commit(self, number: int) -> None:
        """Who took this batch is done with it; see :meth:`StreamLedger.commit`."""
        self._ledger.commit(number)
        self._keep()

    async def reclaim(self, consumer: str) -> None:
        """Queue again what a consumer took and did not commit. If it waits, it gets nothing."""
        self._begin_taking(consumer)
        self._ledger.reclaim(consumer)
        self._keep()

    async def begin_publish(self, version: int) -> None:
        """The learner has a new version, if the pool gets it."""
        self._ledger.begin_publish(version)
        self._keep()

    async def end_publish(self, mark: PublishMark) -> list[Ticket]:
        """A publish is over; which groups in flight are to be cancelled.

        Without an error the pool is on its version.
        """
        tickets = self._ledger.end_publish(mark)
        self._keep()
        return tickets

    # -- anybody ------------------------------------------------------------------------------

    async def pause(self) -> None:
        """Begin nothing more; what is in flight is played on."""
        self._ledger.gate(is_paused=True)
        self._keep()

    async def resume(self) -> None:
        """Begin groups again."""
        self._ledger.gate(is_paused=False)
        self._keep()

    async def step(self, call: str = "") -> None:
        """Begin the groups of one batch and stand still again; see :meth:`StreamLedger.gate`."""
        self._ledger.gate(is_paused=True, step=True, call=call)
        self._keep()

    async def set_max_staleness(self, bound: int | None) -> None:
        """Let another bound hold from now on; see :meth:`StreamLedger.set_max_staleness`."""
        self._ledger.set_max_staleness(bound)
        self._keep()

    async def snapshot(self) -> StreamSnapshot:
        """Where the stream stands."""
        return snapshot(self._ledger, max(self._asked.values(), default=0))

    async def groups(self) -> list[dict[str, Any]]:
        """A line per group in flight, queued or not committed."""
        return group_rows(self._ledger.books, self._clock())

    async def batches(self) -> list[dict[str, Any]]:
        """A line per batch handed out: the last 5000."""
        return batch_rows(self._ledger.books)

    async def digests(self) -> dict[int, str]:
        """Of the tasks at the first positions, as far as they were played: the data set's mark."""
        return dict(self._ledger.books.digests)

    async def close(self) -> None:
        """Let go of the folder. Idempotent."""
        self.shut()

    def shut(self) -> None:
        """As :meth:`close`."""
        if self._journal is not None:
            self._journal.close()

    # -- parts --------------------------------------------------------------------------------

    async def _when(self, look: Callable[[], T | None], wait_s: float) -> T | None:
        """What ``look`` finds, now or after a change; None when time is up."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        while True:
            changed = self._changed
            try:
                found = look()
            finally:  # what was taken back is written down, whatever else was found
                self._keep()
            if found is not None:
                return found
            try:
                async with asyncio.timeout_at(deadline):
                    await changed.wait()
            except TimeoutError:
                return None

    def _keep(self, blob: bytes = b"") -> None:
        """Write down what was decided, and wake who waits for it."""
        facts, released = self._ledger.news()
        for ticket in released:
            self._blob_bytes -= len(self._blobs.pop(ticket, b""))
        if not facts:
            return
        self._changed, changed = asyncio.Event(), self._changed
        changed.set()
        if self._journal is not None:
            self._write([Record(f, blob if isinstance(f, Queued) else b"") for f in facts])

    def _write(self, records: list[Record]) -> None:
        assert self._journal is not None
        try:
            if not self._broken:
                self._journal.append(records)
        except OSError as error:
            self._broken = f"its journal in {self._journal.folder} cannot be written: {error}"
            self._ledger.stop(self._broken)
            self._ledger.news()
        if self._broken:
            raise StreamError(self._broken)
        if self._journal.is_bloated(self._blob_bytes):
            self._journal.rewrite(self._live())

    def _live(self) -> list[Record]:
        """All that a journal has to say."""
        books = pickle.dumps(self._ledger.books, pickle.HIGHEST_PROTOCOL)  # which go on changing
        kept = [Record(Kept(ticket), blob) for ticket, blob in self._blobs.items()]
        return [Record(AsBooked(), books), *kept]

    def _read(self, rules: StreamRules, journal: Journal) -> None:
        try:
            self._replay(rules, journal)
        except (AttributeError, ImportError, TypeError, pickle.UnpicklingError) as error:
            told = f"the journal in {journal.folder} is of another version of this package: {error}"
            raise StreamError(told) from error

    def _replay(self, rules: StreamRules, journal: Journal) -> None:
        for fact, blob in journal.records():
            if isinstance(fact, AsBooked):
                books = replace(pickle.loads(blob))  # another version's lack something
                self._ledger = StreamLedger(rules, books)
            elif isinstance(fact, Kept):
                self._blobs[fact.ticket] = blob
            else:
                self._book(fact, blob)
        self._blob_bytes = sum(map(len, self._blobs.values()))

    def _book(self, fact: Fact, blob: bytes) -> None:
        if isinstance(fact, Queued):
            self._blobs[fact.header.ticket] = blob
        for ticket in self._ledger.replay(fact):
            self._blobs.pop(ticket, None)

    def _taken(self, out: Out) -> Taken:
        fact, version = out.fact, self._ledger.books.version
        groups = [
            (
                group.header,
                self._blobs[group.header.ticket],
                version - group.header.oldest_version,
                max(0.0, fact.time_s - group.since_s),
            )
            for group in out.groups
        ]
        return Taken(fact.number, version, groups)
