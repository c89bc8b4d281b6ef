"""Numbers and times in words that keep their width, and text from data, fit to be shown. Pure."""

from __future__ import annotations

import math
import time

from widgets.tables import number
from widgets.theme import MISSING
from workbench.showing.text import NAME_LENGTH, counted, passage, prose, short, visible

__all__ = [
    "NAME_LENGTH",
    "clock",
    "counted",
    "day",
    "duration",
    "is_missing",
    "measured",
    "passage",
    "percent",
    "prose",
    "short",
    "stretch",
    "visible",
]


def is_missing(value: float | None) -> bool:
    """Whether there is no value."""
    return value is None or math.isnan(value)


def percent(share: float | None) -> str:
    """A share 0–1: ``97.6%``."""
    return MISSING if share is None or math.isnan(share) else f"{share:.1%}"


def measured(value: float | None, unit: str, places: int = 0) -> str:
    """A value with its unit, ``1,234 tokens/s``; a dash alone where there is none."""
    return MISSING if is_missing(value) else f"{number(value, places)} {unit}"


def duration(seconds_s: float | None) -> str:
    """``42 s``, ``4 min 10 s``, ``1 h 05 min``."""
    if seconds_s is None or not math.isfinite(seconds_s):
        return MISSING
    whole = max(0, round(seconds_s))
    if whole < 60:
        return f"{whole} s"
    minutes, left = divmod(whole, 60)
    return (
        f"{minutes} min {left:02d} s"
        if minutes < 60
        else f"{minutes // 60} h {minutes % 60:02d} min"
    )


def stretch(seconds_s: float) -> str:
    """A span that somebody chose: ``5 min``."""
    return duration(seconds_s).removesuffix(" 00 s")


def clock(time_s: float) -> str:
    """The time of day, here: ``12:03:04``."""
    return time.strftime("%H:%M:%S", time.localtime(time_s))


def day(time_s: float) -> str:
    """The day and the time, here: ``2025-11-29 12:03:04``."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_s))
