"""Every replica with all that is known of it. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from widgets.drawing import count
from widgets.pictures.condition import conditions, state, worst_first
from widgets.pictures.picture import Fact, Facts, Table
from widgets.pictures.text import percent, prose, short
from widgets.tables import number
from widgets.theme import MISSING
from workbench.types import ReplicaState

if TYPE_CHECKING:
    from widgets.pictures.picture import Picture
    from widgets.pictures.view import FeedView
    from workbench.types import ReplicaLoad, ReplicaSnapshot

TITLE, TITLE_OF_LIVES = "Replicas", "Replica lives"
MAX_ROWS = 256
SOURCES = "in flight to failed requests: books; running to TTFT: engines"
WORK_COLUMNS = (
    "replica", "state", "in flight", "most in flight", "capacity", "prompt tokens in flight",
    "sessions", "came from elsewhere", "share of turns", "failed requests", "running", "waiting",
    "KV cache", "tokens/s", "cache hits", "preempted (1/s)", "TTFT p95 (s)",
)  # fmt: skip
LIFE_COLUMNS = ("replica", "unusual", "started in (s)", "node", "process", "log")


def replicas_picture(view: FeedView) -> Picture:
    """Replicas: our books on them, their engines' figures."""
    found, left = worst_first(view, conditions(view), MAX_ROWS)
    note = f"; {_more(left)}" if left else ""
    work = Table(
        "Work",
        WORK_COLUMNS,
        _work(view, found),
        numeric=(False, False, *(True,) * 15),
        empty="no replica",
        note=SOURCES + note,
    )
    states = Counter(str(state(replica)) for replica in view.replicas)
    words = ", ".join(f"{states[kind]:,} {kind}" for kind in ReplicaState if states[kind])
    words = f"{count(len(view.replicas), 'replica')}: {words or 'none'}."
    return view.picture(TITLE, (_facts(view, states), work), words)


def lives_picture(view: FeedView) -> Picture:
    """Where replicas live, and what is unusual about them. It seldom changes."""
    unusual = conditions(view)
    found, left = worst_first(view, unusual, MAX_ROWS)
    life = Table(
        "Life",
        LIFE_COLUMNS,
        tuple(_life(replica, unusual[replica.status.replica_id]) for replica in found),
        numeric=(False, False, True, False, True, False),
        empty="no replica",
        note=_more(left) if left else "",
    )
    odd = sum(map(bool, unusual.values()))
    words = f"{count(len(unusual), 'replica')}, something unusual about {odd:,} of them."
    return view.picture(TITLE_OF_LIVES, (life,), words, span_s=None)


def _more(left: int) -> str:
    return f"{count(left, 'replica')} more, less busy, not shown"


def _facts(view: FeedView, states: Counter[str]) -> Facts:
    pool = view.latest.pool if view.latest else None
    silent = len(view.replicas) - len(view.engines())
    bad = {ReplicaState.UNHEALTHY, ReplicaState.STOPPED}
    return Facts(
        "Pool",
        (
            Fact("model", prose(pool.model, 60) if pool else MISSING),
            Fact("device", pool.device if pool else MISSING),
            Fact("policy", prose(view.books.policy, 40) if view.books else MISSING),
            *(
                Fact(kind, f"{states[kind]:,}", "bad" if kind in bad else "plain")
                for kind in ReplicaState
                if states[kind]
            ),
            Fact("without data", f"{silent:,}", "warn" if silent else "plain"),
        ),
    )


def _work(view: FeedView, found: list[ReplicaSnapshot]) -> tuple[tuple[str, ...], ...]:
    engines = view.engines()
    speed, hits = view.by_replica("generation_tokens_per_s"), view.by_replica("prefix_hit_rate")
    pushed, ttft = view.by_replica("preemptions_per_s"), view.by_replica("ttft_p95_s")
    rows = []
    for replica in found:
        replica_id = replica.status.replica_id
        engine = engines.get(replica_id)
        rows.append(
            (
                short(replica_id),
                str(state(replica)),
                *_booked(replica.load),
                number(engine.running if engine else None),
                number(engine.waiting if engine else None),
                percent(engine.kv_cache_usage if engine else None),
                number(speed.get(replica_id)),
                percent(hits.get(replica_id)),
                number(pushed.get(replica_id), 3),
                number(ttft.get(replica_id), 2),
            )
        )
    return tuple(rows)


def _booked(load: ReplicaLoad | None) -> tuple[str, ...]:
    if load is None:
        return (MISSING,) * 8
    return (
        number(load.in_flight),
        number(load.peak_in_flight),
        "no limit" if load.capacity is None else number(load.capacity),
        number(load.in_flight_tokens),
        number(load.sessions),
        number(load.moved_here),
        percent(load.share),
        number(load.failures),
    )


def _life(replica: ReplicaSnapshot, unusual: str) -> tuple[str, ...]:
    """A log matters where something is unusual."""
    status = replica.status
    return (
        short(status.replica_id),
        unusual,
        number(status.start_s, 1),
        short(status.node) or MISSING,
        MISSING if status.pid is None else str(status.pid),
        short(status.log_path, 80) if unusual and status.log_path else "",
    )
