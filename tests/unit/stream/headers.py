"""Groups that have ended, made up."""

from __future__ import annotations

import itertools

from workbench.metrics.streams import PublishMark
from workbench.stream.groups import GroupHeader, Ticket


def header(
    ticket: Ticket,
    *,
    oldest: int | None = None,
    reward: float | None = 0.5,
    tokens: int = 40,
    longest: int = 30,
    digest: str = "",
) -> GroupHeader:
    """Two rollouts, none of which failed."""
    oldest = ticket.start_version if oldest is None else oldest
    return GroupHeader(ticket, oldest, oldest, 2, 0, tokens, longest, reward, 1.0, digest)


_times = itertools.count()


def mark(version: int, error: str = "", *, refused: bool = False) -> PublishMark:
    """A publish that is over, at a time of its own."""
    return PublishMark(float(next(_times)), version, "keep", 0.1, 0.2, error, refused=refused)
