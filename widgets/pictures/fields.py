"""What a reader can fill in, and the ways on that a picture offers. Plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Option:
    """One of a choice."""

    value: str
    text: str


@dataclass(frozen=True, slots=True)
class Field:
    """Something to fill in."""

    name: str
    kind: Literal["search", "choice", "number", "pages"]
    label: str
    options: tuple[Option, ...] = ()
    """The first is where a choice begins."""
    text: str = ""
    """Beside ``pages``: what is on this one."""
    last: int = 0
    """Of ``pages``: the last one; the first is 0."""


@dataclass(frozen=True, slots=True)
class Step:
    """A way on, as a button and perhaps a key. Without either member it leads nowhere just now."""

    label: str
    selected: str | None = None
    """What is chosen then; None leaves that as it is."""
    asked: tuple[tuple[str, str], ...] = ()
    """What is in fields then, by name; others stay as they are."""
    key: str = ""
    """As browsers call it, such as ``ArrowLeft``, after ``Shift+`` where that is held."""
