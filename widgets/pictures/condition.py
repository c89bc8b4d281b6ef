"""How replicas are doing, in words, and which of them deserve a row. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from widgets.pictures.text import clock, prose
from widgets.theme import natural_key
from workbench.types import ReplicaState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from widgets.pictures.view import FeedView
    from workbench.types import ReplicaSnapshot


def conditions(view: FeedView) -> dict[str, str]:
    """By replica what is unusual about it, in words; empty for one that works as it should."""
    heard_s, reporting = view.heard_s(), view.engines()
    return {
        replica.status.replica_id: _condition(
            replica,
            heard_s=heard_s.get(replica.status.replica_id),
            reports=replica.status.replica_id in reporting,
        )
        for replica in view.replicas
    }


def state(replica: ReplicaSnapshot) -> ReplicaState:
    """The balancer's word where it knows the replica, else the controller's.

    The balancer stops using a replica before the controller has found out what is wrong with it.
    """
    is_up = replica.status.state is ReplicaState.READY
    return replica.load.state if replica.load and is_up else replica.status.state


def _condition(replica: ReplicaSnapshot, *, heard_s: float | None, reports: bool) -> str:
    """What it does while it starts, why it is out, since when it is silent."""
    status = replica.status
    if status.state is ReplicaState.STARTING:
        return prose(status.stage) or "starting"
    said = [prose(status.error)] if status.error else []
    if replica.load and replica.load.reason and replica.load.reason not in status.error:
        said.append(prose(replica.load.reason))
    if not reports and status.state is not ReplicaState.STOPPED:
        said.append(f"no data since {clock(heard_s)}" if heard_s else "no data yet")
    return "; ".join(said)


def worst_first(
    view: FeedView, unusual: Mapping[str, str], limit: int
) -> tuple[list[ReplicaSnapshot], int]:
    """The replicas that get a row, and how many do not.

    Those with something unusual come first. Where there are more than ``limit`` the busiest of the
    rest are chosen; rows stand in natural order, so that they stay where they are.
    """

    def in_flight(replica: ReplicaSnapshot) -> int:
        return replica.load.in_flight if replica.load else 0

    def rank(replica: ReplicaSnapshot) -> tuple[bool, int]:
        return (not is_unusual(replica), -in_flight(replica))

    def is_unusual(replica: ReplicaSnapshot) -> bool:
        return bool(unusual[replica.status.replica_id]) or state(replica) is not ReplicaState.READY

    found = sorted(view.replicas, key=rank)[:limit]
    found.sort(
        key=lambda replica: (not is_unusual(replica), natural_key(replica.status.replica_id))
    )
    return found, len(view.replicas) - len(found)
