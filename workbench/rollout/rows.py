"""Rows that a loop returned, held against the record: which of the sampled segments each one is.

Pure: no I/O, no clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from workbench.errors import RolloutError
from workbench.rollout.trajectory import common_prefix

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from workbench.rollout.trajectory import Growing

NumberT = TypeVar("NumberT", int, float)

CLOSE = 1e-6
"""Log-probabilities that differ by no more, or by no more than this part of their size, are the
same: they may have been float32 meanwhile."""


@dataclass(frozen=True, slots=True)
class Row:
    """A returned row in plain numbers; ``mask`` and ``log_probs`` are aligned with the response."""

    name: str
    prompt_tokens: int
    ids: list[int]
    """The prompt's, then the response's."""
    mask: list[int]
    log_probs: list[float] | None

    @property
    def response_ids(self) -> list[int]:
        return self.ids[self.prompt_tokens :]


def plain_row(returned: Any, name: str) -> Row:
    """The row, from whatever sequences of numbers it is made of: lists, arrays, tensors.

    Raises:
        RolloutError: a field holds something else, or is not as long as the response.
    """
    prompt_ids = _numbers(int, returned, "prompt_ids", name)
    response_ids = _numbers(int, returned, "response_ids", name)
    mask = _numbers(int, returned, "response_mask", name)
    log_probs = None
    if returned.response_logprobs is not None:
        log_probs = _numbers(float, returned, "response_logprobs", name)
    size = len(response_ids)
    for field, values in (("response_mask", mask), ("response_logprobs", log_probs)):
        if values is not None and len(values) != size:
            raise RolloutError(
                f"{name}: {field} has {len(values)} entries, response_ids has {size}"
            )
    return Row(name, len(prompt_ids), prompt_ids + response_ids, mask, log_probs)


def assigned(growing: Sequence[Growing], rows: Sequence[Row]) -> list[int]:
    """The number of the segment that each row is; no two rows are the same one.

    A row is a segment, its beginning, or a segment that was told more. Samples of one prompt may
    be equal by chance, and several segments may begin as a row does: one as long as the row goes
    before one that is cut the least.

    Raises:
        RolloutError: a row is none of them; says where it differs.
    """
    fitting = [_fitting(growing, row) for row in rows]

    def distance(place: int) -> int:
        return _distance(growing[fitting[place][0]], rows[place])

    owners: dict[int, int] = {}
    for place in sorted(range(len(rows)), key=distance):
        if not _claim(place, fitting, owners, set()):
            raise RolloutError(f"{rows[place].name}: two of the returned rows are the same one")
    number_of = {place: number for number, place in owners.items()}
    return [number_of[place] for place in range(len(rows))]


def _claim(
    place: int, fitting: Sequence[Sequence[int]], owners: dict[int, int], asked: set[int]
) -> bool:
    """Give a row one of its segments; where all are taken, an owner may move to another of its."""
    for number in fitting[place]:
        if number not in owners:
            owners[number] = place
            return True
    for number in fitting[place]:
        if number not in asked:
            asked.add(number)
            if _claim(owners[number], fitting, owners, asked):
                owners[number] = place
                return True
    return False


def _fitting(growing: Sequence[Growing], row: Row) -> list[int]:
    """The segments that the row may be, by number, those nearest to its length first."""
    found = [number for number, segment in enumerate(growing) if _fits(segment, row)]
    if not found:
        raise RolloutError(f"{row.name}{_complaint(growing, row)}")
    return sorted(found, key=lambda number: _distance(growing[number], row))


def _distance(segment: Growing, row: Row) -> int:
    return abs(len(segment.ids) - len(row.ids))


def _fits(segment: Growing, row: Row) -> bool:
    return (
        segment.prompt_tokens == row.prompt_tokens
        and _agrees(segment, row)
        and not _difference(segment, row)
    )


def _agrees(segment: Growing, row: Row) -> bool:
    """Whether one goes on from the other, to the token."""
    size = min(len(segment.ids), len(row.ids))
    if size and segment.ids[size - 1] != row.ids[size - 1]:  # most others differ there
        return False
    return segment.ids[:size] == row.ids[:size]


def _difference(segment: Growing, row: Row) -> str:
    """How a row of the same tokens differs from what was sampled; empty where it does not."""
    known = len(segment.response_mask)
    for position, mask in enumerate(row.mask):
        if mask != (segment.response_mask[position] if position < known else 0):
            what = "nobody sampled" if mask else "was sampled"
            return f": response_mask is {mask} at token {position}, which {what}"
    for position, told in enumerate(row.log_probs or ()):
        sampled = segment.log_probs[position] if position < known else 0.0
        if not math.isclose(told, sampled, rel_tol=CLOSE, abs_tol=CLOSE):  # NaN is close to none
            return f": response_logprobs is {told} at token {position}, the engine's {sampled}"
    return ""


def _complaint(growing: Sequence[Growing], row: Row) -> str:
    """How the row differs from the segment that is most like it."""
    if not growing:
        return ": nothing was sampled through server_manager"

    def likeness(segment: Growing) -> tuple[int, bool]:
        return common_prefix(segment.ids, row.ids), segment.prompt_tokens == row.prompt_tokens

    closest = max(growing, key=likeness)
    if not _agrees(closest, row):
        position = common_prefix(closest.ids, row.ids)
        return f" is not what was sampled: it differs at token {position}"
    if row.prompt_tokens != closest.prompt_tokens:
        return (
            f": prompt_ids has {row.prompt_tokens} tokens, the first prompt that was sent had "
            f"{closest.prompt_tokens}"
        )
    return _difference(closest, row)


def _numbers(kind: Callable[[Any], NumberT], row: Any, field: str, name: str) -> list[NumberT]:
    try:
        values = list(getattr(row, field))
        numbers = [kind(value) for value in values]
    except (TypeError, ValueError, OverflowError) as error:
        raise RolloutError(f"{name}: {field} is not made of numbers: {error}") from error
    if kind is int and numbers != values:
        raise RolloutError(f"{name}: {field} is not made of whole numbers")
    return numbers
