"""Rollouts to find, to compare and to open to their tokens, live in a cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import traitlets

from widgets.drawing import count
from widgets.live_view import LiveView
from widgets.pictures.asking import asked_of
from widgets.pictures.rollouts import browse
from widgets.pictures.trajectory import trajectory_picture
from workbench.decoding import decoder
from workbench.errors import ConfigError
from workbench.trajectory import Trajectory

if TYPE_CHECKING:
    from widgets.pictures.picture import Picture
    from workbench.decoding import Decode

PERIOD_S = 1.0


@runtime_checkable
class RolloutSource(Protocol):
    """A batch in progress, as :class:`workbench.facade.handle.Rollout` is one."""

    @property
    def done(self) -> bool:
        """Whether all have ended."""

    def trajectories(self) -> list[Trajectory]:
        """Those that have ended."""


class TrajectoryView(LiveView):
    """Rollouts as a table that can be searched, filtered and sorted, page by page.

    A click opens one to its turns, tool calls and tokens; from there its turns, its neighbours and
    the others of its group are a key away. Only what is seen is sent to the browser.

    Args:
        source: a ``Rollout``, which may still be running, a trajectory, or several.
        decode: token ids to text, such as a tokenizer's ``decode``; None for the source's own,
            where it has one, else for what :func:`workbench.decoding.decoder` knows. Without any,
            tokens are shown by their ids.

    Raises:
        ConfigError: the source has no trajectories.
    """

    _feed: _Ended
    asked = traitlets.Dict().tag(sync=True)
    """What is in the fields, text by name; see :func:`widgets.pictures.asking.asked_of`."""

    def __init__(
        self,
        source: RolloutSource | Trajectory | Sequence[Trajectory],
        *,
        decode: Decode | None = None,
    ) -> None:
        self._decode = decode or getattr(source, "decode", None)
        super().__init__(_Ended(source))
        self.observe(self._asked, "asked")

    def _picture(self) -> Picture:
        ended, asked = self._feed, asked_of(self.asked)
        if ended.is_one:  # from the only one there is no way back
            (row,) = ended.rows
            return replace(trajectory_picture(row, self._decoder(row), asked.turn), actions=())
        status = "" if ended.closed else "running"
        return browse(ended.rows, self.selected, asked, self._decoder, status=status)

    def _decoder(self, row: Trajectory) -> Decode | None:
        return self._decode or decoder(row.tokenizer)

    def __repr__(self) -> str:
        ended = self._feed
        what = repr(ended.rows[0]) if ended.is_one else count(len(ended.rows), "rollout")
        return f"TrajectoryView({what})"


class _Ended:
    """The rollouts of a source that ended, as a feed that grows while others run."""

    error = ""
    period_s = PERIOD_S

    def __init__(self, source: object) -> None:
        self.is_one = isinstance(source, Trajectory)
        self._source = source if isinstance(source, RolloutSource) else None
        self.closed = self._source is None
        self.rows: list[Trajectory] = []
        if self._source is not None:
            self.pull()
        elif isinstance(source, Trajectory):
            self.rows = [source]
        elif isinstance(source, Sequence) and all(isinstance(row, Trajectory) for row in source):
            self.rows = list(source)
        else:
            problem = f"{type(source).__name__} has no trajectories"
            raise ConfigError(
                "source", problem, allowed="a Rollout, a trajectory, a list of trajectories"
            )

    def pull(self) -> bool:
        """Look at what ended since; whether that is anything."""
        if self._source is None:
            return False
        is_over = self._source.done
        before, self.rows = self.rows, self._source.trajectories()
        self.closed = is_over
        # A source that keeps only the last ones may go on with as many as before.
        return len(self.rows) != len(before) or self.rows[-1:] != before[-1:]
