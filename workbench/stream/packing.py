"""A group's rollouts as bytes: what a queue keeps and sends without opening it."""

from __future__ import annotations

import io
import pickle
import struct
from array import array
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from workbench.errors import StreamError
from workbench.records.plain import plain
from workbench.trajectory import Segment, ToolCall, Trajectory

if TYPE_CHECKING:
    from collections.abc import Sequence

ID, LOG_PROB = "i", "d"
"""How an id and a log-probability are kept: in 4 bytes, and in the 8 that it has."""

BESIDE = tuple(field.name for field in fields(Segment))[4:]
"""What a segment has beside its lists of numbers."""


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


class _Pickler(pickle.Pickler):
    """Keeps a segment's lists of numbers as arrays: its time and that of reading them halve."""

    def reducer_override(self, value: Any) -> Any:
        if type(value) is not Segment:
            return NotImplemented
        try:
            packed = (
                struct.pack(f"{len(value.prompt_ids)}{ID}", *value.prompt_ids),
                struct.pack(f"{len(value.response_ids)}{ID}", *value.response_ids),
                bytes(value.response_mask),
                struct.pack(f"{len(value.log_probs)}{LOG_PROB}", *value.log_probs),
            )
        except (TypeError, ValueError, struct.error):  # not the numbers that they should be
            return NotImplemented
        return _segment, (*packed, *[getattr(value, name) for name in BESIDE])


def _segment(prompt: bytes, response: bytes, mask: bytes, log_probs: bytes, *rest: Any) -> Segment:
    return Segment(
        _list(ID, prompt), _list(ID, response), list(mask), _list(LOG_PROB, log_probs), *rest
    )


def _list(code: str, packed: bytes) -> list[Any]:
    numbers = array(code)
    numbers.frombytes(packed)
    return numbers.tolist()


def _dumped(value: Any) -> bytes:
    written = io.BytesIO()
    _Pickler(written, pickle.HIGHEST_PROTOCOL).dump(value)
    return written.getvalue()


def _sendable(trajectory: Trajectory) -> Trajectory:
    known = {field.name: getattr(trajectory, field.name) for field in fields(trajectory)}
    bad = [name for name, value in known.items() if not _can_be_dumped(value)]
    if not bad:
        return trajectory
    told = f"plain data since it cannot be sent: {', '.join(bad)}"
    sent = {name: plainly(known[name]) for name in bad}
    return replace(trajectory, **sent, notes=(*trajectory.notes, told))


def _can_be_dumped(value: Any) -> bool:
    try:
        _dumped(value)
    except Exception:  # noqa: BLE001 - as above
        return False
    return True


def plainly(value: Any) -> Any:
    """Plain data in the place of what cannot be sent; records stay records."""
    if isinstance(value, tuple):
        return tuple(plainly(item) for item in value)
    if isinstance(value, ToolCall):
        return replace(
            value,
            name=str(plain(value.name)),
            arguments=plain(value.arguments),
            result=str(plain(value.result)),
            error=str(plain(value.error)),
        )
    return plain(value)
