"""Batches and streams of rollouts: how far they are, how they end, what they earn. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from widgets.drawing import count
from widgets.pictures.picture import Bar, Bars, Fact, Facts, Table
from widgets.pictures.streams import (
    error_of,
    going_on,
    groups_of,
    how_far,
    how_many,
    is_over,
    is_silent,
    share_of,
    versions_of,
    waits_for,
)
from widgets.pictures.text import clock, duration, measured, prose, short
from widgets.tables import number
from widgets.theme import COLOURS, MISSING, MUTED

if TYPE_CHECKING:
    from widgets.pictures.picture import Picture
    from widgets.pictures.view import FeedView
    from workbench.metrics.samples import RolloutSnapshot
    from workbench.metrics.streams import StreamSnapshot

TITLE = "Rollout progress"
MAX_BATCHES = 12
"""That have a bar or a row; the last ones."""
MAX_CAUSES = 8
DONE, FAILED, CANCELLED, RUNNING = COLOURS[2], COLOURS[1], COLOURS[4], COLOURS[5]


def progress_picture(view: FeedView, name: str | None = None) -> Picture:
    """Every batch, and one of them in detail.

    Args:
        view: the pool.
        name: of the one to show, in full or as the table shows it; None for the last that
            is still running, else the last.
    """
    runs = view.latest.runs if view.latest else ()
    now_s = view.latest.time_s if view.latest else 0.0
    shown = _shown(runs, name)
    detail = (_facts(shown, now_s), _ends(shown), _rewards(shown)) if shown else ()
    error = " ".join(filter(None, (error_of(shown), view.error)))
    if name is not None and shown is None:
        known = ", ".join(short(run.name) for run in runs) or "none"
        error = f"no batch {short(name)} here; known: {known}. {error}".rstrip()
    parts = (*detail, batch_bars(runs, now_s), _table(runs, now_s))
    return view.picture(TITLE, parts, _words(runs, shown, now_s), error=error, span_s=None)


def _shown(runs: tuple[RolloutSnapshot, ...], name: str | None) -> RolloutSnapshot | None:
    if name is not None:
        found = (run for run in reversed(runs) if name in {run.name, short(run.name)})
        return next(found, None)
    unfinished = [run for run in runs if not is_over(run)]
    last = unfinished or runs
    return last[-1] if last else None


def _facts(run: RolloutSnapshot, now_s: float) -> Facts:
    kind, first, last = _of_batch(run) if run.stream is None else _of_stream(run, run.stream)
    silent = is_silent(run, now_s)
    return Facts(
        f"{kind} {short(run.name)} ({short(run.agent)})",
        (
            *first,
            Fact("running", MISSING if silent else f"{run.running:,}"),
            Fact("done", f"{run.done:,}"),
            Fact("failed", f"{run.failed:,}", "warn" if run.failed else "plain"),
            Fact("cancelled", f"{run.cancelled:,}"),
            Fact("mean reward", number(run.mean_reward, 3)),
            Fact("sampled, ended rollouts", measured(run.tokens_per_s, "tokens/s")),
            Fact(last.label, going_on(run, now_s), "warn") if silent else last,
            Fact("since its start", duration(run.wall_s)),
        ),
    )


def _of_batch(run: RolloutSnapshot) -> tuple[str, tuple[Fact, ...], Fact]:
    """What it is, the first of its facts, and whether it goes on."""
    return (
        "Batch",
        (Fact("ended", how_far(run)),),
        Fact("time left, about", duration(run.left_s)),
    )


def _of_stream(run: RolloutSnapshot, stream: StreamSnapshot) -> tuple[str, tuple[Fact, ...], Fact]:
    first = (
        Fact("taken", how_far(run)),
        Fact("in flight", count(stream.in_flight, "group")),
        Fact("queued", count(stream.in_queue, "group")),
        Fact("learner's version", versions_of(stream)),
        Fact("waits for", waits_for(stream)),
    )
    return "Stream", first, Fact("state", prose(stream.state), tone_of(stream))


def tone_of(stream: StreamSnapshot) -> Literal["plain", "warn", "bad"]:
    """Of a stream's state."""
    if stream.state == "failed":
        return "bad"
    return "warn" if stream.state == "paused" else "plain"


def _ends(run: RolloutSnapshot) -> Bars:
    """How rollouts ended, failures by their cause."""
    known = run.done + run.failed + run.cancelled + run.running
    total = run.total if run.stream is None else known
    waiting = [] if run.stream else [("not begun", max(0, total - run.ended - run.running), MUTED)]
    causes = [(f"failed: {short(cause)}", failed, FAILED) for cause, failed in run.failures]
    named = sum(failed for _, failed in run.failures[:MAX_CAUSES])
    rows = [
        ("done", run.done, DONE),
        ("running", run.running, RUNNING),
        *waiting,
        ("cancelled", run.cancelled, CANCELLED),
        *causes[:MAX_CAUSES],
    ]
    if run.failed > named:
        rows.append(("failed: other causes", run.failed - named, FAILED))
    bars = tuple(Bar(label, value, _of(value, total), colour) for label, value, colour in rows)
    so_far = "" if run.stream is None else " so far"
    title = f"Where the {count(total, 'rollout')}{so_far} are"
    return Bars(title, "rollouts", bars, float(total) or None)


def _of(value: int, total: int) -> str:
    return f"{value:,} ({value / total:.0%})" if total else f"{value:,}"


def _rewards(run: RolloutSnapshot) -> Bars:
    """A histogram: every bin holds its lower end, the last one both."""
    known = sum(number for _, _, number in run.rewards)
    bars = tuple(
        Bar(f"{_edge(low)} to {_edge(high)}", number, f"{number:,}", COLOURS[0])
        for low, high, number in run.rewards
    )
    mean = "" if run.mean_reward is None else f", {number(run.mean_reward, 3)} on average"
    which = count(known, "rollout")
    if run.stream is not None:  # of which only the last are kept apart
        which, mean = f"the last {which}", f"{mean} of all" if mean else ""
    note = f"{which} with a reward{mean}" if known else "no reward yet"
    return Bars("Rewards", "rollouts", bars, note=note)


def _edge(value: float) -> str:
    return number(value, 2)


def batch_bars(runs: tuple[RolloutSnapshot, ...], now_s: float) -> Bars:
    """How far each batch is."""
    bars = []
    for run in runs[-MAX_BATCHES:]:
        failed = f", {run.failed:,} failed" if run.failed and not run.stream else ""
        far = groups_of(run.stream) if run.stream else how_far(run)
        text = f"{far}{failed}, {going_on(run, now_s)}"
        colour = DONE if is_over(run) else RUNNING
        bars.append(Bar(short(run.name), share_of(run), text, colour))
    return Bars(
        "Rollouts that ended, by batch", "share", tuple(bars), 1.0,
        note="" if runs else "no batch yet",
    )  # fmt: skip


def _table(runs: tuple[RolloutSnapshot, ...], now_s: float) -> Table:
    rows = tuple(
        (
            short(run.name), short(run.agent), clock(run.started_s) if run.started_s else MISSING,
            MISSING if run.stream else f"{run.total:,}", f"{run.running:,}", f"{run.done:,}",
            f"{run.failed:,}", f"{run.cancelled:,}", number(run.mean_reward, 3),
            number(run.tokens_per_s), going_on(run, now_s).removesuffix(" left"),
            _causes(run),
        )
        for run in runs[: -MAX_BATCHES - 1 : -1]
    )  # fmt: skip
    left = max(0, len(runs) - MAX_BATCHES)
    return Table(
        "Batches, the newest first",
        ("batch", "agent", "began", "rollouts", "running", "done", "failed", "cancelled",
         "mean reward", "tokens/s", "time left", "causes of failures"),
        rows,
        numeric=(False, False, True, *(True,) * 8, False),
        empty="no batch yet",
        note=f"and {count(left, 'older batch')}" if left else "",
        key=0,
    )  # fmt: skip


def _causes(run: RolloutSnapshot) -> str:
    return prose(", ".join(f"{failed:,} × {cause}" for cause, failed in run.failures), 80)


def _words(runs: tuple[RolloutSnapshot, ...], shown: RolloutSnapshot | None, now_s: float) -> str:
    if shown is None:
        return "No batch of rollouts yet." if not runs else f"{how_many(runs)}."
    reward = "" if shown.mean_reward is None else f", mean reward {number(shown.mean_reward, 3)}"
    left = going_on(shown, now_s)
    left = "" if left == "ended" else f" {left.capitalize()}."
    ended = f"{shown.ended:,} of {count(shown.total, 'rollout')} ended"
    if shown.stream is not None:
        ended = f"{count(shown.ended, 'rollout')} ended, {how_far(shown)} taken"
    return (
        f"{how_many(runs)}. {short(shown.name)}: {ended}, {shown.running:,} running, "
        f"{shown.failed:,} failed{reward}.{left}"
    )
