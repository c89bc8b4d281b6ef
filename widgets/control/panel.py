"""What is seen of a pool by whoever manages it: each replica, and what can be asked. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from widgets.control.desk import under_way
from widgets.control.orders import POOL, Verb
from widgets.drawing import count
from widgets.pictures.condition import conditions, state, worst_first
from widgets.pictures.picture import Picture, Table
from widgets.pictures.text import clock, prose, short
from widgets.tables import number
from widgets.theme import MISSING, natural_key
from workbench.types import ReplicaState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from widgets.control.desk import Entry
    from widgets.pictures.view import FeedView
    from workbench.types import ReplicaSnapshot

TITLE = "Control"
MAX_ROWS = 256
NO_SAMPLE = "there are no figures of the pool yet"
CLOSED = "the pool was closed"

COLUMNS = ("replica", "state", "stage or error", "version", "restarts", "in flight")
BAD = frozenset({ReplicaState.UNHEALTHY, ReplicaState.STOPPED})


@dataclass(frozen=True, slots=True)
class Panel(Picture):
    """A picture with something to ask for. Its parts are what a saved notebook keeps."""

    control: Mapping[str, Any] | None = None
    """For ``js/control.js``; None where nothing is known."""

    def to_json(self) -> str:
        """Compact; parts stay here."""
        members = {
            "title": self.title, "status": self.status, "error": self.error, "words": self.words,
            "control": self.control,
        }  # fmt: skip
        return json.dumps(members, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def panel_of(view: FeedView, entries: Sequence[Entry]) -> Panel:
    """The panel of a pool.

    Args:
        view: its figures.
        entries: orders that are under way or ended lately, the newest first.
    """
    unusual = conditions(view)
    found, left = worst_first(view, unusual, MAX_ROWS)
    # Rows stay where they are: a click must not hit what has just moved there.
    found.sort(key=lambda replica: natural_key(replica.status.replica_id))
    busy = under_way(tuple(entries))
    more = f"{count(left, 'replica')} more, less busy, not shown" if left else ""
    present = [one for one in view.replicas if one.status.state is not ReplicaState.STOPPED]
    control = {
        "time_s": view.latest.time_s if view.latest else None,  # shows that somebody is there
        "closed": _why_not(view),
        "replicas": len(present),
        "in_flight": sum(one.load.in_flight for one in view.replicas if one.load),
        "paused": any(state(one) is ReplicaState.PAUSED for one in view.replicas),
        "busy": str(busy[POOL].order.verb) if POOL in busy else "",
        "blocked": [str(entry.order) for entry in entries if entry.runs],
        "rows": [_row(replica, unusual[replica.status.replica_id], busy) for replica in found],
        "more": more,
        "done": [_done(entry) for entry in entries],
    }
    return Panel(
        f"{TITLE}: {prose(view.name)}" if view.name else TITLE,
        (_table(found, unusual, more),),
        view.status,
        view.error,
        words=_words(view, present),
        control=control,
    )


def _why_not(view: FeedView) -> str:
    """Why nothing can be asked for; empty where it can."""
    if view.status.startswith("closed"):
        return CLOSED
    return "" if view.latest else NO_SAMPLE


def _row(replica: ReplicaSnapshot, note: str, busy: Mapping[str, Entry]) -> dict[str, Any]:
    status = replica.status
    now = state(replica)
    entry = busy.get(status.replica_id)
    return {
        "id": status.replica_id,
        "name": short(status.replica_id, 40),
        "state": str(now),
        "tone": _tone(now),
        "note": note,
        "version": number(status.version),
        "restarts": number(status.restarts),
        "in_flight": number(replica.load.in_flight if replica.load else None),
        "log": prose(status.log_path, 200),
        "can": [str(verb) for verb in offered(now)],
        "busy": f"{entry.order}, since {clock(entry.began_s)}" if entry else "",
        "runs": str(entry.order.verb) if entry else "",
    }


def _tone(now: ReplicaState) -> str:
    if now is ReplicaState.READY:
        return "good"
    return "bad" if now in BAD else "warn"


def offered(now: ReplicaState) -> tuple[Verb, ...]:
    """What can be asked of a replica in such a state."""
    if now is ReplicaState.STOPPED:  # it is on its way out
        return ()
    if now is ReplicaState.STARTING:
        return (Verb.RESTART,)
    back = Verb.READMIT if now is ReplicaState.DRAINING else Verb.DRAIN
    pause = Verb.RESUME if now is ReplicaState.PAUSED else Verb.PAUSE
    return (back, pause, Verb.RESTART)


def _done(entry: Entry) -> dict[str, Any]:
    failed = "failed: " if entry.has_failed else ""
    took = "" if entry.ended_s is None else f" ({max(0.0, entry.ended_s - entry.began_s):.1f} s)"
    first, _, more = entry.text.partition("\n")
    return {
        "id": entry.order_id,
        "about": entry.order.replica_id,
        "verb": str(entry.order.verb),
        "ended_s": entry.ended_s,
        "time": clock(entry.began_s),
        "what": str(entry.order),
        "text": "under way" if entry.runs else f"{failed}{first}{took}",
        "more": more,
        "tone": "busy" if entry.runs else "bad" if entry.has_failed else "good",
    }


def _table(found: list[ReplicaSnapshot], unusual: Mapping[str, str], more: str) -> Table:
    rows = []
    for replica in found:
        row = _row(replica, unusual[replica.status.replica_id], {})
        names = ("name", "state", "note", "version", "restarts", "in_flight")
        rows.append(tuple(row[name] for name in names))
    numeric = (False, False, False, True, True, True)
    return Table("Replicas", COLUMNS, tuple(rows), numeric=numeric, empty="no replica", note=more)


def _words(view: FeedView, present: Sequence[ReplicaSnapshot]) -> str:
    if not view.latest:
        return "No figures yet."
    versions = sorted({replica.status.version for replica in present})
    if not versions:
        version = MISSING
    elif len(versions) == 1:
        version = f"version {versions[0]}"
    else:
        version = f"versions {versions[0]} to {versions[-1]}"
    in_flight = sum(one.load.in_flight for one in view.replicas if one.load)
    words = (count(len(present), "replica"), version, f"{in_flight:,} in flight")
    return f"{', '.join(words)}."
