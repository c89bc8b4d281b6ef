"""Rollout progress, live in a cell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from widgets.drawing import count
from widgets.pictures.progress import progress_picture
from widgets.pictures.streams import how_many
from widgets.pool_view import PoolView
from widgets.windows import LENGTH_S

if TYPE_CHECKING:
    from widgets.pictures.picture import Picture


class RolloutProgress(PoolView):
    """How far batches and streams of rollouts are, how they end, what they earn.

    A click opens another one.

    Args:
        source: a ``Workbench``, a ``LocalPool``, a ``Feed``, a ``Rollout``, a stream, or anything
            with a ``feed``.
        batch: name of the batch or stream to show at first; None for the one that was given, else
            for the last that is running.
    """

    def __init__(
        self, source: object, *, batch: str | None = None, window_s: float = LENGTH_S
    ) -> None:
        if batch is None and (hasattr(source, "trajectories") or hasattr(source, "get_batch")):
            batch = getattr(source, "name", None)
        self._batch = batch
        super().__init__(source, window_s=window_s)

    def _picture(self) -> Picture:
        return progress_picture(self._look(), self.selected or self._batch)

    def _facts(self) -> list[str]:
        runs = self._feed.latest.runs if self._feed.latest else ()
        ended = sum(run.ended for run in runs)
        if not runs:
            return [how_many(runs)]
        if any(run.stream is not None for run in runs):
            return [how_many(runs), f"{count(ended, 'rollout')} ended"]
        total = sum(run.total for run in runs)
        return [how_many(runs), f"{ended:,} of {count(total, 'rollout')} ended"]
