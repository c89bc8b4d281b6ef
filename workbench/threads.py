"""Blocking functions on daemon threads that are used again.

Unlike a pool's, such threads neither run out when functions hang nor keep a process from ending.
Starting one makes the starter wait until it runs, which under load takes long: a thread of its own
does that, so that no event loop has to.
"""

from __future__ import annotations

import threading
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

IDLE_S = 30.0
"""A thread that has had nothing to do for so long ends."""


class Threads:
    """Runs each function at once, on a thread that is idle or on a new one."""

    def __init__(self, idle_s: float = IDLE_S) -> None:
        self._idle_s = idle_s
        self._asked: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._handed: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        """Threads that wait for work, less the work that was handed to them."""
        self._starter: threading.Thread | None = None
        self.started = 0
        """Threads so far."""

    def run(self, function: Callable[[], None]) -> None:
        """Have it run; it must not raise. Returns at once."""
        self._asked.put(function)
        if self._starter is None:
            with self._lock:
                if self._starter is None:
                    self._starter = threading.Thread(
                        target=self._start_all, daemon=True, name="call-starter"
                    )
                    self._starter.start()

    def _start_all(self) -> None:
        while True:
            function = self._asked.get()
            with self._lock:
                is_one_idle = self._idle > 0
                if is_one_idle:
                    self._idle -= 1
                    self._handed.put(function)
            if not is_one_idle:
                self.started += 1
                name = f"call-{self.started}"
                threading.Thread(
                    target=self._serve, args=(function,), daemon=True, name=name
                ).start()

    def _serve(self, function: Callable[[], None]) -> None:
        following: Callable[[], None] | None = function
        while following is not None:
            following()
            following = None  # what it holds is free while this waits
            with self._lock:
                self._idle += 1
            following = self._next()

    def _next(self) -> Callable[[], None] | None:
        """What was handed over; None when this thread is not needed any more."""
        while True:
            try:
                return self._handed.get(timeout=self._idle_s)
            except Empty:
                with self._lock:
                    if self._idle > 0:
                        self._idle -= 1
                        return None
                # All that are idle were handed something, this one too: it is about to arrive.
