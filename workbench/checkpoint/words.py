"""How refusals list many names in one short line."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

SHOWN = 3
"""How many are named; the others are counted."""


def listing(items: Iterable[str]) -> str:
    """The first few, and how many more there are."""
    found = list(items)
    more = len(found) - SHOWN
    return ", ".join(found[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def plural(count: int, noun: str) -> str:
    """``1 tensor``, ``2 tensors``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def dimensions(shape: Iterable[int]) -> str:
    """``2×3``; a scalar has none."""
    return "×".join(map(str, shape)) or "scalar"
