"""Which sessions were busy on which replicas, as bands. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from widgets.pictures.picture import Flow, Link
from widgets.pictures.text import short
from widgets.theme import MUTED, natural_key

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from widgets.pictures.view import FeedView

MAX_SESSIONS = 12
MAX_REPLICAS = 8
"""The others are one band's end each."""
MAX_OTHERS = 4
"""Times the turns of the busiest sessions: so many of others would leave no room for these."""


def turn_flow(view: FeedView) -> Flow:
    """Turns of the busiest sessions by replica, everything else together.

    Sessions stand at the height of the replica that they use most: a band that crosses the others
    is a session that moved.
    """
    turns = session_turns(view)
    busiest = set(sorted(turns, key=lambda session: (-turns[session], session))[:MAX_SESSIONS])
    replicas = _replicas(view, busiest)
    targets = {replica_id: place for place, replica_id in enumerate(replicas)}
    homes: dict[str, int] = {}
    for hot in view.recent.hot:  # the most used replica comes first
        homes.setdefault(hot.session_id, targets.get(hot.replica_id, len(targets)))
    sessions = sorted(busiest, key=lambda session: (homes[session], natural_key(session)))
    sources = {session: place for place, session in enumerate(sessions)}
    links, others = _links(view, sources, targets)
    has_room = not links or others.total() <= MAX_OTHERS * links.total()
    if has_room:
        links += Counter({(len(sources), target): others[target] for target in others})
    left, right = [short(session) for session in sessions], [short(place) for place in replicas]
    colours = [_colour(view, replica_id) for replica_id in replicas]
    if has_room and others:
        left.append("other sessions")
    if any(target == len(targets) for _, target in links):
        right.append("other replicas")
        colours.append(MUTED)
    return Flow(
        "Where the busiest sessions ran lately",
        "turns",
        tuple(left),
        tuple(right),
        tuple(Link(*ends, float(links[ends])) for ends in sorted(links)),
        tuple(colours),
        _note(view, 0 if has_room else others.total()),
    )


def session_turns(view: FeedView) -> Counter[str]:
    """Lately seen turns by session, of the busiest ones."""
    turns: Counter[str] = Counter()
    for hot in view.recent.hot:
        turns[hot.session_id] += hot.turns
    return turns


def _replicas(view: FeedView, busiest: Collection[str]) -> list[str]:
    """The replicas that the busiest sessions use most, then those that others use most."""
    own: Counter[str] = Counter()
    everyone = Counter(dict(view.recent.others))
    for hot in view.recent.hot:
        everyone[hot.replica_id] += hot.turns
        own[hot.replica_id] += hot.turns * (hot.session_id in busiest)
    ranked = sorted(everyone, key=lambda r: (-own[r], -everyone[r], r))
    return sorted(ranked[:MAX_REPLICAS], key=natural_key)


def _links(
    view: FeedView, sources: Mapping[str, int], targets: Mapping[str, int]
) -> tuple[Counter[tuple[int, int]], Counter[int]]:
    """Turns from the busiest sessions, and from all others, to replicas."""
    links: Counter[tuple[int, int]] = Counter()
    others: Counter[int] = Counter()
    for hot in view.recent.hot:
        target = targets.get(hot.replica_id, len(targets))
        if hot.session_id in sources:
            links[sources[hot.session_id], target] += hot.turns
        else:
            others[target] += hot.turns
    for replica_id, turns in view.recent.others:
        others[targets.get(replica_id, len(targets))] += turns
    return links, others


def _note(view: FeedView, left_out: int) -> str:
    said = []
    if left_out:
        said.append(f"not drawn, as they would hide these: {left_out:,} turns of other sessions")
    if view.recent.lost:
        said.append(f"{view.recent.lost:,} events were not seen")
    return "; ".join(said)


def _colour(view: FeedView, replica_id: str) -> str:
    return view.styles[replica_id].colour if replica_id in view.styles else MUTED
