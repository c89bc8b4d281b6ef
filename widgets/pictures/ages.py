"""How old groups of a stream are, those on their way and those that were taken. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from widgets.pictures.picture import Bar, Bars
from widgets.theme import COLOURS, MUTED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from workbench.metrics.streams import StreamSnapshot

MAX_VERSIONS = 8
"""That have bars of their own, the newest; older ones have one together."""
MAX_AGES = 12
IN_FLIGHT, QUEUED, TOO_OLD, TAKEN = COLOURS[5], COLOURS[0], COLOURS[1], COLOURS[2]


def version_bars(stream: StreamSnapshot) -> Bars:
    """Groups on their way by their oldest version, with the learner's and the oldest allowed."""
    allowed = None if stream.max_staleness is None else stream.version - stream.max_staleness
    known = {stream.version, *_of(stream.running), *_of(stream.queued)}
    if allowed is not None and allowed >= 0:
        known.add(allowed)
    shown = sorted(known, reverse=True)[:MAX_VERSIONS]
    bars: list[Bar] = []
    for version in shown:
        bars += _bars_of(stream, version, allowed)
    for word, pairs in (("in flight", stream.running), ("queued", stream.queued)):
        older = sum(groups for version, groups in pairs if version < shown[-1])
        if older:
            text = f"{older:,}: more than {stream.version - shown[-1]:,} behind"
            bars.append(Bar(f"older, {word}", float(older), text, TOO_OLD))
    note = "light: in flight, dark: queued"
    if allowed is not None:
        note += "; orange: older than the bound"
    return Bars("Groups on their way, by version", "groups", tuple(bars), note=note)


def _of(pairs: Iterable[tuple[int, int]]) -> list[int]:
    return [version for version, groups in pairs if groups]


def _bars_of(stream: StreamSnapshot, version: int, allowed: int | None) -> list[Bar]:
    """In flight and queued; one that says what the version is where there is neither."""
    too_old = allowed is not None and version < allowed
    mark = _mark(stream, version, allowed)
    kinds = (("in flight", stream.running, IN_FLIGHT), ("queued", stream.queued, QUEUED))
    counts = [(word, dict(pairs).get(version, 0), colour) for word, pairs, colour in kinds]
    found = [
        Bar(f"v{version:,}, {word}", float(groups), f"{groups:,}{mark}",
            TOO_OLD if too_old else colour)
        for word, groups, colour in counts
        if groups
    ]  # fmt: skip
    return found or [Bar(f"v{version:,}", 0.0, f"none{mark}", MUTED)]


def _mark(stream: StreamSnapshot, version: int, allowed: int | None) -> str:
    behind = stream.version - version
    if behind <= 0:
        return ": the learner's version"
    if allowed is not None and version < allowed:
        return f": {behind:,} behind, too old"
    return f": {behind:,} behind" + (", the bound" if version == allowed else "")


def age_bars(stream: StreamSnapshot) -> Bars:
    """A histogram of how old groups were when the learner took them."""
    ages, bound = dict(stream.ages), stream.max_staleness
    known = sum(ages.values())
    oldest = max([*ages, bound or 0])
    bars = []
    for age in range(min(oldest, MAX_AGES) + 1):
        is_last = age == MAX_AGES < oldest
        groups = sum(n for a, n in ages.items() if a == age or (is_last and a > age))
        share = f" ({groups / known:.0%})" if known else ""
        mark = ", the bound" if age == bound else ""
        colour = TAKEN if bound is None or age <= bound else TOO_OLD
        name = f"{age:,} or more" if is_last else f"{age:,}"
        bars.append(Bar(name, float(groups), f"{groups:,}{share}{mark}", colour))
    mean = sum(age * groups for age, groups in ages.items()) / known if known else 0.0
    note = f"versions behind the learner; {mean:,.2f} on average" if known else "none taken yet"
    return Bars("Staleness of groups when they were taken", "groups", tuple(bars), note=note)
