"""A group's rollouts as bytes: what a queue keeps and sends without opening it."""

from __future__ import annotations

import pickle
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from workbench.errors import StreamError
from workbench.records.plain import plain
from workbench.trajectory import ToolCall, Trajectory

if TYPE_CHECKING:
    from collections.abc import Sequence


def pack(trajectories: Sequence[Trajectory]) -> bytes:
    """The rollouts as bytes; :func:`unpack` gives them back as they were.

    What a loop put into a rollout and cannot be pickled is plain data then, and a note says so:
    what was sampled arrives whatever stands beside it.
    """
    try:
        return _dumped(tuple(trajectories))
    except Exception:  # noqa: BLE001 - a class of the user's may raise anything
        return _dumped(tuple(map(_sendable, trajectories)))


def unpack(blob: bytes) -> tuple[Trajectory, ...]:
    """What was packed.

    Raises:
        StreamError: it holds an object whose class this process does not have.
    """
    try:
        rows: tuple[Trajectory, ...] = pickle.loads(blob)
    except (AttributeError, ImportError) as error:
        problem = f"a group holds an object whose class is not known in this process: {error}"
        raise StreamError(problem) from error
    return rows


def _dumped(value: Any) -> bytes:
    return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)


def _sendable(trajectory: Trajectory) -> Trajectory:
    known = {field.name: getattr(trajectory, field.name) for field in fields(trajectory)}
    bad = [name for name, value in known.items() if not _can_be_dumped(value)]
    if not bad:
        return trajectory
    told = f"plain data since it cannot be sent: {', '.join(bad)}"
    sent = {name: _plainly(known[name]) for name in bad}
    return replace(trajectory, **sent, notes=(*trajectory.notes, told))


def _can_be_dumped(value: Any) -> bool:
    try:
        _dumped(value)
    except Exception:  # noqa: BLE001 - as above
        return False
    return True


def _plainly(value: Any) -> Any:
    """Plain data in the place of this; tuples stay tuples and tool calls tool calls."""
    if isinstance(value, tuple):
        return tuple(_plainly(item) for item in value)
    if isinstance(value, ToolCall):
        return replace(value, arguments=plain(value.arguments), result=str(plain(value.result)))
    return plain(value)
