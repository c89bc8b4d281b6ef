"""A browser that is none, which asks as the panel's own script does."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_numbers = itertools.count(1)


class Clicks:
    """Asks, and says go when it is told that somebody listens.

    Args:
        send: gets the JSON of what is asked.
        read: the JSON of what the browser is told.
    """

    def __init__(self, send: Callable[[str], Any], read: Callable[[], str]) -> None:
        self._send = send
        self._read = read

    @property
    def told(self) -> dict[str, str]:
        found: dict[str, str] = json.loads(self._read())["told"]
        return found

    @property
    def logs(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._read())["logs"]
        return found

    def say(self, message: Any, ask_id: str = "") -> str:
        """One message; what is answered."""
        ask_id = ask_id or f"ask-{next(_numbers)}"
        self._send(json.dumps({ask_id: message}))
        return self.told[ask_id]

    def order(self, verb: str, replica_id: str = "", **more: Any) -> str:
        """A click on a button, confirmed where the panel asks back; what is answered last."""
        order_id = f"order-{next(_numbers)}"
        message = {"verb": verb, "replica_id": replica_id, "confirmed": True} | more
        answer = self.say(message, order_id)
        return self.go(order_id) if answer == "ready" else answer

    def go(self, order_id: str) -> str:
        return self.say({"go": order_id}, f"{order_id}-go")
