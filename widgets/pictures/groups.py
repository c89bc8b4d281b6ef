"""The rollouts of one task side by side: what each earned, how it ended, where they part. Pure."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from widgets.drawing import count
from widgets.pictures.fields import Step
from widgets.pictures.picture import Fact, Facts, Picture, Table
from widgets.pictures.text import passage, prose, short
from widgets.tables import number
from widgets.theme import MISSING
from workbench.rollout.trajectory import common_prefix
from workbench.showing.text import content_text
from workbench.showing.tokens import token_texts
from workbench.trajectory import RolloutStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from widgets.pictures.tokens import Decode
    from workbench.trajectory import Trajectory

MAX_COMPARED = 64
"""Rollouts of a group; more are counted."""
ANSWER_LENGTH = 600
CONTEXT = 6
"""Tokens that are shown from where two rollouts part."""


def group_picture(
    rows: Sequence[Trajectory], decode: Decode | None, keys: Sequence[str] = ()
) -> Picture:
    """A group, each rollout beside the first of them.

    Args:
        rows: of one group.
        decode: token ids to text; None shows ids.
        keys: what names each of them when it is clicked.
    """
    pairs = sorted(zip(rows, keys or [""] * len(rows), strict=True), key=lambda pair: pair[0].index)
    shown = pairs[:MAX_COMPARED]
    first = shown[0][0]
    left = len(pairs) - len(shown)
    table = Table(
        "Its rollouts; each is compared with the first",
        ("rollout", "status", "reward", "ended by", "final answer", "parts from the first",
         "turns", "sampled tokens"),
        tuple(_row(row, first, decode) for row, _ in shown),
        numeric=(False, False, True, False, False, False, True, True),
        note=f"and {left:,} more" if left else "",
        key=0,
        keys=tuple(key for _, key in shown) if keys else (),
        wraps=True,
    )  # fmt: skip
    return Picture(
        f"Group {short(first.group, 40)}",
        (_facts([row for row, _ in pairs]), table),
        words=f"{count(len(pairs), 'rollout')} of one task. Choose one to open it.",
        steps=(Step("all rollouts", "", (("compare", ""),)),),
    )


def _facts(rows: Sequence[Trajectory]) -> Facts:
    rewards = [row.reward for row in rows if row.reward is not None]
    failed = sum(row.status is RolloutStatus.FAILED for row in rows)
    spread = f"{number(min(rewards), 3)} to {number(max(rewards), 3)}" if rewards else MISSING
    answers = {_answer(row) for row in rows if row.status is RolloutStatus.DONE}
    return Facts(
        "All of them",
        (
            Fact("rollouts", number(len(rows))),
            Fact("failed", number(failed), "bad" if failed else "plain"),
            Fact("mean reward", number(statistics.fmean(rewards), 3) if rewards else MISSING),
            Fact("rewards", spread),
            Fact("different final answers", number(len(answers))),
            Fact("turns", _between([row.num_turns for row in rows])),
            Fact("sampled tokens", _between([row.sampled_tokens for row in rows])),
        ),
    )


def _between(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return number(low) if low == high else f"{number(low)} to {number(high)}"


def _row(row: Trajectory, first: Trajectory, decode: Decode | None) -> tuple[str, ...]:
    return (
        short(row.rollout_id, 40),
        str(row.status),
        number(row.reward, 3),
        short(row.ended_by) or MISSING,
        passage(_answer(row), ANSWER_LENGTH) or prose(row.error) or MISSING,
        "the first" if row is first else _difference(row, first, decode),
        number(row.num_turns),
        number(row.sampled_tokens),
    )


def _answer(row: Trajectory) -> str:
    """What the policy said last, as its conversation has it."""
    said = (m.get("content") for m in reversed(row.messages) if m.get("role") == "assistant")
    return content_text(next(said, None)).strip()


def _difference(row: Trajectory, first: Trajectory, decode: Decode | None) -> str:
    """Where its first segment leaves the first rollout's, in words."""
    if not row.segments or not first.segments:
        return MISSING
    mine, other = row.segments[0].ids, first.segments[0].ids
    same = common_prefix(mine, other)
    if same == len(mine) == len(other):
        later = row.segments[1:] == first.segments[1:]
        return "the same tokens" if later else "the same tokens in its first segment"
    where = "in the prompt" if same < len(row.segments[0].prompt_ids) else _turn_at(row, same)
    return f"at token {same:,}, {where}: {_from(mine, same, decode)} / {_from(other, same, decode)}"


def _turn_at(row: Trajectory, place: int) -> str:
    """Of which turn a token of the first segment is."""
    start = place - len(row.segments[0].prompt_ids)
    own = ((n, turn) for n, turn in enumerate(row.turns, 1) if turn.segment == 0)
    for turn_number, turn in own:
        if start < turn.start:
            return f"before turn {turn_number}"
        if start < turn.end:
            return f"turn {turn_number}"
    return "after its last turn"


def _from(ids: Sequence[int], place: int, decode: Decode | None) -> str:
    some = ids[place : place + CONTEXT]
    return f"“{prose(''.join(token_texts(some, decode)), 60)}”" if some else "its end"
