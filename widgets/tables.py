"""DataFrames as tables for people: headings with units, even decimals, a dash for absence. Pure."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np
import pandas as pd

from widgets.theme import MISSING

HEADINGS = {
    "in_flight": "in flight",
    "kv_cache_usage": "KV cache (%)",
    "peak_in_flight": "most in flight",
    "replica_id": "replica",
    "rollout_id": "rollout",
    "wall_s": "wall time (s)",
}
"""Where a column's name and the ending rules below do not read well."""

MINUS = "\N{MINUS SIGN}"
"""As wide as a digit, so that columns stay aligned."""

ENDINGS = (("_per_s", "/s"), ("_s", " (s)"), ("_bytes", " (bytes)"))
SHARES = re.compile(r"(_rate|_share|_usage)$")
"""Columns of shares in 0–1, written in percent."""


@dataclass(frozen=True, slots=True)
class Column:
    """A heading, and whether what stands under it is numbers."""

    heading: str
    is_number: bool


@dataclass(frozen=True, slots=True)
class Table:
    """Text by row and column; nothing is escaped yet."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]


def table_of(frame: pd.DataFrame) -> Table:
    """A frame's columns and rows in its order; the index is left out."""
    columns, texts = [], []
    for name, values in frame.convert_dtypes().items():
        kind = pd.api.types
        is_number = kind.is_numeric_dtype(values) and not kind.is_bool_dtype(values)
        columns.append(Column(heading(str(name)), is_number))
        texts.append(numbers(values, str(name)) if is_number else [text_of(v) for v in values])
    return Table(tuple(columns), tuple(zip(*texts, strict=True)))


def heading(name: str) -> str:
    """A column's name in words, with its unit."""
    if name in HEADINGS:
        return HEADINGS[name]
    name = name.removeprefix("num_")
    if SHARES.search(name):
        return f"{name.replace('_', ' ')} (%)"
    for ending, unit in ENDINGS:
        if name.endswith(ending):
            return name.removesuffix(ending).replace("_", " ") + unit
    return name.replace("_", " ")


def numbers(values: pd.Series, name: str = "") -> list[str]:
    """A column's numbers with the same decimals each, and a dash where one is missing."""
    found = values.to_numpy(dtype=np.float64, na_value=np.nan)
    if SHARES.search(name):
        return [number(value * 100, 1) for value in found]
    finite = np.abs(found[np.isfinite(found)])
    places = min(decimals(finite), 3) if name.endswith("_s") else decimals(finite)
    return [number(value, places) for value in found]


def decimals(sizes: np.ndarray) -> int:
    """How many decimals show three digits of the largest; none for whole numbers."""
    if not len(sizes) or (sizes == np.floor(sizes)).all():
        return 0
    return min(max(0, 2 - math.floor(math.log10(sizes.max()))), 6)


def number(value: float | None, places: int = 0) -> str:
    """``1,234.5``; a dash for None and NaN."""
    if value is None or math.isnan(value):
        return MISSING
    return f"{value:,.{places}f}".replace("-", MINUS)


def text_of(value: object) -> str:
    """A cell that is not a number; a dash for a missing or empty one."""
    if value is None or value is pd.NA or value is pd.NaT:
        return MISSING
    if isinstance(value, float) and math.isnan(value):
        return MISSING
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    return str(value) or MISSING
