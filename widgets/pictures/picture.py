"""A picture as plain data, which the browser draws live and matplotlib draws still.

Text is data: whoever draws it shows it and never interprets it. A missing value is None and is
drawn as an absence, never as zero.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from widgets.pictures.fields import Field, Step

Values = Sequence[float | None] | NDArray[np.floating[Any]]
"""Numbers as they come, NaN and None alike for what is missing."""

DIGITS = 5
"""Significant digits that a picture keeps of a value; whole numbers keep all of theirs."""


@dataclass(frozen=True, slots=True)
class Line:
    """One series over the part's times."""

    name: str
    values: Values
    """Kept as a tuple, rounded, with None for what is missing."""
    colour: str
    dash: tuple[float, ...] = ()
    marker: str = ""
    """One of :data:`widgets.theme.MARKERS`, at the line's end; empty for none."""

    def __post_init__(self) -> None:
        if not isinstance(self.values, Rounded):
            object.__setattr__(self, "values", rounded(self.values))


@dataclass(frozen=True, slots=True)
class Level:
    """A horizontal line with a word on it, such as ``full`` at 0.98."""

    value: float
    word: str


@dataclass(frozen=True, slots=True)
class Lines:
    """Series over time, or over numbers of something that happens again and again."""

    title: str
    unit: str
    """On the y axis; ``share`` is shown in percent."""
    times_s: Sequence[float] | NDArray[np.float64]
    """Seconds since 1970, rising; kept as a tuple, to 0.01 s. Numbers where there is ``along``."""
    lines: tuple[Line, ...]
    source: Literal["books", "engine", ""]
    """Who says so; empty where there are no two that could."""
    levels: tuple[Level, ...] = ()
    note: str = ""
    """Such as that only the busiest replicas are drawn."""
    along: str = ""
    """What ``times_s`` number instead, such as ``batch``; empty for time."""
    kind: Literal["lines"] = "lines"

    def __post_init__(self) -> None:
        times = np.round(np.asarray(self.times_s, dtype=np.float64), 2)
        object.__setattr__(self, "times_s", tuple(times.tolist()))


@dataclass(frozen=True, slots=True)
class Bar:
    """One row of a bar chart."""

    name: str
    value: float | None
    text: str
    """The value in words, with its unit; what the bar cannot say stands here too."""
    colour: str


@dataclass(frozen=True, slots=True)
class Bars:
    """Horizontal bars, one per row."""

    title: str
    unit: str
    bars: tuple[Bar, ...]
    limit: float | None = None
    """Where the axis ends; None for the longest bar."""
    levels: tuple[Level, ...] = ()
    note: str = ""
    kind: Literal["bars"] = "bars"


@dataclass(frozen=True, slots=True)
class Fact:
    """A figure that is read as text."""

    label: str
    text: str
    """With its unit; a dash where there is no value."""
    tone: Literal["plain", "warn", "bad"] = "plain"
    """Never alone: the text says it too."""


@dataclass(frozen=True, slots=True)
class Facts:
    """A row of figures."""

    title: str
    facts: tuple[Fact, ...]
    kind: Literal["facts"] = "facts"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text; numbers are formatted already and stand right."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[bool, ...] = ()
    """Per column; right-aligned in figures of one width."""
    empty: str = "nothing yet"
    note: str = ""
    key: int | None = None
    """Column whose value names the row when it is clicked; None where nothing happens."""
    keys: tuple[str, ...] = ()
    """What names each row instead, where that column may not tell rows apart."""
    sets: str = ""
    """Name of what a clicked row asks for, see :class:`Picture`; empty where it is chosen."""
    sorts: tuple[str, ...] = ()
    """By column: what a click on its head asks of the field ``sort``; empty for nothing."""
    order: tuple[int, Literal["ascending", "descending"]] | None = None
    """The column by which rows are sorted."""
    wraps: bool = False
    """Whether cells keep their lines and show all of their text."""
    kind: Literal["table"] = "table"


@dataclass(frozen=True, slots=True)
class Link:
    """How much went from ``left[source]`` to ``right[target]``."""

    source: int
    target: int
    value: float


@dataclass(frozen=True, slots=True)
class Flow:
    """What goes from where to where, as bands between two columns."""

    title: str
    unit: str
    left: tuple[str, ...]
    right: tuple[str, ...]
    links: tuple[Link, ...]
    colours: tuple[str, ...] = ()
    """Of ``right``."""
    note: str = ""
    kind: Literal["flow"] = "flow"


@dataclass(frozen=True, slots=True)
class Token:
    """A token of a trajectory."""

    text: str
    mask: int
    """1 where the policy sampled it."""
    hint: str = ""
    """Id, log-probability, version, shown on demand."""
    shade: float | None = None
    """0–1: how unlikely it was; None for tokens that were not sampled."""
    mark: str = ""
    """Stands in front of it: from here on something is different, such as the policy's version."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """A sequence of tokens, sampled ones marked."""

    title: str
    tokens: tuple[Token, ...]
    note: str = ""
    kind: Literal["tokens"] = "tokens"


Part = Lines | Bars | Facts | Table | Flow | Tokens


@dataclass(frozen=True, slots=True)
class Picture:
    """What one panel shows at one moment."""

    title: str
    parts: tuple[Part, ...] = ()
    status: str = ""
    """Such as ``live``, ``closed``, ``no data since 12:03:04``."""
    error: str = ""
    """Why it cannot show what it should; shown above everything else."""
    span_s: tuple[float, float] | None = None
    """The time that is shown, where there is one; seconds since 1970, to 0.01 s."""
    words: str = ""
    """What can be seen, in a sentence or two: for those who cannot see it."""
    actions: tuple[str, ...] = ()
    """Names of what can be asked for, such as ``back``."""
    fields: tuple[Field, ...] = ()
    """What can be searched, filtered and turned. What is in them is ``asked``, text by name."""
    steps: tuple[Step, ...] = ()
    """Ways on from here."""

    def __post_init__(self) -> None:
        if self.span_s is not None:
            start_s, end_s = self.span_s
            object.__setattr__(self, "span_s", (round(start_s, 2), round(end_s, 2)))

    def to_json(self) -> str:
        """Compact, without NaN; floats to five significant digits, times to 0.01 s.

        Charts have null for their times where these are those of the chart before.
        """
        members = _members(self) | {"parts": _without_repeated_times(self.parts)}
        return json.dumps(
            members, default=_members, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        )


class Rounded(tuple[float | None, ...]):
    """Values that are rounded already."""

    __slots__ = ()


def rounded(values: Values) -> Rounded:
    """Values to five significant digits, None where there is none."""
    return rounded_each(np.asarray(values, dtype=np.float64)[None])[0]


def rounded_each(rows: NDArray[np.floating[Any]]) -> list[Rounded]:
    """:func:`rounded` of each row; all at once, for speed."""
    numbers = rows.astype(np.float64)
    is_known = np.isfinite(numbers)
    numbers[~is_known] = 0.0
    sizes = np.abs(numbers)
    orders = np.floor(np.log10(sizes, where=sizes > 0, out=np.zeros_like(sizes)))
    scales = 10.0 ** np.minimum(np.maximum(DIGITS - 1 - orders, 0), 15)
    found = np.rint(numbers * scales) / scales
    whole = ((found == np.floor(found)) & (sizes < 2**53)).all(axis=1)
    return [
        _with_gaps(row.astype(np.int64) if is_whole else row, known)  # integers are shorter
        for row, is_whole, known in zip(found, whole.tolist(), is_known, strict=True)
    ]


def _with_gaps(values: NDArray[Any], is_known: NDArray[np.bool_]) -> Rounded:
    if is_known.all():
        return Rounded(values.tolist())
    pairs = zip(values.tolist(), is_known.tolist(), strict=True)
    return Rounded(value if known else None for value, known in pairs)


def _without_repeated_times(parts: tuple[Part, ...]) -> list[Any]:
    found: list[Any] = []
    known: object = None
    for part in parts:
        if isinstance(part, Lines):
            repeated = {"times_s": None} if part.times_s == known else {}
            known = part.times_s
            found.append(_members(part) | repeated)
        else:
            found.append(part)
    return found


def _members(part: Any) -> dict[str, Any]:
    """A part's fields by name, for JSON."""
    members = ((name, getattr(part, name)) for name in part.__slots__)
    return {name: _plain(value) if isinstance(value, float) else value for name, value in members}


def _plain(value: float) -> float | None:
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
