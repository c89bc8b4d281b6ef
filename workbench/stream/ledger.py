"""The one truth about a stream: what may begin, what is queued, and what is handed out. Pure.

* No group is handed out whose oldest token is more than ``max_staleness`` behind the learner's
  version, which is the coming one while a publish is under way. What is queued is looked through
  whenever a publish has succeeded or the bound changes: one that fails costs no group.
* No group is begun that the learner could not take in time if it takes ``per_version`` groups of
  each version. Nothing is counted that has to be given back: what is free follows from the groups
  that there are.
* Every position is settled once: committed by who took it, or left out for a cause.

Decisions become facts (:mod:`workbench.stream.facts`) and are booked as such; who hosts a ledger
keeps :meth:`StreamLedger.news` and gives them to the next one, which goes on from there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from workbench.errors import ConfigError, StreamEndedError, StreamError
from workbench.metrics.streams import PublishMark
from workbench.stream.books import Books, Out
from workbench.stream.facts import (
    Begun,
    Bounded,
    Committed,
    Fact,
    Gated,
    Handed,
    Left,
    Opened,
    PublishBegun,
    Published,
    Queued,
    Returned,
    SourceEnded,
    Stopped,
)
from workbench.stream.groups import GroupHeader, Ticket

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from workbench.stream.facts import Terms
    from workbench.stream.rules import StreamRules


class StreamLedger:
    """See the module. Times are passed in, in seconds.

    Args:
        rules: the stream's.
        books: what another ledger of the same stream left.
    """

    def __init__(self, rules: StreamRules, books: Books | None = None) -> None:
        self._given = self._rules = rules
        self.books = books or Books()
        self._news: list[Fact] = []
        self._released: list[Ticket] = []

    @property
    def rules(self) -> StreamRules:
        """As given, with the bound that was set since."""
        set_since = self.books.bound
        bound = self._given.max_staleness if set_since is None else set_since[0]
        if bound != self._rules.max_staleness:
            self._rules = replace(self._given, max_staleness=bound)
        return self._rules

    def replay(self, fact: Fact) -> list[Ticket]:
        """Book what another ledger decided; whose groups nobody will ask for any more."""
        return self.books.apply(fact)

    def news(self) -> tuple[list[Fact], list[Ticket]]:
        """Facts since the last call, and whose groups nobody will ask for any more."""
        facts, self._news = self._news, []
        released, self._released = self._released, []
        return facts, released

    def _note(self, fact: Fact) -> None:
        self._news.append(fact)
        self._released += self.books.apply(fact)

    def open(self, run: str, version: int, terms: Terms | None = None) -> None:
        """A run begins, on a pool of this version; the same run again goes on where it was.

        What an earlier run's consumers did not commit is queued again.

        Raises:
            ConfigError: an earlier run had other terms; nothing is changed.
        """
        if terms is not None and self.books.terms is not None:
            self.books.terms.check(terms)
        is_new = run != self.books.run
        self._note(Opened(run, version, terms))
        if is_new:
            self._return(list(self.books.out))

    # -- the rollouter's side -----------------------------------------------------------------

    @property
    def free(self) -> int:
        """Groups that may be begun now."""
        books, rules = self.books, self.rules
        if books.is_stopped or (books.is_publishing and not rules.partial_rollout):
            return 0
        most = rules.window
        if rules.max_staleness is not None:  # where the pool lags, groups are born older
            ahead = books.pool_version + rules.max_staleness - books.version
            most = min(most, rules.per_version * (1 + ahead))
        free = most - books.handed - len(books.queued) - len(books.running)
        if rules.max_concurrent is not None:
            free = min(free, rules.max_concurrent - len(books.running))
        if books.is_paused:
            free = min(free, books.steps)
        return max(0, free)

    def reconcile(self, held: Iterable[Ticket]) -> None:
        """Have what is in flight and nobody plays played again."""
        kept = set(held)
        lost = [group.ticket for group in self.books.running.values() if group.ticket not in kept]
        for ticket in lost:
            self._note(Left(GroupHeader.of(ticket, ()), "lost", is_refilled=True, is_void=False))

    def begin(self, most: int, now_s: float) -> list[Ticket]:
        """Tickets for at most this many groups, refills first.

        Raises:
            StreamEndedError: nothing will ever be begun again.
            StreamError: the stream failed.
        """
        books = self.books
        if books.error:
            raise StreamError(books.error)
        if books.is_stopped or self._is_settled:
            raise StreamEndedError(self._ending)
        room = min(most, self.free)
        positions = self._refills()[: max(0, room)]
        more = room - len(positions)
        if books.total is not None:
            more = min(more, books.total - books.next_position)
        positions += range(books.next_position, books.next_position + max(0, more))
        tickets = [Ticket(p, books.attempts.get(p, 0) + 1, books.pool_version) for p in positions]
        if tickets:
            self._note(Begun(tuple(tickets), now_s))
        return tickets

    def put(self, header: GroupHeader, now_s: float) -> bool:
        """A group was played; whether it is queued, or was before. Again changes nothing.

        Raises:
            StreamError: it is of another data set than what was put before.
        """
        ticket = header.ticket
        self._check_digest(header)
        if not self._is_running(ticket):
            return self._has(ticket)
        if header.newest_version > self.books.version:  # somebody else gave the pool weights
            self._note(Published(PublishMark(now_s, header.newest_version, "", 0.0, 0.0)))
            self._sweep()
        if self._is_lost(header.oldest_version):
            self._drop_old(header)
            return False
        self._note(Queued(header, now_s))
        return True

    def leave(self, header: GroupHeader, cause: str, *, replay: bool) -> None:
        """A group that was in flight is not queued. Again changes nothing.

        Args:
            header: what is known of it.
            cause: as :class:`workbench.metrics.streams.DropCount` has it.
            replay: whether its task is to be played again.

        Raises:
            StreamError: it is of another data set than what was put before.
        """
        self._check_digest(header)
        if not self._is_running(header.ticket):
            return
        if replay and cause == "cancelled" and self._is_lost(header.ticket.start_version):
            self._drop_old(header, cause)
        else:
            self._note(Left(header, cause, is_refilled=replay, is_void=False))

    def source_ended(self, total: int) -> None:
        """There are no positions from this one on."""
        if self.books.total != total:
            self._note(SourceEnded(total))

    def stop(self, error: str = "") -> None:
        """Nothing more is begun in this run; with an error it failed."""
        if not self.books.is_stopped or (error and not self.books.error):
            self._note(Stopped(error))

    def gate(self, *, is_paused: bool, step: bool = False, call: str = "") -> None:
        """Stand still or go on; or, standing still, begin one batch's groups: once for a ``call``.

        Calls are told apart by what they are named; those that are not are all different.
        """
        if not call or call != self.books.step_call:
            self._note(Gated(is_paused, self.rules.required_samples if step else 0, call))

    # -- the learner's side -------------------------------------------------------------------

    def take(self, n: int, consumer: str, now_s: float, waited_s: float = 0.0) -> Out | None:
        """The ``n`` oldest groups, or all that are left in the end; None while it has to wait.

        Raises:
            ConfigError: so many are never there at once.
            StreamEndedError: there is nothing left.
            StreamError: the stream failed, and there is nothing left.
        """
        books = self.books
        if not 1 <= n <= self.rules.window:
            allowed = f"1 <= n <= {self.rules.window}, the groups that may exist at once"
            raise ConfigError("n", f"{n}", allowed=allowed)
        if self.is_over and not books.queued:
            raise StreamError(books.error) if books.error else StreamEndedError(self._ending)
        ready = self._ready
        is_enough = len(ready) >= n and not self.awaited(n)
        if not ready or not (is_enough or self.is_over):
            return None
        positions = tuple(ready[:n])
        fact = Handed(books.number + 1, now_s, consumer, books.version, waited_s, positions)
        self._note(fact)
        return books.out[fact.number]

    def awaited(self, n: int) -> list[Ticket]:
        """Groups in flight that a batch of ``n`` waits for, so that none becomes too old.

        Those that go too old within k more versions must fit into what the learner takes until
        then, for every k; if they do not, they are to be in this batch rather than younger ones.
        """
        books, rules = self.books, self.rules
        bound, each = rules.max_staleness, rules.per_version
        if bound is None or rules.when_too_old != "wait" or books.error:
            return []
        left = {p: g.ticket.start_version + bound - books.version for p, g in books.running.items()}
        ages = [books.queued[p].header.oldest_version for p in self._ready]
        for within in sorted({k for k in left.values() if k >= 0}):
            hurried = [books.running[p].ticket for p, k in left.items() if 0 <= k <= within]
            queued = sum(age <= books.version + within - bound for age in ages)
            room = max(0, each - books.handed - n) + within * each
            if queued < n and len(hurried) > room:
                return hurried
        return []

    def held_by(self, consumer: str, after: int) -> Out | None:
        """The first batch beyond ``after`` that this consumer was given and did not commit.

        One of which a group has become too old is no batch any more: the others wait again.
        """
        of_it = [out for out in self.books.out.values() if out.fact.consumer == consumer]
        for out in (out for out in of_it if out.fact.number > after):
            if not any(self._is_too_old(group.header.oldest_version) for group in out.groups):
                return out
            self._return([out.fact.number])
        return None

    def commit(self, number: int) -> None:
        """Who took this batch is done with it. Again changes nothing.

        Raises:
            ConfigError: no batch has had this number.
            StreamError: it was taken back: somebody else learns from its groups.
        """
        if number in self.books.out:
            self._note(Committed(number))
        elif number in self.books.taken_back:
            told = "was taken back before it was committed, and its groups are handed out again"
            raise StreamError(f"batch {number} {told}")
        elif not 1 <= number <= self.books.number:
            raise ConfigError("number", f"no batch {number}", allowed=f"1 to {self.books.number}")

    def reclaim(self, consumer: str) -> None:
        """Queue again what this consumer took and did not commit; what is too old is dropped."""
        self._return([n for n, out in self.books.out.items() if out.fact.consumer == consumer])

    def begin_publish(self, version: int) -> None:
        """The learner has this version, if the pool gets it. Again changes nothing.

        What would be too old for it is not handed out meanwhile, and goes when it succeeds.

        Raises:
            ConfigError: it had a later one.
        """
        if version < self.books.version:
            allowed = f"version >= {self.books.version}, which the learner has"
            raise ConfigError("version", f"{version}", allowed=allowed)
        self._note(PublishBegun(version))

    def end_publish(self, mark: PublishMark) -> list[Ticket]:
        """A publish is over; which groups in flight are to be cancelled. Again changes nothing."""
        if mark not in self.books.publishes:
            self._note(Published(mark))
            self._sweep()
        if mark.error or self.rules.when_too_old != "cancel":
            return []
        tickets = [group.ticket for group in self.books.running.values()]
        return [ticket for ticket in tickets if self._is_lost(ticket.start_version)]

    def set_max_staleness(self, bound: int | None) -> None:
        """Let another bound hold from now on.

        Raises:
            ConfigError: it does not go with the other rules.
        """
        replace(self._given, max_staleness=bound)
        self._note(Bounded(bound))
        self._sweep()

    # -- the end ------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Whether nothing more will be queued, unless what was handed out comes back."""
        books = self.books
        if books.error:
            return True
        if books.running:
            return False
        has_no_more = books.total is not None and books.next_position >= books.total
        comes_again = self._refills() or len(self._ready) < len(books.queued)
        return books.is_stopped or (has_no_more and not comes_again)

    @property
    def _is_settled(self) -> bool:
        """Whether nothing will be begun again: what waits or is out may still become too old."""
        return self.is_over and not self.books.queued and not self.books.out

    @property
    def _ending(self) -> str:
        return "the stream was stopped" if self.books.is_stopped else "all tasks were used up"

    # -- parts --------------------------------------------------------------------------------

    def _refills(self) -> list[int]:
        """Positions to be played again, as far as this run's source has them."""
        total = self.books.total
        return sorted(p for p in self.books.refills if total is None or p < total)

    @property
    def _ready(self) -> list[int]:
        """Positions of what may be handed out, the oldest first."""
        ages = {p: group.header.oldest_version for p, group in self.books.queued.items()}
        return sorted(
            (p for p in ages if not self._is_too_old(ages[p])), key=lambda p: (ages[p], p)
        )

    def _is_running(self, ticket: Ticket) -> bool:
        group = self.books.running.get(ticket.position)
        return group is not None and group.ticket == ticket

    def _has(self, ticket: Ticket) -> bool:
        waiting = self.books.queued.get(ticket.position)
        out = (group for batch in self.books.out.values() for group in batch.groups)
        return any(g.header.ticket == ticket for g in (*out, *([waiting] if waiting else ())))

    def _is_too_old(self, oldest_version: int) -> bool:
        """To be handed out."""
        bound = self.rules.max_staleness
        return bound is not None and self.books.version - oldest_version > bound

    def _is_lost(self, oldest_version: int) -> bool:
        """Too old whatever becomes of the publish that is under way."""
        books, bound = self.books, self.rules.max_staleness
        version = books.former.version if books.is_publishing else books.version
        return bound is not None and version - oldest_version > bound

    def _drop_old(self, header: GroupHeader, cause: str = "too_old") -> None:
        times = self.books.voids.get(header.ticket.position, 0) + 1
        is_last = times >= self.rules.max_voids
        cause = "given_up" if is_last else cause
        self._note(Left(header, cause, is_refilled=not is_last, is_void=True))

    def _sweep(self) -> None:
        for group in list(self.books.queued.values()):
            if self._is_lost(group.header.oldest_version):
                self._drop_old(group.header)

    def _return(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._note(Returned(number))
        self._sweep()

    def _check_digest(self, header: GroupHeader) -> None:
        position, digest = header.ticket.position, header.digest
        known = self.books.digests.get(position, digest)
        if digest and known != digest:
            problem = f"the task at position {position} is not the one that was played there before"
            raise StreamError(f"this is another stream's folder, or other tasks: {problem}")

    def check(self) -> None:
        """Assert what the module promises."""
        queued = self.books.queued.values()
        assert not [group for group in queued if self._is_lost(group.header.oldest_version)]
        self.books.check()
