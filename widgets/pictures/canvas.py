"""A sheet to draw on in inches from its upper left corner, with text that every font has. Pure."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from matplotlib import font_manager
from matplotlib.patches import PathPatch, Rectangle

from widgets import theme
from widgets.drawing import FONT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.path import Path

MONO = "DejaVu Sans Mono"
"""Ships with matplotlib too; every character is 0.602 of its size wide."""
FONT_SIZE = 8.0
LINE_IN = 0.165
"""From one line of text to the next."""
CHARACTER_IN = 0.065
"""Of :data:`FONT` at :data:`FONT_SIZE`, on average."""
TONES = {"plain": theme.INK, "warn": "#8a5a00", "bad": "#b3261e"}
LINE_END = str.maketrans("␊", "↵")
"""The fonts lack the first."""
UNKNOWN = "▯"
"""For characters that the font lacks."""


class Canvas:
    """A figure's whole sheet; y grows downwards."""

    def __init__(self, figure: Figure) -> None:
        self.figure = figure
        self.width, self.height = (float(size) for size in figure.get_size_inches())
        self.axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        self.axes.set(xlim=(0, self.width), ylim=(self.height, 0))
        self.axes.set_axis_off()

    def write(self, x: float, y: float, text: str, **options: Any) -> None:
        """Put text at ``(x, y)``, as it is: nothing in it is notation."""
        look = {"color": theme.INK, "fontsize": FONT_SIZE, "fontfamily": FONT, "va": "center"}
        look |= options
        shown = drawable(text, str(look["fontfamily"]))
        self.axes.text(x, y, shown, parse_math=False, **look)  # type: ignore[arg-type]

    def box(self, x: float, y: float, width: float, height: float, **options: Any) -> None:
        """Fill a rectangle whose upper left corner is ``(x, y)``."""
        self.axes.add_patch(Rectangle((x, y), width, height, **({"linewidth": 0} | options)))

    def shape(self, path: Path, **options: Any) -> None:
        """Fill a path."""
        self.axes.add_patch(PathPatch(path, **({"linewidth": 0} | options)))

    def heading(self, x: float, y: float, width: float, title: str, aside: str = "") -> None:
        """A part's title, and something small at the right of it."""
        room = int(width / (CHARACTER_IN * 1.18)) - len(aside)
        self.write(x, y + LINE_IN / 2, cut(title, room), fontsize=9, fontweight="bold")
        self.write(x + width, y + LINE_IN / 2, aside, color=theme.MUTED, ha="right")

    def note(self, x: float, y: float, width: float, text: str) -> None:
        """A part's note, in one small line."""
        self.write(
            x, y, cut(text, int(width / CHARACTER_IN / 0.9)), color=theme.MUTED, fontsize=7.2
        )

    def place(self, x: float, y: float, width: float, height: float) -> Axes:
        """Axes whose upper left corner is ``(x, y)``."""
        bottom = 1 - (y + height) / self.height
        size = (width / self.width, height / self.height)
        return self.figure.add_axes((x / self.width, bottom, *size))


def cut(text: str, length: int) -> str:
    """At most so many characters."""
    return text if len(text) <= length else f"{text[: max(0, length - 1)]}…"


def drawable(text: str, family: str = FONT) -> str:
    """The text with a sign for each character that the font does not have."""
    known = _characters(family)
    return "".join(sign if ord(sign) in known else UNKNOWN for sign in text.translate(LINE_END))


@functools.cache
def _characters(family: str) -> frozenset[int]:
    return frozenset(font_manager.get_font(font_manager.findfont(family)).get_charmap())
