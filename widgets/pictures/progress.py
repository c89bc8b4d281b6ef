"""Batches of rollouts: how far they are, how they end, what they earn. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from widgets.drawing import count
from widgets.pictures.picture import Bar, Bars, Fact, Facts, Table
from widgets.pictures.text import clock, duration, measured, prose, short
from widgets.tables import number
from widgets.theme import COLOURS, MISSING, MUTED

if TYPE_CHECKING:
    from widgets.pictures.picture import Picture
    from widgets.pictures.view import FeedView
    from workbench.metrics.samples import RolloutSnapshot

TITLE = "Rollout progress"
SILENT_S = 10.0
"""After so long without a word from whoever plays a batch, nobody knows whether it still runs."""
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
    error = view.error
    if name is not None and shown is None:
        known = ", ".join(short(run.name) for run in runs) or "none"
        error = f"no batch {short(name)} here; known: {known}. {error}".rstrip()
    parts = (*detail, batch_bars(runs, now_s), _table(runs, now_s))
    return view.picture(TITLE, parts, _words(runs, shown, now_s), error=error, span_s=None)


def _shown(runs: tuple[RolloutSnapshot, ...], name: str | None) -> RolloutSnapshot | None:
    if name is not None:
        found = (run for run in reversed(runs) if name in {run.name, short(run.name)})
        return next(found, None)
    unfinished = [run for run in runs if run.ended < run.total]
    last = unfinished or runs
    return last[-1] if last else None


def _left(run: RolloutSnapshot, now_s: float) -> str:
    """How it goes on: ``ended``, ``53 s left``, or since when there is no news of it."""
    if run.ended >= run.total:
        return "ended"
    if run.heard_s and now_s - run.heard_s > SILENT_S:
        return f"no news since {clock(run.heard_s)}"
    return f"{duration(run.left_s)} left"


def _facts(run: RolloutSnapshot, now_s: float) -> Facts:
    failed = f"{run.failed:,}"
    left = _left(run, now_s)
    silent = left.startswith("no news")
    return Facts(
        f"Batch {short(run.name)} ({short(run.agent)})",
        (
            Fact("ended", f"{run.ended:,} of {run.total:,}"),
            Fact("running", MISSING if silent else f"{run.running:,}"),
            Fact("done", f"{run.done:,}"),
            Fact("failed", failed, "warn" if run.failed else "plain"),
            Fact("cancelled", f"{run.cancelled:,}"),
            Fact("mean reward", number(run.mean_reward, 3)),
            Fact("sampled, ended rollouts", measured(run.tokens_per_s, "tokens/s")),
            Fact("time left, about", left, "warn")
            if silent
            else Fact("time left, about", duration(run.left_s)),
            Fact("since its start", duration(run.wall_s)),
        ),
    )


def _ends(run: RolloutSnapshot) -> Bars:
    """How rollouts ended, failures by their cause."""
    waiting = max(0, run.total - run.ended - run.running)
    causes = [(f"failed: {short(cause)}", failed, FAILED) for cause, failed in run.failures]
    named = sum(failed for _, failed in run.failures[:MAX_CAUSES])
    rows = [
        ("done", run.done, DONE),
        ("running", run.running, RUNNING),
        ("not begun", waiting, MUTED),
        ("cancelled", run.cancelled, CANCELLED),
        *causes[:MAX_CAUSES],
    ]
    if run.failed > named:
        rows.append(("failed: other causes", run.failed - named, FAILED))
    bars = tuple(Bar(label, value, _of(value, run.total), colour) for label, value, colour in rows)
    return Bars(f"Where the {count(run.total, 'rollout')} are", "rollouts", bars, float(run.total))


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
    note = f"{count(known, 'rollout')} with a reward{mean}" if known else "no reward yet"
    return Bars("Rewards", "rollouts", bars, note=note)


def _edge(value: float) -> str:
    return number(value, 2)


def batch_bars(runs: tuple[RolloutSnapshot, ...], now_s: float) -> Bars:
    """How far each batch is."""
    bars = []
    for run in runs[-MAX_BATCHES:]:
        share = run.ended / run.total if run.total else None
        failed = f", {run.failed:,} failed" if run.failed else ""
        is_over = run.ended >= run.total
        text = f"{run.ended:,} of {run.total:,}{failed}, {_left(run, now_s)}"
        bars.append(Bar(short(run.name), share, text, DONE if is_over else RUNNING))
    return Bars(
        "Rollouts that ended, by batch", "share", tuple(bars), 1.0,
        note="" if runs else "no batch yet",
    )  # fmt: skip


def _table(runs: tuple[RolloutSnapshot, ...], now_s: float) -> Table:
    rows = tuple(
        (
            short(run.name), short(run.agent), clock(run.started_s) if run.started_s else MISSING,
            f"{run.total:,}", f"{run.running:,}", f"{run.done:,}", f"{run.failed:,}",
            f"{run.cancelled:,}", number(run.mean_reward, 3), number(run.tokens_per_s),
            _left(run, now_s).removesuffix(" left"),
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
        return "No batch of rollouts yet." if not runs else f"{count(len(runs), 'batch')}."
    reward = "" if shown.mean_reward is None else f", mean reward {number(shown.mean_reward, 3)}"
    left = _left(shown, now_s)
    left = "" if left == "ended" else f" {left.capitalize()}."
    return (
        f"{count(len(runs), 'batch')}. {short(shown.name)}: {shown.ended:,} of "
        f"{count(shown.total, 'rollout')} ended, {shown.running:,} running, {shown.failed:,} failed"
        f"{reward}.{left}"
    )
