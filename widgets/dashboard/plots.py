"""From a pool's figures to the pictures of a dashboard, each by its name.

These ask the pool, so they run in threads. A picture that cannot be made shows why, over the last
one that could.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING

from widgets.dashboard.fields import KINDS, ORDERS, PER_PAGE
from widgets.dashboard.gallery import KEPT, Built, Place
from widgets.dashboard.pages import PLOTS
from widgets.dashboard.tables import EventLog, RolloutList, SessionList, kinds_of
from widgets.pictures.cache import cache_picture
from widgets.pictures.events import events_picture
from widgets.pictures.flows import Flows
from widgets.pictures.load import load_picture
from widgets.pictures.overview import overview_picture
from widgets.pictures.picture import Picture, Table
from widgets.pictures.progress import progress_picture
from widgets.pictures.replicas import lives_picture, replicas_picture
from widgets.pictures.rollouts import browse, chosen
from widgets.pictures.sessions import sessions_picture
from widgets.pictures.staleness import staleness_picture
from widgets.pictures.stickiness import stickiness_picture
from widgets.pictures.text import prose
from widgets.pictures.view import look

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from widgets.dashboard.decoding import Decoder
    from widgets.dashboard.gallery import Request
    from widgets.pictures.view import FeedView
    from workbench.decoding import Decode
    from workbench.metrics.feed import Feed
    from workbench.trajectory import Trajectory

OF_THE_VIEW: Mapping[str, Callable[[FeedView], Picture]] = {
    "overview": overview_picture,
    "load": load_picture,
    "replicas": replicas_picture,
    "lives": lives_picture,
    "stickiness": stickiness_picture,
    "cache": cache_picture,
}
"""Pictures that need nothing else."""


class Painter:
    """Makes the pictures of one pool.

    Args:
        feed: the pool's figures.
        decoder: of its tokens.
        now: seconds since 1970.
        clock: seconds, rising.
        more: further pictures by name, which need nothing but the view.
    """

    def __init__(
        self,
        feed: Feed,
        decoder: Decoder,
        now: Callable[[], float],
        clock: Callable[[], float],
        more: Mapping[str, Callable[[FeedView], Picture]] | None = None,
    ) -> None:
        self.feed = feed
        self._of_the_view = {**OF_THE_VIEW, **(more or {})}
        self._decoder = decoder
        self._now = now
        self._flows = Flows()
        self.sessions = SessionList(feed, clock)
        self.events = EventLog(feed)
        self.rollouts = RolloutList(feed, clock)
        self._good: OrderedDict[Request, tuple[Picture, Place]] = OrderedDict()
        self._lock = threading.Lock()

    def hear(self) -> None:
        """Count what the latest sample says; for the ticker."""
        if self.feed.latest is not None:
            with self._lock:
                self._flows.add(self.feed.latest)

    def __call__(self, request: Request) -> Built:
        """The picture that was asked for; never raises."""
        try:
            picture, place = self._paint(request)
            built = Built(picture.to_json(), place)
        except Exception as error:  # noqa: BLE001 one picture that fails must not end the page
            problem = prose(f"{type(error).__name__}: {error}", 600)
            with self._lock:
                picture, place = self._good.get(request, (self._blank(request), Place()))
            return Built(replace(picture, error=problem).to_json(), place)
        self._keep(request, picture, place)
        return built

    def _blank(self, request: Request) -> Picture:
        return Picture(PLOTS.get(request.plot, request.plot.capitalize()))

    def _keep(self, request: Request, picture: Picture, place: Place) -> None:
        with self._lock:
            self._good[request] = picture, place
            self._good.move_to_end(request)
            while len(self._good) > KEPT:
                self._good.popitem(last=False)

    def _paint(self, request: Request) -> tuple[Picture, Place]:
        view = self._view(request)
        if request.plot in self._of_the_view:
            return self._of_the_view[request.plot](view), Place()
        if request.plot == "progress":
            return progress_picture(view, request.selected or None), Place()
        if request.plot == "staleness":
            return staleness_picture(view, request.selected or None), Place()
        if request.plot == "rollouts":
            return self._rollouts(view, request), Place()
        wishes = dict(request.wishes)
        if request.plot == "events":
            kinds = kinds_of(wishes["kinds"])
            picture = events_picture(view, self.events.rows(kinds), kinds)
            return _titled(
                picture, f"{KINDS[wishes['kinds']]}, the newest first".capitalize()
            ), Place()
        return self._sessions(view, wishes)

    def _view(self, request: Request) -> FeedView:
        with self._lock:
            recent = self._flows.activity()
        window = request.window
        return look(
            self.feed,
            now_s=self._now(),
            span_s=window.length_s,
            end_s=window.end_s,
            recent=recent,
        )

    def _rollouts(self, view: FeedView, request: Request) -> Picture:
        named = self.rollouts.with_batches()
        rows = [row for _, row in named]
        batches = {id(row): batch for batch, row in named}

        def batch_of(row: Trajectory) -> str:
            return batches[id(row)]

        selected = request.selected
        is_gone = bool(selected) and chosen(rows, selected, batch_of) is None
        if is_gone:
            with self._lock:
                before = self._good.get(request)
            if before is not None:
                return before[0]  # somebody is reading it; that it made room does not matter
        model = view.latest.pool.model if view.latest else ""

        def decoder_of(row: Trajectory) -> Decode | None:
            return self._decoder.of(row.tokenizer or model)

        error = f"no rollout {selected} here any more" if is_gone else view.error
        return browse(
            rows, selected, request.asked, decoder_of,
            status=view.status, error=error, batch_of=batch_of,
        )  # fmt: skip

    def _sessions(self, view: FeedView, wishes: Mapping[str, str]) -> tuple[Picture, Place]:
        find, order = wishes["find"], wishes["order"]
        page = self.sessions.page(find, order, int(wishes["page"]), PER_PAGE)
        picture = sessions_picture(view, page.rows, page.start, page.total)
        having = f" with “{prose(find)}” in their id" if find else ""
        first, last = page.start + 1, page.start + len(page.rows)
        text = f"{first:,} to {last:,} of {page.total:,}" if len(page.rows) else "none"
        place = Place(text, max(0, page.total - 1) // PER_PAGE)
        return _titled(picture, f"Sessions{having} by {ORDERS[order]}"), place


def _titled(picture: Picture, title: str) -> Picture:
    """The picture with another title over its table."""
    parts = (
        replace(part, title=title) if isinstance(part, Table) else part for part in picture.parts
    )
    return replace(picture, parts=tuple(parts))
