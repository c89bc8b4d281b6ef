"""Whether batches and streams of rollouts still go on, and how far they are, in words. Pure.

A stream has no total: it goes on until its source ends. What is counted are its groups, versions
and batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from widgets.drawing import count
from widgets.pictures.text import clock, duration, prose, short
from widgets.theme import MISSING

if TYPE_CHECKING:
    from workbench.metrics.samples import RolloutSnapshot
    from workbench.metrics.streams import StreamSnapshot

SILENT_S = 10.0
"""After so long without a word from whoever plays a batch, nobody knows whether it still runs."""
ERROR_LENGTH = 300
WAIT_LENGTH = 120


def is_over(run: RolloutSnapshot) -> bool:
    """Whether nothing more will come of it."""
    if run.stream is not None:
        return run.stream.state in {"ended", "failed"}
    return run.ended >= run.total


def is_silent(run: RolloutSnapshot, now_s: float) -> bool:
    """Whether whoever plays it has not told of it for long, though it is not over."""
    return not is_over(run) and run.heard_s > 0 and now_s - run.heard_s > SILENT_S


def going_on(run: RolloutSnapshot, now_s: float) -> str:
    """``ended``, ``53 s left``, a stream's state, or since when there is no news of it."""
    if is_silent(run, now_s):
        return f"no news since {clock(run.heard_s)}"
    if run.stream is not None:
        return prose(run.stream.state)
    return "ended" if is_over(run) else f"{duration(run.left_s)} left"


def how_far(run: RolloutSnapshot) -> str:
    """``34 of 64``; of a stream ``120 groups in 15 batches``."""
    stream = run.stream
    if stream is None:
        return f"{run.ended:,} of {run.total:,}"
    return f"{groups_of(stream)} in {count(stream.batches, 'batch')}"


def groups_of(stream: StreamSnapshot) -> str:
    """``120 of 200 groups``; ``120 groups`` where nobody knows how many there will be."""
    if stream.tasks is None:
        return count(stream.consumed, "group")
    return f"{stream.consumed:,} of {count(stream.tasks, 'group')}"


def share_of(run: RolloutSnapshot) -> float | None:
    """How much of it is there; None where nobody knows how much it will be."""
    stream = run.stream
    part, whole = (run.ended, run.total) if stream is None else (stream.consumed, stream.tasks or 0)
    return min(1.0, part / whole) if whole else None


def versions_of(stream: StreamSnapshot) -> str:
    """``4``; ``4 (pool: 3)`` where the pool is not there yet."""
    if stream.pool_version == stream.version:
        return f"{stream.version:,}"
    return f"{stream.version:,} (pool: {stream.pool_version:,})"


def error_of(run: RolloutSnapshot | None) -> str:
    """Why a stream failed; empty for all others."""
    if run is None or run.stream is None or not (run.stream.error or run.stream.state == "failed"):
        return ""
    first, *_ = run.stream.error.strip().splitlines() or [""]  # without its traceback
    why = prose(first, ERROR_LENGTH) or "no reason was told"
    return f"stream {short(run.name)} failed: {why}"


def waits_for(stream: StreamSnapshot) -> str:
    """What a stream cannot go on without; a dash where it goes on."""
    return prose(stream.waits_for, WAIT_LENGTH) or MISSING


def how_many(runs: tuple[RolloutSnapshot, ...]) -> str:
    """``2 batches``, ``1 stream``, ``2 batches, 1 stream``."""
    streams = sum(run.stream is not None for run in runs)
    batches = len(runs) - streams
    told = [count(batches, "batch")] * bool(batches or not streams)
    return ", ".join([*told, *[count(streams, "stream")] * bool(streams)])
