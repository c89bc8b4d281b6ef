"""Which part of the time somebody wants to see. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

LENGTH_S = 300.0
LONGEST_S = 86_400.0
"""A day, which is what a history keeps."""


@dataclass(frozen=True, slots=True)
class Window:
    """A span of time."""

    length_s: float = LENGTH_S
    end_s: float | None = None
    """Seconds since 1970; None where it follows the present."""


def window_of(asked: Mapping[str, Any]) -> Window:
    """What a browser asked for; the last five minutes where that makes no sense.

    Args:
        asked: ``{"length_s": …}`` to follow the present, or ``{"start_s": …, "end_s": …}``.
    """
    start_s, end_s = _number(asked.get("start_s")), _number(asked.get("end_s"))
    if start_s is not None and end_s is not None and start_s < end_s:
        return Window(min(end_s - start_s, LONGEST_S), end_s)
    length_s = _number(asked.get("length_s"))
    return Window(min(length_s, LONGEST_S)) if length_s and length_s > 0 else Window()


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) else None
