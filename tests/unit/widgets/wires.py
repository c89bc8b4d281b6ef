"""A way to a browser that is none, and widgets displayed over it."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

from comm.base_comm import BaseComm

from tests.unit.widgets.feeds import WAIT_S

if TYPE_CHECKING:
    from widgets.live_view import LiveView


class Wire(BaseComm):
    """A way to a browser that keeps what was sent, and by which thread."""

    sent: list[tuple[str, dict[str, Any], str]]

    def publish_msg(self, msg_type: str, data: Any = None, *args: Any, **keys: Any) -> None:
        self.__dict__.setdefault("sent", [])
        self.sent.append((msg_type, data or {}, threading.current_thread().name))

    def pictures(self) -> list[tuple[dict[str, Any], str]]:
        """Pictures that were sent, each with the thread that sent it."""
        states = [(data.get("state", {}), thread) for _, data, thread in self.sent]
        return [(json.loads(s["picture"]), thread) for s, thread in states if "picture" in s]


def displayed(view: LiveView) -> dict[str, Any]:
    """As a cell does it."""
    return view._repr_mimebundle_(include=None, exclude=["image/png"])[0]


def shown(view: LiveView) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(view.picture)
    return found


class Until:
    """Waits for a picture of a kind; to be made before what brings it about."""

    def __init__(self, view: LiveView, wanted: Any) -> None:
        self._seen = threading.Event()
        self._wanted = wanted
        self._view = view
        view.observe(self._look, "picture")

    def _look(self, change: Any) -> None:
        if self._wanted(json.loads(change.new)):
            self._seen.set()

    def wait(self) -> dict[str, Any]:
        if self._wanted(shown(self._view)):
            self._seen.set()
        assert self._seen.wait(WAIT_S), shown(self._view)
        self._view.unobserve(self._look, "picture")
        return shown(self._view)
