"""Text from data, fit to be shown, and numbers that keep their width. Pure.

Whatever comes from a model, a tool or a user is shown as the characters that it is: what would
move, hide or turn other text around gets a visible name.
"""

from __future__ import annotations

import math
import time
import unicodedata

from widgets.tables import number
from widgets.theme import MISSING

NAME_LENGTH = 28
"""Characters of a name that a picture has room for."""
PROSE_LENGTH = 160
"""Characters of an error, of arguments or of a result in a table."""

HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories that have no shape of their own."""
JOINERS = "\u200c\u200d"
"""They have none either, but scripts and emoji need them."""


def short(text: str, limit: int = NAME_LENGTH) -> str:
    """A name in one line; where it is too long the middle is left out, since ends tell apart."""
    if len(text) > limit:
        tail = limit // 2
        text = f"{text[: limit - tail - 1]}…{text[-tail:]}"
    return visible(text)


def prose(text: str, limit: int = PROSE_LENGTH) -> str:
    """A text in one line, its end left out where it is too long."""
    if len(text) > limit:
        text = f"{text[: limit - 1]}…"
    return visible(text)


def visible(text: str) -> str:
    """The text with a visible name for each character that has no shape."""
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable() or unicodedata.category(character) not in HIDDEN
        else _named(character)
        for character in text
    )


def _named(character: str) -> str:
    code = ord(character)
    if character in JOINERS:
        return character
    if code < 0x20:
        return chr(0x2400 + code)  # the control pictures: ␊, ␛, …
    return "␡" if code == 0x7F else f"[U+{code:04X}]"


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
