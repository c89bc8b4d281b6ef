"""Lines and bars by replica, with a rule for more of them than a picture can show. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from widgets.drawing import count
from widgets.pictures.picture import Bar, Bars, Level, Line, Lines, rounded_each
from widgets.pictures.text import short
from widgets.theme import INK, MUTED, natural_key
from workbench.metrics.columns import POOL_COLUMNS, REPLICA_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from widgets.pictures.view import FeedView

MAX_LINES = 8
"""Replicas that a chart draws one by one; of more it draws those that stand out."""
STAND_OUT = 6
MAX_BARS = 24
"""Replicas that a bar chart has rows for."""

COLUMNS = {column.name: column for column in REPLICA_COLUMNS}
TOTALS = {column.name: column for column in POOL_COLUMNS}


@dataclass(frozen=True, slots=True)
class Shown:
    """Which replicas a picture's charts draw."""

    places: tuple[int, ...]
    """In the block's replicas; in natural order."""
    note: str
    """Why it is these; empty where it is all."""
    with_spread: bool
    """Whether the others are drawn together: their highest, median and lowest."""


def choose(view: FeedView) -> Shown:
    """The replicas that somebody selected, all where they are few, or those that stand out.

    A replica stands out by how far its requests in flight are from the median, over the last fifth
    of the window, so that it does not change with every moment.
    """
    everyone = _present(view)
    ids = view.block.replica_ids
    selected = [place for place in everyone if ids[place] in view.selected][:MAX_LINES]
    of = count(len(everyone), "replica")
    if selected:
        return Shown(tuple(selected), f"selected: {len(selected)} of {of}", with_spread=False)
    if len(everyone) <= MAX_LINES:
        return Shown(tuple(everyone), "", with_spread=False)
    distances = _distances(view)
    furthest = sorted(everyone, key=lambda place: -distances[place])[:STAND_OUT]
    note = (
        f"{STAND_OUT} of {of}, furthest from the median in flight; grey: lowest to highest of all"
    )
    return Shown(tuple(sorted(furthest)), note, with_spread=True)


def _present(view: FeedView) -> list[int]:
    """Places in the block of the replicas that there are, or that had a value in the window.

    A block lists replicas in natural order.
    """
    are = {replica.status.replica_id for replica in view.replicas}
    ids = view.block.replica_ids
    gone = [place for place, replica_id in enumerate(ids) if replica_id not in are]
    had_value: Any = np.isfinite(view.block.replicas[:, gone]).any(axis=(0, 2))
    without = {place for place, had in zip(gone, had_value, strict=True) if not had}
    return [place for place in range(len(ids)) if place not in without]


def _distances(view: FeedView) -> NDArray[np.float64]:
    """How far each replica's requests in flight are from the median; 0 where unknown."""
    values = view.block.replica("in_flight")
    late = values[-max(1, len(values) // 5) :].astype(np.float64)
    known = np.isfinite(late)
    sums = np.where(known, late, 0.0).sum(axis=0)
    means = sums / np.maximum(known.sum(axis=0), 1)
    is_known = known.any(axis=0)
    middle = float(np.median(means[is_known])) if is_known.any() else 0.0
    distances: NDArray[np.float64] = np.where(is_known, np.abs(means - middle), 0.0)
    return distances


def replica_lines(
    view: FeedView,
    shown: Shown,
    column: str,
    *,
    title: str = "",
    levels: tuple[Level, ...] = (),
) -> Lines:
    """One of :data:`workbench.metrics.columns.REPLICA_COLUMNS` over time, a line per replica."""
    about, values = COLUMNS[column], view.block.replica(column)
    ids = view.block.replica_ids
    styles = [view.styles[ids[place]] for place in shown.places]
    drawn = rounded_each(values[:, shown.places].T)
    lines = [
        Line(short(ids[place]), one, style.colour, style.dash, style.marker)
        for place, one, style in zip(shown.places, drawn, styles, strict=True)
    ]
    return Lines(
        title=title or _title(about.label),
        unit=about.unit,
        times_s=view.block.times_s,
        lines=(*(_spread(values) if shown.with_spread else ()), *lines),
        source=about.source,
        levels=levels,
        note=shown.note,
    )


def _spread(values: NDArray[np.float32]) -> tuple[Line, Line, Line]:
    """Highest, median and lowest of all replicas."""
    ordered = np.sort(values, axis=1)  # NaN goes to the end
    rows, last = np.arange(len(ordered)), np.full(len(ordered), ordered.shape[1] - 1)
    gaps = np.flatnonzero(~np.isfinite(ordered[:, -1]))
    last[gaps] = np.maximum(np.isfinite(ordered[gaps]).sum(axis=1) - 1, 0)
    middle = (ordered[rows, last // 2] + ordered[rows, (last + 1) // 2]) / 2
    spread = rounded_each(np.array([ordered[rows, last], middle, ordered[:, 0]]))
    return (
        Line("highest of all", spread[0], MUTED, (1.4, 1.4)),
        Line("median of all", spread[1], INK, (5, 1.6)),
        Line("lowest of all", spread[2], MUTED, (1.4, 1.4)),
    )


def total_lines(view: FeedView, column: str, colour: str, *, title: str = "") -> Lines:
    """One of :data:`workbench.metrics.columns.POOL_COLUMNS` over time."""
    about = TOTALS[column]
    line = Line("whole pool", view.block.total(column), colour)
    return Lines(
        title=title or _title(about.label),
        unit=about.unit,
        times_s=view.block.times_s,
        lines=(line,),
        source=about.source,
    )


def _title(label: str) -> str:
    return label[:1].upper() + label[1:]


@dataclass(frozen=True, slots=True)
class Amount:
    """What a replica's bar shows."""

    value: float | None
    text: str


def replica_bars(
    view: FeedView,
    amounts: Mapping[str, Amount],
    *,
    title: str,
    unit: str,
    limit: float | None = None,
    levels: tuple[Level, ...] = (),
) -> Bars:
    """A bar per replica, in natural order; of many replicas those with the most."""
    ids, note = sorted(amounts, key=natural_key), ""
    if len(ids) > MAX_BARS:
        values = {replica_id: amounts[replica_id].value for replica_id in ids}
        known = {replica_id: value for replica_id, value in values.items() if value is not None}
        most = sorted(known, key=lambda replica_id: -known[replica_id])[:MAX_BARS]
        note = f"the {len(most)} highest of {count(len(ids), 'replica')}"
        if len(known) < len(ids):
            note += f"; {len(ids) - len(known):,} without data"
        ids = sorted(most, key=natural_key)
    bars = tuple(
        Bar(
            short(replica_id),
            amounts[replica_id].value,
            amounts[replica_id].text,
            view.styles[replica_id].colour,
        )
        for replica_id in ids
    )
    return Bars(title, unit, bars, limit, levels, note)
