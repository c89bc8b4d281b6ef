"""How old what a learner trains on is, live in a cell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from widgets.drawing import count
from widgets.pictures.staleness import staleness_picture
from widgets.pictures.streams import how_far
from widgets.pictures.text import short
from widgets.pool_view import PoolView
from widgets.windows import LENGTH_S

if TYPE_CHECKING:
    from widgets.pictures.picture import Picture


class StalenessView(PoolView):
    """Versions on their way, ages when taken, what was dropped, publishes, and the reward's course.

    A click opens another stream.

    Args:
        source: a ``Workbench``, a ``LocalPool``, a ``Feed``, a stream, or anything with a
            ``feed``.
        stream: name of the stream to show at first; None for the one that was given, else for the
            last that goes on.
    """

    def __init__(self, source: object, *, stream: str | None = None) -> None:
        if stream is None and hasattr(source, "get_batch"):
            stream = getattr(source, "name", None)
        self._stream = stream
        super().__init__(source, window_s=LENGTH_S)

    def _picture(self) -> Picture:
        return staleness_picture(self._look(), self.selected or self._stream)

    def _facts(self) -> list[str]:
        runs = [run for run in (self._feed.latest.runs if self._feed.latest else ()) if run.stream]
        if len(runs) != 1:
            return [count(len(runs), "stream")]
        return [f"{short(runs[0].name)}: {how_far(runs[0])}"]
