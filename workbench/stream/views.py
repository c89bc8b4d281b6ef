"""What a person sees of a stream's ledger. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from workbench.metrics.streams import StreamSnapshot

if TYPE_CHECKING:
    from collections.abc import Iterable

    from workbench.stream.books import BatchLine, Books
    from workbench.stream.groups import GroupHeader, Ticket
    from workbench.stream.ledger import StreamLedger


def snapshot(ledger: StreamLedger, asked: int = 0) -> StreamSnapshot:
    """Where the stream stands; ``asked``: the largest batch that somebody waits for."""
    books, rules = ledger.books, ledger.rules
    return StreamSnapshot(
        state=_state(ledger),
        waits_for=waits_for(ledger, asked),
        error=books.error,
        version=books.version,
        pool_version=books.pool_version,
        max_staleness=rules.max_staleness,
        window=rules.window,
        running=_counted(group.ticket.start_version for group in books.running.values()),
        queued=_counted(group.header.oldest_version for group in books.queued.values()),
        handed=books.handed,
        uncommitted=sum(len(out.groups) for out in books.out.values()),
        begun=books.begun,
        ended=books.ended,
        consumed=books.consumed,
        batches=books.batches,
        ages=tuple(sorted(books.ages.items())),
        drops=tuple(books.drops.values()),
        taken=books.taken,
        publishes=tuple(books.publishes),
        first_open=_first_open(books),
        tasks=books.total,
        curve=tuple(books.curve),
        is_paused=books.is_paused,
    )


def _first_open(books: Books) -> int:
    out = (group.header.ticket.position for out in books.out.values() for group in out.groups)
    return min((*books.running, *books.queued, *books.refills, *out), default=books.next_position)


def waits_for(ledger: StreamLedger, asked: int = 0) -> str:
    """What the stream cannot go on without; empty while it goes on, or has ended."""
    books = ledger.books
    if _state(ledger) in {"failed", "ended"}:
        return ""
    n = asked or ledger.rules.required_samples
    if len(books.queued) >= n and (awaited := ledger.awaited(n)):
        return _unfinished(awaited)
    if books.running:
        return ""
    if ledger.free:
        return "the rollouts' process, to begin a group"
    if books.is_paused and not books.steps:
        return "being resumed: it was paused"
    if books.is_publishing:
        return "the end of a publish"
    return _learner(ledger, n)


def _learner(ledger: StreamLedger, n: int) -> str:
    """Nothing is in flight, and nothing may begin."""
    books = ledger.books
    if ledger.is_over and not books.queued:
        return f"a commit: {_groups(sum(len(out.groups) for out in books.out.values()))} are out"
    if len(books.queued) >= n or ledger.is_over:
        return f"the learner: {_groups(len(books.queued))} in the queue"
    if books.pool_version < books.version and not books.handed:
        return (
            f"a publish: the pool is on version {books.pool_version}, "
            f"the learner on version {books.version}"
        )
    used = books.handed + len(books.queued)
    return f"a publish: {_groups(used)} of version {books.version} were taken or wait"


def _unfinished(tickets: list[Ticket]) -> str:
    oldest = min(tickets, key=lambda ticket: (ticket.start_version, ticket.position))
    begun = f"{_groups(len(tickets))} begun under version {oldest.start_version}"
    return f"{begun}, which would be too old later; the first is at position {oldest.position}"


def _groups(count: int) -> str:
    return "1 group" if count == 1 else f"{count} groups"


def _state(ledger: StreamLedger) -> str:
    books = ledger.books
    if books.error:
        return "failed"
    if ledger.is_over and not books.queued and not books.out:
        return "ended"
    if books.is_publishing:
        return "publishing"
    return "paused" if books.is_paused else "running"


def _counted(versions: Iterable[int]) -> tuple[tuple[int, int], ...]:
    return tuple(sorted(Counter(versions).items()))


def group_rows(books: Books, now_s: float) -> list[dict[str, Any]]:
    """A line per group in flight, queued or handed out and not committed, by position."""
    rows = [
        _row(books, "running", group.ticket, None, now_s - group.since_s)
        for group in books.running.values()
    ]
    rows += [
        _row(books, "queued", group.header.ticket, group.header, now_s - group.since_s)
        for group in books.queued.values()
    ]
    for out in books.out.values():
        since_s = now_s - out.fact.time_s
        rows += [
            _row(books, "uncommitted", group.header.ticket, group.header, since_s)
            for group in out.groups
        ]
    return sorted(rows, key=lambda row: row["position"])


def _row(
    books: Books, state: str, ticket: Ticket, header: GroupHeader | None, since_s: float
) -> dict[str, Any]:
    oldest = header.oldest_version if header else ticket.start_version
    return {
        "position": ticket.position,
        "attempt": ticket.attempt,
        "state": state,
        "start_version": ticket.start_version,
        "oldest_version": oldest,
        "staleness": books.version - oldest,
        "rollouts": header.rollouts if header else None,
        "sampled_tokens": header.sampled_tokens if header else None,
        "mean_reward": header.mean_reward if header else None,
        "since_s": since_s,
    }


def batch_rows(books: Books) -> list[dict[str, Any]]:
    """A line per batch that was handed out and not taken back: the last of them."""
    return [_batch_row(line) for line in books.lines.values()]


def _batch_row(line: BatchLine) -> dict[str, Any]:
    fact, ages = line.fact, line.ages
    return {
        "number": fact.number,
        "time_s": fact.time_s,
        "consumer": fact.consumer,
        "version": fact.version,
        "groups": len(ages),
        "rollouts": line.rollouts,
        "sampled_tokens": line.sampled_tokens,
        "mean_reward": line.mean_reward,
        "mean_staleness": sum(ages) / len(ages) if ages else 0.0,
        "max_staleness": max(ages, default=0),
        "queue_s": line.queue_s,
        "waited_s": fact.waited_s,
        "committed": line.is_committed,
    }
