"""Rollouts to choose from, and one of them opened to its tokens. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from widgets.drawing import count
from widgets.pictures.picture import Fact, Facts, Picture, Table
from widgets.pictures.text import prose, short
from widgets.pictures.tokens import token_parts
from widgets.tables import number
from widgets.theme import MISSING
from workbench.trajectory import RolloutStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from widgets.pictures.tokens import Decode
    from workbench.trajectory import ToolCall, Trajectory

MAX_ROLLOUTS = 100
MAX_TURNS = 60
MAX_CALLS = 40
"""Rows that a table has; the first ones, since a rollout is read from its beginning."""
BACK = "back"


def rollouts_picture(rows: Sequence[Trajectory], *, status: str = "", error: str = "") -> Picture:
    """Rollouts to choose from, the last ones first.

    Args:
        rows: trajectories, oldest first.
        status: see :class:`widgets.pictures.picture.Picture`.
        error: why there may be more.
    """
    shown = list(rows)[: -MAX_ROLLOUTS - 1 : -1]
    left = len(rows) - len(shown)
    table = Table(
        "Rollouts that ended, the last ones first",
        ("rollout", "group", "status", "reward", "turns", "sampled tokens", "tool calls",
         "wall time (s)", "error"),
        tuple(_row(row) for row in shown),
        numeric=(False, False, False, True, True, True, True, True, False),
        empty="no rollout ended yet",
        note=f"and {left:,} older" if left else "",
        key=0,
    )  # fmt: skip
    failed = sum(row.status is RolloutStatus.FAILED for row in rows)
    words = f"{count(len(rows), 'rollout')}, {failed:,} failed. Choose one to open it."
    return Picture("Rollouts", (table,), status, prose(error), words=words)


def chosen(rows: Sequence[Trajectory], key: str) -> Trajectory | None:
    """The last rollout with this id, in full or as :func:`rollouts_picture` shows it."""
    found = (row for row in reversed(rows) if key in {row.rollout_id, _key(row)})
    return next(found, None)


def trajectory_picture(trajectory: Trajectory, decode: Decode | None) -> Picture:
    """One rollout: how it ended, its turns, its tool calls, its tokens.

    Args:
        trajectory: to open.
        decode: token ids to text, as a tokenizer's ``decode``; None shows ids.
    """
    parts = (_facts(trajectory), _turns(trajectory), _calls(trajectory))
    reward = "no reward" if trajectory.reward is None else f"reward {trajectory.reward:.4g}"
    words = (
        f"{trajectory.status}, {reward}; {count(trajectory.num_turns, 'turn')}, "
        f"{count(trajectory.sampled_tokens, 'token')} sampled, "
        f"{count(len(trajectory.tool_calls), 'tool call')}, "
        f"{count(len(trajectory.segments), 'segment')}."
    )
    return Picture(
        f"Rollout {short(trajectory.rollout_id, 40)}",
        (*parts, *token_parts(trajectory.segments, decode)),
        status=str(trajectory.status),
        error=prose(trajectory.error, 600),
        words=words,
        actions=(BACK,),
    )


def _key(row: Trajectory) -> str:
    return short(row.rollout_id, 40)


def _row(row: Trajectory) -> tuple[str, ...]:
    return (
        _key(row),
        short(row.group),
        str(row.status),
        number(row.reward, 3),
        number(row.num_turns),
        number(row.sampled_tokens),
        number(len(row.tool_calls)),
        number(row.wall_s, 1),
        prose(row.error),
    )


def _facts(trajectory: Trajectory) -> Facts:
    versions = trajectory.versions
    oldest, newest = versions or (None, None)
    between = number(oldest) if oldest == newest else f"{number(oldest)} to {number(newest)}"
    status = trajectory.status
    return Facts(
        f"Agent {short(trajectory.agent)}, {short(trajectory.group)}, rollout {trajectory.index}",
        (
            Fact("status", str(status), "bad" if status is RolloutStatus.FAILED else "plain"),
            Fact("reward", number(trajectory.reward, 3)),
            *(
                Fact(f"reward: {short(part)}", number(value, 3))
                for part, value in list(trajectory.reward_parts.items())[:8]
            ),
            Fact("finish reason", str(trajectory.finish_reason or MISSING)),
            Fact("turns", number(trajectory.num_turns)),
            Fact("sampled tokens", number(trajectory.sampled_tokens)),
            Fact("policy version", between),
            Fact("wall time", f"{number(trajectory.wall_s, 1)} s"),
        ),
    )  # fmt: skip


def _turns(trajectory: Trajectory) -> Table:
    rows = tuple(
        (
            str(place), str(turn.segment + 1), short(turn.replica_id),
            number(turn.prompt_tokens), number(turn.num_cached_tokens),
            number(turn.end - turn.start), str(turn.finish_reason), number(turn.attempts),
            number(turn.queue_s, 2), number(turn.first_token_s, 2), number(turn.total_s, 2),
        )
        for place, turn in enumerate(trajectory.turns[:MAX_TURNS], 1)
    )  # fmt: skip
    return Table(
        "Turns",
        ("turn", "segment", "replica", "prompt tokens", "cached", "sampled tokens",
         "finish reason", "attempts", "queue (s)", "first token (s)", "total (s)"),
        rows,
        numeric=(True, True, False, True, True, True, False, True, True, True, True),
        empty="no turn: nothing was sampled",
        note=_more(len(trajectory.turns), MAX_TURNS),
    )  # fmt: skip


def _calls(trajectory: Trajectory) -> Table:
    return Table(
        "Tool calls",
        ("turn", "tool", "outcome", "arguments", "result", "error", "time (s)"),
        tuple(_call(call) for call in trajectory.tool_calls[:MAX_CALLS]),
        numeric=(True, False, False, False, False, False, True),
        empty="no tool was called",
        note=_more(len(trajectory.tool_calls), MAX_CALLS),
    )


def _call(call: ToolCall) -> tuple[str, ...]:
    outcome = "malformed" if not call.well_formed else "failed" if call.error else "well-formed"
    arguments = json.dumps(dict(call.arguments), default=str, ensure_ascii=False)
    return (
        str(call.turn + 1),
        short(call.name) or MISSING,
        outcome,
        prose(arguments, 300),
        prose(call.result, 400),
        prose(call.error, 200),
        number(call.seconds_s, 2),
    )


def _more(there_are: int, limit: int) -> str:
    return f"and {there_are - limit:,} more" if there_are > limit else ""
