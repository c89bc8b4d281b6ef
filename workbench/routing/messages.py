"""What a client and the balancer tell each other: one report up, one reply down.

A client holds *session leases*: for a session whose pin it knows it starts turns by itself and says
so afterwards. Reports say what is open and what was given back since the last one, so that the
balancer's books follow within the report interval; replies carry grants and what is void.

Entries are plain tuples: they are written thousands of times a second.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from workbench.routing.policies.base import Need

ASK = -1
"""In place of a grant's stamp: the session's next turn has to ask again."""


class Outcome(IntEnum):
    """How the request of a lease ended, as far as its replica's health goes."""

    OK = 0
    """The replica served it to its end."""
    LEFT = 1
    """Its caller went away, which says nothing of the replica."""
    FAILED = 2
    """The replica could not be reached, or failed on it."""
    DIED = 3
    """The replica's process or engine is gone."""


class Want(NamedTuple):
    """A turn that needs a replica. The lease that answers it has the same id."""

    lease_id: int
    session_id: str
    prompt_tokens: int
    priority: int
    """Lower goes first."""
    blocks: tuple[int, ...] = ()


class OpenTurn(NamedTuple):
    """A lease that a client gave itself on a pin it holds, open when the report was made."""

    lease_id: int
    session_id: str
    replica_id: str
    prompt_tokens: int


class ClosedTurn(NamedTuple):
    """A lease that the balancer knows and that was given back. Failures are told apart."""

    lease_id: int
    served: bool
    """Whether the replica served it to its end."""


class Usage(NamedTuple):
    """What a session did since the last report."""

    session_id: str
    replica_id: str
    """Of its last turn."""
    local_turns: int
    """Turns that began without asking the balancer."""
    prompt_tokens: int
    sampled_tokens: int
    cached_tokens: int
    context_tokens: int
    """Prompt and sampled tokens of its last turn; 0 when none ended."""
    known_prompt_tokens: int
    """Prompt tokens of those turns that ended and whose engine said what was cached."""


class Failure(NamedTuple):
    """A turn failed on its replica."""

    replica_id: str
    stamp: int
    """Of the lease: a replica that came later under the same id is not meant."""
    outcome: Outcome


@dataclass(slots=True)
class Report:
    """What changed at a client since its last report."""

    owner: str
    number: int
    """1, 2, … within an epoch; one that was heard already changes nothing."""
    epoch: int
    """The balancer's life that the client knows; 0 before it knows one."""
    full: bool = False
    """Everything that the client holds, in place of all that it said before."""
    wants: list[Want] = field(default_factory=list)
    opened: list[OpenTurn] = field(default_factory=list)
    closed: list[ClosedTurn] = field(default_factory=list)
    usage: list[Usage] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    """Sessions that are over."""
    failures: list[Failure] = field(default_factory=list)
    pins: list[tuple[str, str]] = field(default_factory=list)
    """Session, replica: with ``full``, the session leases that the client holds."""
    cursor: int = 0
    """Revocations up to this stamp were obeyed."""
    again: list[Report] = field(default_factory=list)
    """With ``full``, what earlier reports said of usage, ended sessions and failures, where it is
    not known whether they were heard: it counts where they were not."""
    age_s: float = 0.0
    """How old the oldest news in here was when it was sent."""


class Grant(NamedTuple):
    """A lease on a replica."""

    lease_id: int
    replica_id: str
    stamp: int
    """Of the pin, for further turns of the session without asking; or :data:`ASK`."""


class Refusal(NamedTuple):
    """No replica will take the turn."""

    lease_id: int
    error: Exception


class Revocation(NamedTuple):
    """Pins that are void from here on: of a session, all on a replica, or all (neither named)."""

    stamp: int
    session_id: str
    replica_id: str


@dataclass(slots=True)
class Reply:
    """What the balancer has for one client."""

    epoch: int
    cursor: int
    """Stamp of the last revocation that is in here."""
    grants: list[Grant] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    revocations: list[Revocation] = field(default_factory=list)
    forget_pins: bool = False
    """The client is too far behind: all its pins are void."""
    resync: bool = False
    """The balancer does not know this client: it has to say all that it holds."""
    waiting: str = ""
    """Why some of this client's turns have to wait, per replica."""
    needs: frozenset[Need] = frozenset()
    """What the policy has to see."""
    report_s: float = 0.05
    """How long a change may stay with the client."""
    answers: int = 0
    """Number of the report that this answers; 0 for the long poll."""
