"""A picture that moves: the base of the widgets that a cell shows."""

from __future__ import annotations

import io
import logging
import threading
import time
import weakref
from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anywidget
import traitlets

from widgets.browser import esm
from widgets.pictures.picture import Picture
from widgets.pictures.text import clock, prose
from widgets.ticker import Pulled, Ticker
from widgets.windows import LENGTH_S, window_of
from workbench.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from widgets.figures import Still
    from widgets.windows import Window

log = logging.getLogger(__name__)

VIEW_TYPE = "application/vnd.jupyter.widget-view+json"
STILL_COLOURS = 64
"""Of the picture that a saved notebook keeps; a quarter of the bytes that it would take else."""


class LiveView(anywidget.AnyWidget):
    """Follows a feed on the feed's own thread, so that it moves while a cell is running.

    Nothing is drawn before it is displayed, nor while nobody sees it. It stays as it is when its
    pool has closed; :meth:`close` takes it away. What goes wrong is shown in the picture.

    Args:
        feed: what it follows.
        window_s: how far back it looks at first, in seconds.

    Raises:
        ConfigError: a length that is none.
    """

    _esm = esm()
    picture = traitlets.Unicode("").tag(sync=True)
    """JSON of what is shown; the whole of it each time."""
    window = traitlets.Dict().tag(sync=True)
    """See :func:`widgets.windows.window_of`."""
    selected = traitlets.Unicode("").tag(sync=True)
    """The row that was clicked; empty for none."""

    _unsubscribe: Callable[[], None] | None = None

    def __init__(self, feed: Pulled, *, window_s: float = LENGTH_S) -> None:
        if not isinstance(window_s, int | float) or not window_s > 0:
            raise ConfigError("window_s", f"{window_s!r}", allowed="seconds above 0")
        self._feed = feed
        self._latest = Picture(type(self).__name__)
        self._building = threading.Lock()
        self._sending = threading.RLock()
        super().__init__(window={"length_s": float(window_s)}, _view_count=0)
        self.observe(self._asked, ["window", "selected"])
        self.observe(self._seen, "_view_count")

    @abstractmethod
    def _picture(self) -> Picture:
        """What there is to see now. Never called twice at once."""

    @abstractmethod
    def __repr__(self) -> str: ...

    def snapshot(self) -> Still:
        """What there is to see now, as a picture that stands still."""
        from widgets.pictures.still import still

        self._feed.pull()
        return still(self._build()[0])

    # -- drawing ----------------------------------------------------------------------------

    @property
    def _span(self) -> Window:
        return window_of(self.window)

    def _build(self) -> tuple[Picture, str]:
        """The picture and its JSON."""
        with self._building:
            try:
                picture = self._picture()
                text = picture.to_json()
            except Exception as error:  # shown to whoever looks
                log.debug("a picture could not be made", exc_info=True)
                picture = self._with_error(error)
                text = picture.to_json()
            else:
                self._latest = picture
            return picture, text

    def _with_error(self, error: Exception) -> Picture:
        """The last picture, which may be old, and why there is no newer one."""
        problem = prose(f"{type(error).__name__}: {error}", 400)
        return replace(self._latest, error=problem, status=f"failed at {clock(time.time())}")

    def _draw(self) -> None:
        text = self._build()[1]
        with self._sending:
            self.picture = text

    def _follow(self) -> None:
        """Draw at once, then whenever there is news; all of it on the ticker's thread."""
        self._rest()
        self._unsubscribe = Ticker.of(self._feed).subscribe(weakly(self._draw))

    def _rest(self) -> None:
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None

    # -- the browser ------------------------------------------------------------------------

    def open(self) -> None:
        """Does nothing: what a browser needs is sent when this is first displayed."""

    @property
    def model_id(self) -> str:
        """Its name in browsers. Asking for it opens the way to them."""
        if self.comm is None:
            self._feed.pull()
            self._draw()
            super().open()
            self._follow()
        return str(self.comm.comm_id)

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """What a browser changed; a picture is sent before it or after it, not in between."""
        with self._sending:
            super().set_state(sync_data)

    def _asked(self, _change: object) -> None:
        if self._unsubscribe is not None:
            self._follow()

    def _seen(self, change: Any) -> None:
        """Rest while no browser shows it. Browsers count only what they show and take away."""
        if change.new:
            self._follow()
        else:
            self._rest()

    def close(self) -> None:
        """Stop, and take it away where it is displayed."""
        self._rest()
        super().close()

    # -- what a notebook keeps --------------------------------------------------------------

    def _repr_mimebundle_(self, **asked: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """The widget, a still for a notebook that is opened without it, and a line of text."""
        include, exclude = asked.get("include"), asked.get("exclude")
        wanted = set(include or (VIEW_TYPE, "image/png", "text/plain")) - set(exclude or ())
        data: dict[str, Any] = {}
        metadata: dict[str, Any] = {}
        if VIEW_TYPE in wanted:
            version = {"version_major": 2, "version_minor": 0}
            data[VIEW_TYPE] = {**version, "model_id": self.model_id}
        if "image/png" in wanted:
            picture = self._build()[0]
            data["image/png"] = _still_png(picture)
            metadata["image/png"] = {"alt": picture.words or picture.title}
        if "text/plain" in wanted:
            data["text/plain"] = repr(self)
        return data, metadata


def _still_png(picture: Picture) -> bytes:
    from PIL import Image

    from widgets.figures import png
    from widgets.pictures.still import DPI, still

    drawn = Image.open(io.BytesIO(png(still(picture).figure, DPI))).convert("RGB")
    small = io.BytesIO()
    drawn.quantize(STILL_COLOURS).save(small, "png", optimize=True)
    return small.getvalue()


def weakly(method: Callable[[], None]) -> Callable[[], None]:
    """Calls the method while its object lives, and does not keep it alive."""
    reference = weakref.WeakMethod(method)

    def call() -> None:
        alive = reference()
        if alive is not None:
            alive()

    return call
