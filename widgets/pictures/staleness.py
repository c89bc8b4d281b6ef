"""Streams of rollouts: how old what is trained on is, what is dropped, how publishes went. Pure."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from widgets.drawing import count
from widgets.pictures.ages import age_bars, version_bars
from widgets.pictures.outcomes import length_bars, outcome_table
from widgets.pictures.picture import Bar, Bars, Fact, Facts, Line, Lines, Table
from widgets.pictures.progress import tone_of
from widgets.pictures.streams import (
    error_of,
    going_on,
    groups_of,
    how_far,
    is_over,
    is_silent,
    versions_of,
    waits_for,
)
from widgets.pictures.text import clock, duration, measured, percent, prose, short
from widgets.tables import number
from widgets.theme import COLOURS, MISSING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from widgets.pictures.picture import Part, Picture
    from widgets.pictures.view import FeedView
    from workbench.metrics.samples import RolloutSnapshot
    from workbench.metrics.streams import PublishMark, StreamSnapshot

TITLE = "Staleness"
MAX_STREAMS = 12
MAX_PUBLISHES = 8
KEPT_PUBLISHES = 100
"""More than so many are not known."""
SMOOTH = 10
"""Batches that one value of the smooth curve is the mean of."""
TAKEN, FAILED = COLOURS[0], COLOURS[1]

WORDS = (
    ("version", "Times that the learner has given new weights; each publish raises it."),
    ("group", "The rollouts of one task, which are trained on together."),
    ("staleness", "The learner's version minus that of a group's oldest token, when it is taken."),
    ("", "At 0 it trains on what its own weights said; the higher, the more outdated."),
    ("bound", "The highest staleness that is handed out; what is older is dropped."),
    ("window", "Groups that may be on their way or taken, between a version and the next."),
    (
        "selection",
        "What is dropped for its age is mostly long: what is left is shorter.",
    ),
)


def staleness_picture(view: FeedView, name: str | None = None) -> Picture:
    """One stream in detail, and the others.

    Args:
        view: the pool.
        name: of the stream to show, in full or as the table shows it; None for the last that
            goes on, else the last.
    """
    streams = tuple(run for run in (view.latest.runs if view.latest else ()) if run.stream)
    now_s = view.latest.time_s if view.latest else 0.0
    shown = _shown(streams, name)
    error = " ".join(filter(None, (error_of(shown), view.error)))
    if name is not None and shown is None:
        known = ", ".join(short(run.name) for run in streams) or "none"
        error = f"no stream {short(name)} here; known: {known}. {error}".rstrip()
    detail = _detail(shown, shown.stream, now_s) if shown and shown.stream else ()
    parts = (*detail, *_others(streams, now_s), Table(
        "What the words mean", ("word", "meaning"), WORDS, wraps=True,
    ))  # fmt: skip
    return view.picture(TITLE, parts, _words(streams, shown), error=error, span_s=None)


def _shown(streams: Sequence[RolloutSnapshot], name: str | None) -> RolloutSnapshot | None:
    if name is not None:
        found = (run for run in reversed(streams) if name in {run.name, short(run.name)})
        return next(found, None)
    last = [run for run in streams if not is_over(run)] or streams
    return last[-1] if last else None


def _detail(run: RolloutSnapshot, stream: StreamSnapshot, now_s: float) -> tuple[Part, ...]:
    return (
        _facts(run, stream, now_s),
        version_bars(stream),
        age_bars(stream),
        reward_lines(stream),
        publish_bars(stream),
        *length_bars(run, stream),
        outcome_table(run, stream),
        *_failed_publishes(stream),
    )


def _facts(run: RolloutSnapshot, stream: StreamSnapshot, now_s: float) -> Facts:
    silent = is_silent(run, now_s)
    dropped = sum(drop.groups for drop in stream.drops)
    of = stream.consumed + dropped
    used = stream.in_flight + stream.in_queue + stream.handed
    bound = stream.max_staleness
    return Facts(
        f"Stream {short(run.name)} ({short(run.agent)})",
        (
            Fact("state", going_on(run, now_s), "warn" if silent else tone_of(stream)),
            Fact("learner's version", versions_of(stream)),
            Fact("bound", MISSING if bound is None else count(bound, "version")),
            Fact("in flight", count(stream.in_flight, "group")),
            Fact("queued", count(stream.in_queue, "group")),
            Fact("window in use", f"{used:,} of {stream.window:,}"),
            Fact("taken", f"{groups_of(stream)} in {count(stream.batches, 'batch')}"),
            Fact("not yet committed", count(stream.uncommitted, "group")),
            Fact("mean staleness", measured(_mean_age(stream), "versions", 2)),
            Fact(
                "not taken",
                f"{count(dropped, 'group')} ({percent(dropped / of)})" if of else MISSING,
                "warn" if dropped else "plain",
            ),
            _published(stream),
            Fact("waits for", waits_for(stream)),
        ),
    )


def _mean_age(stream: StreamSnapshot) -> float | None:
    known = sum(groups for _, groups in stream.ages)
    return sum(age * groups for age, groups in stream.ages) / known if known else None


def _published(stream: StreamSnapshot) -> Fact:
    failed = sum(bool(mark.error) for mark in stream.publishes)
    longest = max((mark.stopped_s for mark in stream.publishes), default=None)
    number_of = count(len(stream.publishes), "publish")
    told = f"last {number_of}" if len(stream.publishes) >= KEPT_PUBLISHES else number_of
    told += f", {failed:,} failed" if failed else ""
    if longest is not None:
        told += f", {longest:,.2f} s at most"
    return Fact("replicas stood still", told, "warn" if failed else "plain")


def reward_lines(stream: StreamSnapshot) -> Lines:
    """Mean reward by batch, and the course behind its noise."""
    numbers = [batch for batch, _ in stream.curve]
    rewards = [reward for _, reward in stream.curve]
    lines = [Line("each batch", rewards, COLOURS[5])]
    if len(rewards) > SMOOTH:
        means = [statistics.fmean(rewards[max(0, n + 1 - SMOOTH) : n + 1])
                 for n in range(len(rewards))]  # fmt: skip
        lines.append(Line(f"mean of {SMOOTH} batches", means, COLOURS[1], (), "o"))
    return Lines("Mean reward of what was taken", "reward", numbers, tuple(lines), "",
                 note="" if numbers else "no batch with a reward yet", along="batch")  # fmt: skip


def publish_bars(stream: StreamSnapshot) -> Bars:
    """How long replicas stood still at each publish, the last ones."""
    marks = stream.publishes[-MAX_PUBLISHES:]
    bars = tuple(
        Bar(
            f"version {mark.version:,}",
            mark.stopped_s,
            f"{mark.stopped_s:,.2f} of {mark.total_s:,.2f} s{_came_of(mark)}",
            FAILED if mark.error else TAKEN,
        )
        for mark in marks
    )
    longest = len(stream.publishes) - len(marks)
    note = f"and {longest:,} before; " if longest else ""
    modes = ", ".join(sorted({prose(mark.mode, 20) for mark in marks}))
    note += f"the longest that one replica stood still; mode {modes}" if marks else "no publish yet"
    return Bars("Replicas stood still, by publish", "s", bars, note=note)


def _came_of(mark: PublishMark) -> str:
    if mark.error:
        return ", failed"
    return f", {len(mark.replaced):,} replaced" if mark.replaced else ""


def _failed_publishes(stream: StreamSnapshot) -> list[Table]:
    """Those at which something went wrong, the newest first; nothing where all went well."""
    odd = [mark for mark in reversed(stream.publishes) if mark.error or mark.replaced]
    rows = tuple(
        (
            f"{mark.version:,}", clock(mark.time_s), prose(mark.mode, 20),
            prose(mark.error, 200) or "taken",
            prose(", ".join(mark.replaced), 80) or MISSING,
        )
        for mark in odd[:MAX_PUBLISHES]
    )  # fmt: skip
    if not rows:
        return []
    return [
        Table(
            "Publishes that did not reach every replica, the newest first",
            ("version", "at", "mode", "what came of it", "replicas that are replaced"),
            rows,
            numeric=(True, True, False, False, False),
            wraps=True,
        )
    ]


def _others(streams: Sequence[RolloutSnapshot], now_s: float) -> list[Table]:
    """All streams where there are several; and a word where there is none."""
    if len(streams) == 1:
        return []
    rows = tuple(
        (
            short(run.name), short(run.agent), clock(run.started_s) if run.started_s else MISSING,
            how_far(run), versions_of(run.stream), measured(_mean_age(run.stream), "versions", 2),
            number(run.mean_reward, 3), duration(run.wall_s), going_on(run, now_s),
        )
        for run in streams[: -MAX_STREAMS - 1 : -1]
        if run.stream
    )  # fmt: skip
    left = max(0, len(streams) - MAX_STREAMS)
    return [
        Table(
            "Streams, the newest first",
            ("stream", "agent", "began", "taken", "version", "mean staleness", "mean reward",
             "since its start", "state"),
            rows,
            numeric=(False, False, True, True, True, True, True, True, False),
            empty="no stream yet",
            note=f"and {count(left, 'older stream')}" if left else "",
            key=0,
        )
    ]  # fmt: skip


def _words(streams: Sequence[RolloutSnapshot], shown: RolloutSnapshot | None) -> str:
    stream = shown.stream if shown else None
    if shown is None or stream is None:
        return "No stream of rollouts yet." if not streams else f"{count(len(streams), 'stream')}."
    age = _mean_age(stream)
    old = "" if age is None else f", {age:,.2f} versions old on average when they were taken"
    dropped = sum(drop.groups for drop in stream.drops)
    waits = f" It waits for {waits_for(stream)}." if stream.waits_for else ""
    return (
        f"Stream {short(shown.name)}, {prose(stream.state)}: the learner is at version "
        f"{versions_of(stream)} and has taken {how_far(shown)}{old}. {stream.in_flight:,} "
        f"groups in flight, {stream.in_queue:,} queued, {dropped:,} not taken.{waits}"
    )
