"""What happened in a stream: a journal of these is the stream. Frozen values.

Decisions are made once and written down as facts, never made again: a journal is read with other
rules, another clock and another data source than it was written with, and says the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.errors import ConfigError

if TYPE_CHECKING:
    from workbench.metrics.streams import PublishMark
    from workbench.stream.groups import GroupHeader, Ticket


@dataclass(frozen=True, slots=True)
class Terms:
    """What a stream has from its beginning to its end, whoever goes on with it.

    With others its positions would be of other tasks, its groups of another size or of another
    agent, or it would end somewhere else.
    """

    agent: str
    n: int
    """Rollouts of a group."""
    epochs: int | None
    shuffle: int | None

    def check(self, given: Terms) -> None:
        """Refuse to go on with others.

        Raises:
            ConfigError: names the first that differs, and what it was.
        """
        for name in self.__slots__:
            ours, theirs = getattr(self, name), getattr(given, name)
            if ours != theirs:
                problem = f"is {theirs!r}, and the stream in this folder was begun with {ours!r}"
                raise ConfigError(name, problem, allowed=f"{ours!r}, or another folder")


@dataclass(frozen=True, slots=True)
class Opened:
    """Somebody runs the stream; another ``run`` than before begins with nothing in flight."""

    run: str
    version: int
    """What its pool is on."""
    terms: Terms | None = None


@dataclass(frozen=True, slots=True)
class Begun:
    """Groups are in flight."""

    tickets: tuple[Ticket, ...]
    time_s: float


@dataclass(frozen=True, slots=True)
class Queued:
    """A group was played and waits to be handed out."""

    header: GroupHeader
    time_s: float


@dataclass(frozen=True, slots=True)
class Left:
    """A group that was in flight or queued will not be handed out."""

    header: GroupHeader
    cause: str
    """As :class:`workbench.metrics.streams.DropCount` has it."""
    is_refilled: bool
    """Whether its task is to be played again; else its position is settled."""
    is_void: bool
    """Whether it was too old."""


@dataclass(frozen=True, slots=True)
class Handed:
    """A batch was handed out."""

    number: int
    time_s: float
    consumer: str
    version: int
    """The learner's."""
    waited_s: float
    """How long its taker waited for it."""
    positions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Committed:
    """Who took a batch is done with it: its positions are settled."""

    number: int


@dataclass(frozen=True, slots=True)
class Returned:
    """Who took a batch will not be done with it: its groups are queued again."""

    number: int


@dataclass(frozen=True, slots=True)
class PublishBegun:
    """The learner has a new version, which its pool is about to get."""

    version: int


@dataclass(frozen=True, slots=True)
class Published:
    """A publish is over."""

    mark: PublishMark


@dataclass(frozen=True, slots=True)
class SourceEnded:
    """There are no positions from this one on."""

    total: int


@dataclass(frozen=True, slots=True)
class Bounded:
    """Another bound of the staleness holds."""

    max_staleness: int | None


@dataclass(frozen=True, slots=True)
class Gated:
    """Whether groups are begun at all; and how many all the same, while paused."""

    is_paused: bool
    steps: int
    call: str = ""
    """Names whoever asked for these steps, so that asking again begins no others."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """Nothing more is begun in this run: by its own will, or for an error."""

    error: str


Fact = (
    Opened
    | Begun
    | Queued
    | Left
    | Handed
    | Committed
    | Returned
    | PublishBegun
    | Published
    | SourceEnded
    | Bounded
    | Gated
    | Stopped
)
