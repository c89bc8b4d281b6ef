"""Any value as plain JSON data: what is kept as it is, and what becomes of the rest.

Pure: no I/O, no clock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date, datetime, time
from typing import Any

import pandas as pd

MAX_DEPTH = 100
"""Lists and mappings deeper than this are a text: readers of JSON have limits of their own."""


def plain(value: Any, depth: int = 0) -> Any:
    """The value as JSON has it.

    None, booleans, whole numbers, finite numbers and texts stay what they are; lists and tuples
    are lists, mappings are dicts with texts as keys. Arrays and scalars of numpy and its like are
    lists and numbers, times are ISO text, pandas' missing values are None, numbers that are not
    finite are as :func:`number` has them. Anything else is its ``str``.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return text(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return number(value)
    if depth < MAX_DEPTH:
        if isinstance(value, Mapping):
            return {_key(key): plain(item, depth + 1) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [plain(item, depth + 1) for item in value]
    return _foreign(value, depth)


def _key(key: Any) -> str:
    return text(key) if isinstance(key, str) else str(plain(key, MAX_DEPTH))


def _foreign(value: Any, depth: int) -> Any:
    if value is pd.NA or value is pd.NaT:
        return None
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if depth < MAX_DEPTH and hasattr(value, "tolist"):
        is_time = getattr(getattr(value, "dtype", None), "kind", "") in {"m", "M"}
        return plain((value.astype(str) if is_time else value).tolist(), depth + 1)
    try:
        return text(str(value))
    except Exception:  # noqa: BLE001 - a value that cannot be shown must not cost its record
        return f"<{type(value).__name__}>"


def number(value: float) -> float | str:
    """The number, or ``"NaN"``, ``"Infinity"``, ``"-Infinity"``, which JSON has no number for.

    ``float`` reads all of them.
    """
    if math.isfinite(value):
        return float(value)
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def text(value: str) -> str:
    r"""The text as Unicode: half a surrogate pair, which no file can hold, becomes U+FFFD.

    Models write such halves, as ``\ud800`` in the arguments of a tool call.
    """
    value = str.__str__(value)  # the text of an enum's member, and not its name
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return value
