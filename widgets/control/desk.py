"""Where orders are carried out: on threads, one at a time per replica, each once."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from widgets.control.orders import carry_out, touches
from widgets.pictures.text import visible
from workbench.errors import WorkbenchError

if TYPE_CHECKING:
    from collections.abc import Callable

    from widgets.control.orders import Order
    from widgets.sources import PoolVerbs

log = logging.getLogger(__name__)

KEPT = 8
"""Orders that are remembered after they ended."""
LONGEST_ERROR = 2000
"""Characters; a replica that does not start brings its last log lines along."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An order, and how far it is."""

    order_id: str
    """The browser's name for it."""
    order: Order
    touched: frozenset[str]
    began_s: float
    """Seconds since 1970."""
    ended_s: float | None = None
    """None while it runs."""
    text: str = ""
    """What came of it."""
    has_failed: bool = False

    @property
    def runs(self) -> bool:
        """Whether it is under way."""
        return self.ended_s is None


_desks: weakref.WeakValueDictionary[int, Desk] = weakref.WeakValueDictionary()
"""By the verbs' identity, which a desk keeps from being used again."""
_lock = threading.Lock()


class Desk:
    """Carries out orders. Use :meth:`of`, so that all who manage a pool share one.

    Args:
        verbs: of the pool.
        now: seconds since 1970.
    """

    def __init__(self, verbs: PoolVerbs, now: Callable[[], float] = time.time) -> None:
        self._verbs = verbs
        self._now = now
        self._entries: OrderedDict[str, Entry] = OrderedDict()
        self._changed: list[Callable[[], None]] = []
        self._lock = threading.RLock()

    @staticmethod
    def of(verbs: PoolVerbs) -> Desk:
        """The verbs' desk in this process."""
        with _lock:
            desk = _desks.get(id(verbs))
            if desk is None:
                desk = _desks[id(verbs)] = Desk(verbs)
            return desk

    @property
    def verbs(self) -> PoolVerbs:
        """What it was made of."""
        return self._verbs

    def entries(self) -> tuple[Entry, ...]:
        """Orders that are under way or ended lately, the newest first."""
        with self._lock:
            return tuple(reversed(self._entries.values()))

    def subscribe(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call ``changed`` from any thread whenever :meth:`entries` does; returns what ends it."""
        with self._lock:
            self._changed.append(changed)

        def unsubscribe() -> None:
            with self._lock:
                if changed in self._changed:
                    self._changed.remove(changed)

        return unsubscribe

    def take(self, order_id: str, order: Order, replica_ids: frozenset[str]) -> str:
        """Begin an order, without waiting for it.

        Args:
            order_id: an order that was taken before is not taken again.
            order: what to do.
            replica_ids: replicas that there are.

        Returns:
            Why it was not begun; empty where it was.
        """
        touched = touches(order, replica_ids)
        with self._lock:
            if order_id in self._entries:
                return ""
            for entry in self._entries.values():
                if entry.runs and entry.touched & touched:
                    return f"not begun: {entry.order} is under way"
            self._entries[order_id] = Entry(order_id, order, touched, self._now())
            self._forget()
        self._tell()
        threading.Thread(
            target=self._run, args=(order_id, order), name="workbench-control", daemon=True
        ).start()
        return ""

    def _forget(self) -> None:
        ended = [entry for entry in self._entries.values() if not entry.runs]
        for entry in ended[: max(0, len(ended) - KEPT)]:
            del self._entries[entry.order_id]

    def _run(self, order_id: str, order: Order) -> None:
        try:
            text, has_failed = carry_out(self._verbs, order), False
        except Exception as error:  # shown to whoever looks
            log.debug("%s failed", order, exc_info=True)
            text, has_failed = problem_of(error), True
        with self._lock:
            self._entries[order_id] = replace(
                self._entries[order_id], ended_s=self._now(), text=text, has_failed=has_failed
            )
            self._entries.move_to_end(order_id)
            self._forget()
        self._tell()

    def _tell(self) -> None:
        with self._lock:
            told = list(self._changed)
        for changed in told:
            try:
                changed()
            except Exception:
                log.exception("what looks at a pool's orders failed")


def problem_of(error: Exception) -> str:
    """An error in words; its own where it is one of ours."""
    own = isinstance(error, WorkbenchError) and str(error)
    text = str(error) if own else f"{type(error).__name__}: {error}"
    if len(text) > LONGEST_ERROR:
        text = f"{text[: LONGEST_ERROR - 1]}…"
    return "\n".join(visible(line) for line in text.splitlines())


def under_way(entries: tuple[Entry, ...]) -> dict[str, Entry]:
    """By replica, and :data:`POOL`, the order that it is busy with."""
    return {name: entry for entry in entries if entry.runs for name in entry.touched}
