"""The books of a stream: what its facts add up to. Pure; decides nothing.

A position below ``next_position`` is in flight, queued, handed out, to be refilled, or settled.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from functools import singledispatchmethod
from typing import TYPE_CHECKING, Any, NamedTuple

from workbench.metrics.streams import DropCount, PublishMark, nothing
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
    Terms,
)
from workbench.stream.groups import Ticket

if TYPE_CHECKING:
    from workbench.stream.groups import GroupHeader

KEPT_BATCHES = 5000
"""Lines of the history of batches that are kept."""
KEPT_MARKS = 100
KEPT_CURVE = 500
KEPT_DIGESTS = 100
"""Of the first positions: enough to tell one data set from another."""


class InFlight(NamedTuple):
    """A group that is being played."""

    ticket: Ticket
    since_s: float


class InQueue(NamedTuple):
    """A group that was played."""

    header: GroupHeader
    since_s: float


class Out(NamedTuple):
    """A batch that was handed out and is not committed."""

    fact: Handed
    groups: list[InQueue]
    """Aligned with the fact's positions."""


class Former(NamedTuple):
    """Of a learner's version: what it is, and what was handed out since."""

    version: int
    handed: int
    since: int


@dataclass(slots=True)
class BatchLine:
    """A batch that was handed out, in figures."""

    fact: Handed
    rollouts: int
    sampled_tokens: int
    mean_reward: float | None
    ages: tuple[int, ...]
    """Staleness, group by group."""
    queue_s: float
    """Mean of its groups."""
    is_committed: bool = False


@dataclass(slots=True)
class Books:
    """See the module. ``apply`` is all that changes them."""

    run: str = ""
    terms: Terms | None = None
    """None: nobody has said them."""
    version: int = 0
    """The learner's."""
    pool_version: int = 0
    is_publishing: bool = False
    former: Former = field(default_factory=lambda: Former(0, 0, 0))
    """As it was before the publish that is under way."""
    is_paused: bool = False
    steps: int = 0
    """Groups that may be begun all the same, while paused."""
    step_call: str = ""
    """Who asked for them last."""
    is_stopped: bool = False
    error: str = ""
    bound: tuple[int | None] | None = None
    """What was set in this run in the place of the rules' ``max_staleness``."""
    next_position: int = 0
    total: int | None = None
    running: dict[int, InFlight] = field(default_factory=dict)
    queued: dict[int, InQueue] = field(default_factory=dict)
    out: dict[int, Out] = field(default_factory=dict)
    """By number of the batch."""
    refills: set[int] = field(default_factory=set)
    attempts: dict[int, int] = field(default_factory=dict)
    """Of positions that are not settled, as the next."""
    voids: dict[int, int] = field(default_factory=dict)
    handed: int = 0
    """Groups handed out since the learner's last version."""
    since: int = 0
    """Number of the last batch before that version."""
    settled: int = 0
    begun: int = 0
    ended: int = 0
    consumed: int = 0
    number: int = 0
    """Of the last batch."""
    batches: int = 0
    """Handed out and not taken back."""
    taken_back: deque[int] = field(default_factory=lambda: deque(maxlen=KEPT_BATCHES))
    """Numbers of batches."""
    ages: Counter[int] = field(default_factory=Counter)
    taken: DropCount = field(default_factory=lambda: nothing("taken"))
    drops: dict[str, DropCount] = field(default_factory=dict)
    publishes: deque[PublishMark] = field(default_factory=lambda: deque(maxlen=KEPT_MARKS))
    curve: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=KEPT_CURVE))
    lines: dict[int, BatchLine] = field(default_factory=dict)
    """The last batches, by number."""
    digests: dict[int, str] = field(default_factory=dict)
    """Of the tasks of the first positions, as far as they were played."""

    def apply(self, fact: Fact) -> list[Ticket]:
        """Book a fact; whose groups nobody will ask for any more."""
        return self._book(fact) or []

    @singledispatchmethod
    def _book(self, fact: Any) -> list[Ticket] | None:
        raise TypeError(f"{fact!r} is no fact of a stream")

    @_book.register
    def _opened(self, fact: Opened) -> None:
        if fact.run == self.run:
            return
        if not self.run:
            self.version = fact.version
        self.run = fact.run
        self.terms = self.terms or fact.terms
        self.pool_version = fact.version
        self._raise_to(fact.version)
        self.is_publishing = self.is_paused = self.is_stopped = False
        self.steps, self.error, self.bound, self.total = 0, "", None, None

    @_book.register
    def _begun(self, fact: Begun) -> None:
        for ticket in fact.tickets:
            self.running[ticket.position] = InFlight(ticket, fact.time_s)
            self.refills.discard(ticket.position)
            self.attempts[ticket.position] = ticket.attempt
            self.next_position = max(self.next_position, ticket.position + 1)
        self.begun += len(fact.tickets)
        if self.is_paused:
            self.steps = max(0, self.steps - len(fact.tickets))

    @_book.register
    def _queued(self, fact: Queued) -> None:
        position = fact.header.ticket.position
        del self.running[position]
        self.queued[position] = InQueue(fact.header, fact.time_s)
        self.ended += 1
        self._note_digest(fact.header)

    @_book.register
    def _left(self, fact: Left) -> list[Ticket]:
        position = fact.header.ticket.position
        if self.running.pop(position, None) is None:
            del self.queued[position]
        known = self.drops.get(fact.cause) or nothing(fact.cause)
        self.drops[fact.cause] = _with(known, fact.header)
        self._note_digest(fact.header)
        if fact.is_void:
            self.voids[position] = self.voids.get(position, 0) + 1
        if fact.is_refilled:
            self.refills.add(position)
        else:
            self._settle(position)
        return [fact.header.ticket]

    @_book.register
    def _handed(self, fact: Handed) -> None:
        groups = [self.queued.pop(position) for position in fact.positions]
        self.out[fact.number] = Out(fact, groups)
        self.number = fact.number
        self.batches += 1
        line = _line(fact, groups)
        self.lines[fact.number] = line
        if len(self.lines) > KEPT_BATCHES:
            del self.lines[next(iter(self.lines))]
        if line.mean_reward is not None:
            self.curve.append((fact.number, line.mean_reward))
        self.ages.update(line.ages)
        for group in groups:
            self.taken = _with(self.taken, group.header)
        self.consumed += len(groups)
        self.handed += len(groups)

    @_book.register
    def _committed(self, fact: Committed) -> list[Ticket]:
        groups = self.out.pop(fact.number).groups
        for group in groups:
            self._settle(group.header.ticket.position)
        if fact.number in self.lines:
            self.lines[fact.number].is_committed = True
        return [group.header.ticket for group in groups]

    @_book.register
    def _returned(self, fact: Returned) -> None:
        taken, groups = self.out.pop(fact.number)
        self.taken_back.append(fact.number)
        self.queued |= {group.header.ticket.position: group for group in groups}
        self.batches -= 1
        self.consumed -= len(groups)
        self.ages.subtract(taken.version - group.header.oldest_version for group in groups)
        self.ages += Counter()  # without those that are 0
        for group in groups:
            self.taken = _with(self.taken, group.header, -1)
        former = self.former
        if fact.number > self.since:
            self.handed -= len(groups)
        elif self.is_publishing and fact.number > former.since:
            self.former = former._replace(handed=former.handed - len(groups))
        self.lines.pop(fact.number, None)
        for point in [point for point in self.curve if point[0] == fact.number]:
            self.curve.remove(point)

    @_book.register
    def _publish_begun(self, fact: PublishBegun) -> None:
        former = self.former
        if not self.is_publishing:
            self.former = Former(self.version, self.handed, self.since)
        elif fact.version > self.version > former.version:  # begun again; the first one's counts
            self.former = former._replace(handed=former.handed + self.handed)
        elif fact.version > self.version:
            self.former = former._replace(handed=self.handed)
        self.is_publishing = True
        self._raise_to(fact.version)

    @_book.register
    def _published(self, fact: Published) -> None:
        was_publishing, self.is_publishing = self.is_publishing, False
        self.publishes.append(fact.mark)
        if not fact.mark.error:
            self.pool_version = fact.mark.version
            self._raise_to(fact.mark.version)
        elif was_publishing:  # the learner goes on from what the pool has
            self._fall_back(is_as_it_was=fact.mark.refused)

    @_book.register
    def _source_ended(self, fact: SourceEnded) -> None:
        self.total = fact.total
        for position in [p for p in self.running if p >= fact.total]:
            del self.running[position]
            self.refills.add(position)  # another run's source may have it

    @_book.register
    def _bounded(self, fact: Bounded) -> None:
        self.bound = (fact.max_staleness,)

    @_book.register
    def _gated(self, fact: Gated) -> None:
        self.is_paused, self.steps = fact.is_paused, fact.steps
        self.step_call = fact.call or self.step_call

    @_book.register
    def _stopped(self, fact: Stopped) -> None:
        self.is_stopped = True
        self.error = self.error or fact.error

    def check(self) -> None:
        """Assert that they add up."""
        out = [p for batch in self.out.values() for p in batch.fact.positions]
        places = [*self.running, *self.queued, *out, *self.refills]
        assert len(places) == len(set(places)), "a position is in two places"
        assert self.settled + len(places) == self.next_position, "a position is lost"
        assert set(self.attempts) <= set(places)
        assert set(self.voids) <= set(places)
        assert self.pool_version <= self.version
        assert 0 <= self.handed <= self.consumed
        assert sum(self.ages.values()) == self.taken.groups == self.consumed

    def _raise_to(self, version: int) -> None:
        if version > self.version:
            self.version, self.handed, self.since = version, 0, self.number

    def _fall_back(self, *, is_as_it_was: bool) -> None:
        """To the version before a publish; whether what was taken of it still counts."""
        version, handed, since = self.former
        if not is_as_it_was:
            self.handed, self.since = 0, self.number
        elif self.version > version:
            self.handed, self.since = self.handed + handed, since
        self.version = version

    def _settle(self, position: int) -> None:
        self.settled += 1
        self.attempts.pop(position, None)
        self.voids.pop(position, None)

    def _note_digest(self, header: GroupHeader) -> None:
        if header.digest and len(self.digests) < KEPT_DIGESTS:
            self.digests.setdefault(header.ticket.position, header.digest)


def _with(count: DropCount, header: GroupHeader, sign: int = 1) -> DropCount:
    """One group more, or less."""
    return DropCount(
        count.cause,
        count.groups + sign,
        count.rollouts + sign * header.rollouts,
        count.sampled_tokens + sign * header.sampled_tokens,
        count.longest_tokens + sign * header.longest_tokens,
        count.reward_sum + sign * (header.mean_reward or 0.0),
        count.rewarded + sign * (header.mean_reward is not None),
    )


def _line(fact: Handed, groups: list[InQueue]) -> BatchLine:
    headers = [group.header for group in groups]
    # What failed has no reward: close enough to the mean over the rollouts that have one.
    rewards = [
        (header.mean_reward, header.rollouts - header.failed)
        for header in headers
        if header.mean_reward is not None
    ]
    rewarded = sum(rollouts for _, rollouts in rewards)
    return BatchLine(
        fact,
        rollouts=sum(header.rollouts for header in headers),
        sampled_tokens=sum(header.sampled_tokens for header in headers),
        mean_reward=sum(r * n for r, n in rewards) / rewarded if rewarded else None,
        ages=tuple(fact.version - header.oldest_version for header in headers),
        queue_s=sum(fact.time_s - group.since_s for group in groups) / max(1, len(groups)),
    )
