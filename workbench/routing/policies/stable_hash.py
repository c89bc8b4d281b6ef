"""The same session on the same replica, in every process and after every restart."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from workbench.routing.policies.base import Need, Policy

if TYPE_CHECKING:
    from workbench.routing.policies.base import Candidates, ReplicaView, Turn


class StableHash(Policy):
    """Rendezvous hashing: every replica draws a number for the session, the highest wins.

    A function of the session's id and the set of replicas alone: load moves nothing, and when one
    of n replicas goes, only its own sessions move. It waits for a replica that is full.
    """

    name = "stable-hash"
    needs = frozenset({Need.FULL_REPLICAS})
    margin = None

    def choose(
        self,
        turn: Turn,
        pinned: ReplicaView | None,  # noqa: ARG002 - the set of replicas decides, not the past
        candidates: Candidates,
    ) -> ReplicaView:
        """The replica that draws the highest number."""
        session = turn.session_id.encode(errors="surrogatepass")
        return max(candidates, key=lambda view: (_draw(session, view.replica_id), view.replica_id))


def _draw(session: bytes, replica_id: str) -> bytes:
    # Its own length first, so that no two pairs of ids are one string.
    replica = replica_id.encode(errors="surrogatepass")
    return blake2b(b"%d:%b%b" % (len(replica), replica, session), digest_size=8).digest()
