"""Getting to a Ray cluster: the one this process is in, the one it is told, or one of its own."""

from __future__ import annotations

import os
import threading
from typing import Any

import ray

from workbench.cluster.joining import check_same, join
from workbench.cluster.vigil import Vigil, answers


class _Place:
    """This process's place in a cluster, for as long as somebody here uses it."""

    def __init__(self, *, began: bool, started: bool) -> None:
        self.users: set[Connection] = set()
        self.address = cluster_address()
        self._began = began
        # The head of a cluster that was started here is this process's own child.
        self.vigil = None if started else Vigil(lambda: answers(self.address), self._leave)

    @property
    def gone(self) -> bool:
        """Whether the cluster is; its vigil leaves it then, which takes a while."""
        return self.vigil is not None and self.vigil.gone

    def give_up(self) -> None:
        """Nobody here uses it any more."""
        if self.vigil is not None:
            self.vigil.stop()
        self._leave()

    def _leave(self) -> None:
        if self._began:
            ray.shutdown()


_place: _Place | None = None
_lock = threading.RLock()


class Connection:
    """A use of this process's place in a cluster.

    Closing ends only what was begun here, and only once nobody else in this process uses it.
    """

    def __init__(self, place: _Place) -> None:
        self._place = place
        place.users.add(self)

    def close(self) -> None:
        """Give the place up. Idempotent."""
        global _place  # noqa: PLW0603 - a process has one place in one cluster
        with _lock:
            if self not in self._place.users:
                return
            self._place.users.discard(self)
            if not self._place.users and _place is self._place and not self._place.gone:
                self._place.give_up()
                _place = None


def connect(address: str | None = None) -> Connection:
    """Join the cluster at ``address`` or ``RAY_ADDRESS``; without either start Ray here.

    A process that is in a cluster already stays in it.

    Raises:
        ConfigError: no cluster answers at the address, it does not let this process in, or this
            process is in another one.
    """
    global _place  # noqa: PLW0603 - a process has one place in one cluster
    named = address or os.environ.get("RAY_ADDRESS")
    named = None if named == "local" else named
    with _lock:
        if _place is not None and _place.vigil is not None and _place.gone:
            _place.vigil.join()
            _place = None
        is_new = not ray.is_initialized()
        if is_new:
            join(named)
        elif address:
            check_same(address)
        if is_new or _place is None:
            _place = _Place(began=is_new, started=is_new and not named)
        return Connection(_place)


def is_in_cluster(address: str | None = None) -> bool:
    """Whether :func:`connect` would join a cluster that is there, and start none."""
    named = address or os.environ.get("RAY_ADDRESS")
    return ray.is_initialized() or bool(named and named != "local")


def current_vigil() -> Vigil | None:
    """Over the cluster that this process is in, where it is not this process's own."""
    return _place.vigil if _place is not None else None


def cluster_address() -> str:
    """Of the head of the cluster that this process is in."""
    address: str = ray.get_runtime_context().gcs_address
    return address


def has_gpus() -> bool:
    """Whether the cluster has a GPU, free or not."""
    untyped: Any = ray
    return bool(untyped.cluster_resources().get("GPU", 0))
