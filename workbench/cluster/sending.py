"""Records on their way out of a worker: whatever a loop put into them, what was sampled arrives."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, cast

import ray

from workbench.records.plain import plain
from workbench.stream.packing import plainly
from workbench.trajectory import RolloutStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from workbench.trajectory import Trajectory


NAMED_DEPTH = 4
"""How far inside a record an error points at what could not be sent."""


def pickled(value: Any) -> bytes:
    """As Ray pickles: classes of a notebook go along."""
    dumps = cast("Callable[[Any], bytes]", cast("Any", ray).cloudpickle.dumps)
    return dumps(value)


def packed(trajectory: Trajectory) -> bytes:
    """A record, pickled.

    One that cannot be is failed: what stands in the way is plain data then, and the error names it.
    """
    try:
        return pickled(trajectory)
    except Exception:  # noqa: BLE001 - a class of the user's may raise anything
        return pickled(_sendable(trajectory))


def _sendable(trajectory: Trajectory) -> Trajectory:
    known = {field.name: getattr(trajectory, field.name) for field in fields(trajectory)}
    problems = {name: why for name, value in known.items() if (why := _problem(name, value))}
    sent = replace(trajectory, **{name: plainly(known[name]) for name in problems})
    told = f"what cannot be sent is plain data here: {'; '.join(problems.values())}"
    if trajectory.status is not RolloutStatus.DONE:
        return replace(sent, notes=(*sent.notes, told))  # how it ended matters more
    return replace(
        sent,
        status=RolloutStatus.FAILED,
        reward=None,
        reward_parts={},
        error=f"RolloutError: {told}",
    )


def _problem(name: str, value: Any, depth: int = 0) -> str:
    """What of this cannot be pickled, and why; empty when all of it can."""
    try:
        pickled(value)
    except Exception as error:  # noqa: BLE001 - as above
        items = _items(value) if depth < NAMED_DEPTH else ()
        inside = (_problem(f"{name}[{key!r}]", item, depth + 1) for key, item in items)
        return next(filter(None, inside), f"{name}: {_words(error)}")
    return ""


def _items(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, dict):
        return value.items()
    return enumerate(value) if isinstance(value, list | tuple) else ()


def _words(error: Exception) -> str:
    text = plain(error)  # an error's own text may fail as well
    return f"{type(error).__name__}: {text}"
