"""Hears one browser and answers it.

A browser asks first, is told that somebody listens, and only then says *go*, if that took no longer
than a person waits: what was clicked while a kernel was busy is not done half an hour later. Both
travel as JSON in one text each, whole each time, so that nothing is lost where messages are merged:

* ``asks``: by id what was not answered yet: an order, ``{"go": id}``, ``{"log": replica}`` or
  ``{"close": replica}``;
* ``replies``: ``told`` has by id ``ready`` or why not; ``logs`` has by replica what is open.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections import OrderedDict
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from widgets.control.desk import problem_of
from widgets.control.orders import interrupts, order_of
from widgets.pictures.text import visible
from workbench.errors import ConfigError
from workbench.types import ReplicaState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from widgets.control.desk import Desk
    from widgets.control.orders import Order
    from workbench.metrics.feed import Feed

GO_S = 10.0
"""How long after being told a browser may say go."""
KEPT = 64
"""Answers that are kept."""
LOG_LINES, LOG_LENGTH, MOST_LOGS = 50, 20_000, 8
"""Of a log, characters of that, and logs that may be open at once."""
LONGEST_ASKS = 100_000
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
"""Colours and the like, which a log has for terminals."""


@dataclass(frozen=True, slots=True)
class LogTail:
    """The end of a replica's log."""

    text: str = ""
    time_s: float | None = None
    """When it was read; None before that."""
    reads: bool = False
    """Whether it is being read."""
    error: str = ""


class Clerk:
    """Reads what a browser asks, and brings it to the desk.

    Args:
        desk: where orders are carried out.
        feed: of the same pool.
        tell: sends :meth:`replies`; called from any thread.
        clock: seconds, rising.
    """

    def __init__(
        self,
        desk: Desk,
        feed: Feed,
        tell: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._desk = desk
        self._feed = feed
        self._tell = tell
        self._clock = clock
        self._offers: OrderedDict[str, tuple[Order, float]] = OrderedDict()
        self._told: OrderedDict[str, str] = OrderedDict()
        self._logs: dict[str, LogTail] = {}
        self._lock = threading.RLock()

    def replies(self) -> str:
        """What the browser is told, as JSON."""
        with self._lock:
            logs = {replica_id: asdict(tail) for replica_id, tail in self._logs.items()}
            return json.dumps({"told": dict(self._told), "logs": logs}, ensure_ascii=False)

    def hear(self, asks: str) -> None:
        """Answer what is new in what a browser asks; never waits for the pool, never raises."""
        for ask_id, message in _messages(asks).items():
            with self._lock:
                if ask_id in self._told:
                    continue
                try:
                    answer = self._answer(ask_id, message)
                except ConfigError as error:
                    answer = problem_of(error)
                self._told[ask_id] = answer
                while len(self._told) > KEPT:
                    self._told.popitem(last=False)
        self._tell()

    def _answer(self, ask_id: str, message: Mapping[str, Any]) -> str:
        if "go" in message:
            return self._go(str(message["go"]))
        if "log" in message:
            return self._read_log(str(message["log"]))
        if "close" in message:
            self._logs.pop(str(message["close"]), None)
            return "closed"
        order = order_of(message)
        self._check(order)
        self._offers[ask_id] = order, self._clock()
        while len(self._offers) > KEPT:
            self._offers.popitem(last=False)
        return "ready"

    def _check(self, order: Order) -> frozenset[str]:
        """The replicas that there are.

        Raises:
            ConfigError: the order is not for this pool as it is now.
        """
        if self._feed.closed:
            raise ConfigError("pool", "was closed", allowed="a pool that runs")
        latest = self._feed.latest
        replicas = latest.pool.replicas if latest else ()
        statuses = [replica.status for replica in replicas]
        present = [one.replica_id for one in statuses if one.state is not ReplicaState.STOPPED]
        if order.replica_id and order.replica_id not in {one.replica_id for one in statuses}:
            raise ConfigError(
                "replica_id", f"{order.replica_id!r:.80} is not there", allowed=present
            )
        if interrupts(order, len(present) if latest else None) and not order.confirmed:
            problem = f"{order} would interrupt what runs, and was not confirmed"
            raise ConfigError("confirmed", problem, allowed="a confirmed order")
        return frozenset(present)

    def _go(self, ask_id: str) -> str:
        order, offered_s = self._offers.pop(ask_id, (None, 0.0))
        if order is None:
            return "nothing to begin"
        if self._clock() - offered_s > GO_S:
            return f"not done: {order}. It was asked too long ago."
        return self._desk.take(ask_id, order, self._check(order)) or "taken"

    # -- logs -------------------------------------------------------------------------------

    def _read_log(self, replica_id: str) -> str:
        tail = self._logs.get(replica_id, LogTail())
        if tail.reads:
            return "reads"
        if replica_id not in self._logs and len(self._logs) >= MOST_LOGS:
            return f"{MOST_LOGS} logs are open: close one first"
        self._logs[replica_id] = LogTail(tail.text, tail.time_s, reads=True)
        threading.Thread(
            target=self._fetch, args=(replica_id,), name="workbench-control-log", daemon=True
        ).start()
        return "reads"

    def _fetch(self, replica_id: str) -> None:
        now_s = time.time()
        try:
            text = self._desk.verbs.logs(replica_id, LOG_LINES)
            found = LogTail(tail_of(text), now_s)
        except Exception as error:  # noqa: BLE001 shown to whoever looks
            found = LogTail(time_s=now_s, error=problem_of(error))
        with self._lock:
            if replica_id not in self._logs:
                return  # it was closed meanwhile
            self._logs[replica_id] = found
        self._tell()


def _messages(asks: str) -> dict[str, Mapping[str, Any]]:
    """By id; what makes no sense is left out."""
    try:
        found = json.loads(asks) if len(asks) <= LONGEST_ASKS else {}
    except ValueError:
        return {}
    items = found.items() if isinstance(found, dict) else ()
    return {key[:80]: value for key, value in items if isinstance(value, dict)}


def tail_of(text: str) -> str:
    """A log's end, fit to be shown."""
    lines = ESCAPES.sub("", text[-LOG_LENGTH:]).splitlines()
    return "\n".join(visible(line.replace("\t", "    ")) for line in lines[-LOG_LINES:])
