"""Colours, line marks and words that every picture and table shares. Pure.

Okabe–Ito without its yellow, which vanishes on white, and its black, which is the ink's. Colour
never stands alone: replicas also differ in dash and marker, KV-cache use comes with a word.
"""

from __future__ import annotations

import functools
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DASHES: tuple[tuple[float, ...], ...] = (
    (),
    (5, 1.6),
    (1.4, 1.4),
    (5, 1.6, 1.4, 1.6),
    (9, 2),
)
"""On and off lengths in line widths; empty for a solid line."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

INK = "#1f2328"
MUTED = "#59636e"
GRID = "#d8dee4"
SHADE = "#e9edf1"
PAPER = "#ffffff"
"""Pictures are opaque, so that they can be read on a dark page."""

KV_HIGH = 0.90
KV_FULL = 0.98
"""Shares of the KV cache from which on it is called so; vLLM's own dashboards use the same."""

MISSING = "–"
"""What stands where there is no value. Never a zero."""


@dataclass(frozen=True, slots=True)
class ReplicaStyle:
    """How one replica's lines look."""

    colour: str
    dash: tuple[float, ...]
    marker: str


def replica_style(index: int) -> ReplicaStyle:
    """The style of the ``index``-th replica; the first 210 differ."""
    return ReplicaStyle(
        COLOURS[index % len(COLOURS)], DASHES[index % len(DASHES)], MARKERS[index % len(MARKERS)]
    )


def replica_styles(replica_ids: Iterable[str]) -> dict[str, ReplicaStyle]:
    """A style per replica, in natural order (``replica-2`` before ``replica-10``).

    Where all ids end in different numbers the number decides, so that a replica looks the same
    beside others as alone.
    """
    ordered = sorted(set(replica_ids), key=natural_key)
    numbers = [
        int(found[0]) for found in (re.findall(r"[0-9]+$", name) for name in ordered) if found
    ]
    if len(set(numbers)) != len(ordered):
        numbers = list(range(len(ordered)))
    return {name: replica_style(number) for name, number in zip(ordered, numbers, strict=True)}


@functools.lru_cache(maxsize=4096)
def natural_key(name: str) -> tuple[tuple[int, int, str], ...]:
    """A sort key under which numbers inside names count as numbers."""
    parts = [part for part in re.split(r"([0-9]+)", name) if part]
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts)


def kv_word(share: float | None) -> str:
    """``ok``, ``high`` or ``full`` for a share of the KV cache; ``no data`` for a missing one."""
    if share is None or math.isnan(share):
        return "no data"
    if share >= KV_FULL:
        return "full"
    return "high" if share >= KV_HIGH else "ok"
