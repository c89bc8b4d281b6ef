"""Which pools this process has open, and which notebook cell made them.

A cell that is run again makes the same pool again: what it made before is found here, so that it
goes on or makes room, and nothing is left behind that nobody has a name for.
"""

from __future__ import annotations

import atexit
import sys
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from workbench.facade.workbench import Workbench

_open: set[Workbench] = set()
"""Until they are closed: what nobody has a name for runs on."""
_made: weakref.WeakValueDictionary[Spot, Workbench] = weakref.WeakValueDictionary()
_running: tuple[object, int] = None, 0
"""The run of a cell that made a pool last, and how many it made so far."""


class Spot(NamedTuple):
    """A place in a notebook."""

    cell: str
    number: int
    """Of the pools that the cell makes, from 0."""


def spot() -> Spot | None:
    """Where the next pool of this process is made; None outside of a notebook.

    A cell is known by its id, as far as the front end tells it, else by its text.
    """
    global _running  # noqa: PLW0603 - a process has one kernel
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    parent: dict[str, Any] = getattr(shell, "get_parent", dict)() or {}
    run = parent.get("header", {}).get("msg_id")
    text = parent.get("content", {}).get("code")
    cell = parent.get("metadata", {}).get("cellId") or text
    if not cell:
        return None
    _running = run, _running[1] + 1 if run == _running[0] else 0
    return Spot(cell, _running[1])


def made_at(place: Spot | None) -> Workbench | None:
    """The pool that was made there before and is still open."""
    former = _made.get(place) if place else None
    return former if former is not None and former in _open else None


def add(bench: Workbench, place: Spot | None) -> None:
    """A pool was opened."""
    _open.add(bench)
    if place:
        _made[place] = bench


def remove(bench: Workbench) -> None:
    """A pool was closed. Idempotent."""
    _open.discard(bench)


def names() -> list[str]:
    """Of the pools that are open in this process."""
    return sorted(bench.config.name for bench in _open)


@atexit.register
def _close_all() -> None:
    for bench in list(_open):
        bench.close()
