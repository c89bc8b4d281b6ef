"""Pools made by hand, and what is seen of them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from widgets.pictures.view import NOTHING, FeedView, look
from workbench.metrics.block import Block
from workbench.metrics.columns import POOL_COLUMNS, REPLICA_COLUMNS
from workbench.metrics.samples import Activity, RolloutSnapshot, Sample, SessionTurns
from workbench.metrics.streams import DropCount, PublishMark, StreamSnapshot
from workbench.types import (
    EngineFigures,
    EventKind,
    PoolSnapshot,
    ReplicaLoad,
    ReplicaSnapshot,
    ReplicaState,
    ReplicaStatus,
    RoutingEvent,
    RoutingSnapshot,
)

if TYPE_CHECKING:
    from widgets.pictures.picture import Part, Picture

NOW_S = 1_764_453_123.0
NASTY = "<script>alert('x')</script>\n\u202e$\\alpha$ & \x1b[31m\ud800" + "long " * 2000
"""Markup, notation, control and direction characters, a lone surrogate, 10 kB."""
ENGINE = EngineFigures(running=3, waiting=1, kv_cache_usage=0.42)


@dataclass
class StubFeed:
    """What :func:`look` needs of a feed."""

    latest: Sample | None
    block: Block
    name: str = "lab"
    period_s: float = 1.0
    closed: bool = False
    is_live: bool = True
    error: str = ""
    asked: list[tuple[float, float, int | None]] = field(default_factory=list)

    def window(self, start_s: float, end_s: float, points: int | None = None) -> Block:
        self.asked.append((start_s, end_s, points))
        block = self.block
        rows = (block.times_s >= start_s) & (block.times_s <= end_s)
        step = 1 if points is None else -(-int(rows.sum()) // points) or 1
        return Block(
            block.times_s[rows][::step],
            block.replica_ids,
            block.replicas[rows][::step],
            block.pool[rows][::step],
        )


def replica_names(count: int) -> tuple[str, ...]:
    return tuple(f"replica-{number}" for number in range(count))


def make_block(ids: tuple[str, ...] = replica_names(3), times: int = 60) -> Block:
    """Waves in every column; shares stay in 0–1."""
    place = np.arange(times)[:, None] / 9 + np.arange(len(ids))[None, :] / 3
    wave = (np.sin(place) + 1.2) / 2.4
    sizes = [0.9 if column.unit == "share" else 37.0 for column in REPLICA_COLUMNS]
    replicas = (wave[:, :, None] * np.array(sizes)).astype(np.float32)
    totals = [0.8 if column.unit == "share" else 120.0 for column in POOL_COLUMNS]
    along = (np.cos(np.arange(times) / 9) + 1.5)[:, None] / 2.5
    pool = (along * np.array(totals)).astype(np.float32)
    return Block(NOW_S - times + 1 + np.arange(times, dtype=np.float64), ids, replicas, pool)


def empty_block() -> Block:
    return make_block((), 0)


def put(block: Block, column: str, values: Any) -> Block:
    """The block with other values in one column: of the pool for 1-D ones, else of replicas."""
    values = np.asarray(values, np.float32)
    if values.ndim == 1:
        pool = block.pool.copy()
        pool[:, [c.name for c in POOL_COLUMNS].index(column)] = values
        return replace(block, pool=pool)
    replicas = block.replicas.copy()
    replicas[:, :, [c.name for c in REPLICA_COLUMNS].index(column)] = values
    return replace(block, replicas=replicas)


def make_replica(
    replica_id: str,
    *,
    in_flight: int = 4,
    state: ReplicaState = ReplicaState.READY,
    engine: EngineFigures | None = ENGINE,
    reason: str = "",
    error: str = "",
    stage: str = "",
) -> ReplicaSnapshot:
    status = ReplicaStatus(
        replica_id, state, stage, pid=77, node="node-1", start_s=4.2, error=error, log_path="/x.log"
    )
    load = ReplicaLoad(
        replica_id, state, in_flight, in_flight + 2, 10, 50, in_flight * 100, share=0.25,
        reason=reason,
    )  # fmt: skip
    return ReplicaSnapshot(status, load, engine)


def make_sample(
    replicas: tuple[ReplicaSnapshot, ...],
    *,
    time_s: float = NOW_S,
    sessions: int = 30,
    heard_s: tuple[tuple[str, float], ...] | None = None,
    activity: Activity = NOTHING,
    runs: tuple[RolloutSnapshot, ...] = (),
) -> Sample:
    books = RoutingSnapshot(
        epoch=1,
        policy="sticky",
        replicas=tuple(replica.load for replica in replicas if replica.load),
        sessions=sessions,
        acquired=500,
        sticky=440,
        first_touch=sessions,
        moves=30,
        time_s=12.0,
        queued=2,
        clients=3,
    )
    heard = tuple((r.status.replica_id, time_s) for r in replicas if r.engine)
    pool = PoolSnapshot("lab", "tiny-model", "cpu", replicas, books)
    return Sample(time_s, pool, activity, runs, heard if heard_s is None else heard_s)


def make_move(
    number: int, session: str, replica: str, *, reason: str = "load", unix_s: float = NOW_S
) -> RoutingEvent:
    return RoutingEvent(
        number, 11.0, EventKind.MOVED, session, replica, "client", 1, reason=reason, unix_s=unix_s
    )


def make_activity(sessions: int = 6, replicas: int = 3) -> Activity:
    hot = tuple(
        SessionTurns(f"session-{n}", f"replica-{n % replicas}", 40 - n % 40)
        for n in range(sessions)
    )
    moves = (make_move(1, "session-1", "replica-0"), make_move(2, "session-2", "replica-1"))
    return Activity(2, 0, hot, (("replica-0", 9),), moves)


def make_run(name: str = "batch-0", **known: Any) -> RolloutSnapshot:
    values: dict[str, Any] = {
        "agent": "tool", "total": 64, "running": 10, "done": 30, "failed": 4, "cancelled": 0,
        "sampled_tokens": 9000, "mean_reward": 0.5, "wall_s": 60.0, "started_s": NOW_S - 60,
        "failures": (("ToolError", 3), ("DeadlineError", 1)),
        "rewards": ((0.0, 0.5, 12), (0.5, 1.0, 18)),
    }  # fmt: skip
    return RolloutSnapshot(name=name, **(values | known))


def make_stream(**known: Any) -> StreamSnapshot:
    """In the middle of its work: the learner is at version 6, the pool still at 5."""
    values: dict[str, Any] = {
        "state": "running", "waits_for": "a publish: 8 groups of version 6 were taken or wait",
        "error": "", "version": 6, "pool_version": 5, "max_staleness": 2, "window": 24,
        "running": ((3, 1), (4, 2), (5, 7)), "queued": ((4, 1), (5, 3)), "handed": 4,
        "uncommitted": 4, "begun": 75, "ended": 60, "consumed": 48, "batches": 12,
        "taken": DropCount("taken", 48, 240, 36_000, 14_400, 25.2, 48),
        "ages": ((0, 12), (1, 30), (2, 6)),
        "drops": (DropCount("too_old", 3, 12, 4800, 1500, 0.3, 3),
                  DropCount("filtered", 5, 20, 2000, 600, 5.0, 5)),
        "publishes": tuple(
            PublishMark(NOW_S - 60 + 10 * n, n, "keep", 0.1 * n, 0.5 + 0.1 * n,
                        "ConnectionError: no replica answered" if n == 4 else "",
                        ("replica-1",) if n == 5 else ())
            for n in range(1, 7)
        ),
        "curve": tuple((n, 0.2 + n / 20) for n in range(1, 13)),
    }  # fmt: skip
    return StreamSnapshot(**(values | known))


def make_stream_run(name: str = "stream-1", **known: Any) -> RolloutSnapshot:
    """Of a stream; what is a field of the stream goes there, all else is of its run."""
    own = {key: known.pop(key) for key in list(known) if key not in StreamSnapshot.__slots__}
    values = {"total": 0, "done": 290, "failed": 10, "running": 40, "sampled_tokens": 60_000,
              "stream": make_stream(**known)}  # fmt: skip
    return make_run(name, **(values | own))


def make_view(
    count: int = 3,
    *,
    sample: Sample | None = None,
    block: Block | None = None,
    now_s: float = NOW_S,
    span_s: float = 60.0,
    recent: Activity | None = None,
    selected: tuple[str, ...] = (),
    **feed: Any,
) -> FeedView:
    """A pool of ``count`` replicas with something going on."""
    if sample is None:
        replicas = tuple(make_replica(replica_id) for replica_id in replica_names(count))
        sample = make_sample(replicas, runs=(make_run(),))
    stub = StubFeed(sample, make_block(replica_names(count)) if block is None else block, **feed)
    recent = make_activity(replicas=max(count, 1)) if recent is None else recent
    return look(stub, now_s=now_s, span_s=span_s, recent=recent, selected=selected)  # type: ignore[arg-type]


def blank_view(**feed: Any) -> FeedView:
    """A feed from which nothing came yet."""
    stub = StubFeed(None, empty_block(), **feed)
    return look(stub, now_s=NOW_S)  # type: ignore[arg-type]


def part(picture: Picture, title: str) -> Any:
    """The part whose title begins so."""
    found = [part for part in picture.parts if part.title.startswith(title)]
    assert found, f"no {title!r} among {[part.title for part in picture.parts]}"
    return found[0]


def fact(picture: Picture, label: str) -> Any:
    """The fact whose label begins so."""
    for facts in picture.parts:
        for found in getattr(facts, "facts", ()):
            if found.label.startswith(label):
                return found
    raise AssertionError(f"no fact {label!r}")


def texts(part: Part | Picture) -> str:
    """Every text in it, as it travels."""
    return json.dumps(json.loads(_json(part)), ensure_ascii=False)


def _json(part: Any) -> str:
    from widgets.pictures.picture import Picture

    return part.to_json() if isinstance(part, Picture) else Picture("", (part,)).to_json()
