"""One rollout opened: to all its tokens, or to one turn with all that surrounds it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from widgets.drawing import count
from widgets.pictures.fields import Step
from widgets.pictures.picture import Fact, Facts, Part, Picture, Table
from widgets.pictures.text import passage, prose, short
from widgets.pictures.tokens import token_parts
from widgets.pictures.turn import calls_table, turn_parts
from widgets.tables import number
from widgets.theme import MISSING
from workbench.showing.text import extra_text
from workbench.trajectory import RolloutStatus

if TYPE_CHECKING:
    from widgets.pictures.tokens import Decode
    from workbench.trajectory import Segment, Trajectory

MAX_TURNS = 60
"""Rows that a table has; the first ones, since a rollout is read from its beginning."""
MAX_SEGMENTS = 40
MAX_NOTES = 20
MAX_PARTS = 8
"""Of a reward."""
TRACEBACK_LENGTH = 4000
INDENT = "\u2003"
"""Unlike other spaces it is never joined with its like."""
BACK = "back"


def trajectory_picture(trajectory: Trajectory, decode: Decode | None, turn: int = 0) -> Picture:
    """One rollout: how it ended, its turns, its tool calls, its tokens.

    Args:
        trajectory: to open.
        decode: token ids to text, as a tokenizer's ``decode``; None shows ids.
        turn: the one to show, from 1; the last stands for all behind it. 0 shows the whole.
    """
    turn = min(turn, trajectory.num_turns)
    title = f"Rollout {short(trajectory.rollout_id, 40)}"
    return Picture(
        f"{title}, turn {turn} of {trajectory.num_turns}" if turn else title,
        turn_parts(trajectory, turn, decode) if turn else _whole(trajectory, decode),
        status=str(trajectory.status),
        error=prose(trajectory.error, 600),
        words=_words(trajectory),
        actions=(BACK,),
        steps=_steps(trajectory, turn),
    )


def _words(trajectory: Trajectory) -> str:
    reward = "no reward" if trajectory.reward is None else f"reward {trajectory.reward:.4g}"
    return (
        f"{trajectory.status}, {reward}; {count(trajectory.num_turns, 'turn')}, "
        f"{count(trajectory.sampled_tokens, 'token')} sampled, "
        f"{count(len(trajectory.tool_calls), 'tool call')}, "
        f"{count(len(trajectory.segments), 'segment')}."
    )


def _steps(trajectory: Trajectory, turn: int) -> tuple[Step, ...]:
    if not trajectory.turns:
        return ()

    def to(label: str, key: str, there: int) -> Step:
        leads = 1 <= there <= trajectory.num_turns
        return Step(label, asked=(("turn", str(there)),) if leads else (), key=key)

    steps = (to("previous turn", "ArrowLeft", turn - 1), to("next turn", "ArrowRight", turn + 1))
    return (*steps, Step("all turns", asked=(("turn", ""),))) if turn else steps


def _whole(trajectory: Trajectory, decode: Decode | None) -> tuple[Part, ...]:
    parts: tuple[Part, ...] = (_facts(trajectory),)
    if trajectory.traceback:
        parts += (_traceback(trajectory.traceback),)
    if trajectory.notes:
        parts += (_notes(trajectory),)
    if len(trajectory.segments) > 1:
        parts += (_tree(trajectory.segments),)
    return (
        *parts,
        _turns(trajectory),
        calls_table(trajectory.tool_calls),
        *token_parts(trajectory.segments, decode),
    )


def _facts(trajectory: Trajectory) -> Facts:
    versions = trajectory.versions
    oldest, newest = versions or (None, None)
    between = number(oldest) if oldest == newest else f"{number(oldest)} to {number(newest)}"
    status = trajectory.status
    parts, extra = trajectory.reward_parts.items(), trajectory.extra.items()
    return Facts(
        f"Agent {short(trajectory.agent)}, {short(trajectory.group)}, rollout {trajectory.index}",
        (
            Fact("status", str(status), "bad" if status is RolloutStatus.FAILED else "plain"),
            Fact("reward", number(trajectory.reward, 3)),
            *(
                Fact(f"reward: {short(part)}", number(value, 3))
                for part, value in list(parts)[:MAX_PARTS]
            ),
            Fact("ended by", short(trajectory.ended_by) or MISSING),
            Fact("finish reason", str(trajectory.finish_reason or MISSING)),
            Fact("turns", number(trajectory.num_turns)),
            Fact("sampled tokens", number(trajectory.sampled_tokens)),
            Fact("policy version", between),
            Fact("attempts", number(trajectory.attempts)),
            Fact("wall time", f"{number(trajectory.wall_s, 1)} s"),
            *(
                Fact(short(str(name)), prose(extra_text(value), 60))
                for name, value in list(extra)[:MAX_PARTS]
            ),
        ),
    )  # fmt: skip


def _traceback(text: str) -> Table:
    left = len(text) - TRACEBACK_LENGTH
    last = passage(text[-TRACEBACK_LENGTH:], TRACEBACK_LENGTH)
    note = f"the last of {len(text):,} characters" if left > 0 else ""
    return Table("Traceback", ("where it went wrong",), ((last,),), note=note, wraps=True)


def _notes(trajectory: Trajectory) -> Table:
    notes = tuple((prose(note, 400),) for note in trajectory.notes[:MAX_NOTES])
    more = _more(len(trajectory.notes), MAX_NOTES)
    return Table("Notes", ("what its tokens do not show",), notes, note=more, wraps=True)


def _tree(segments: tuple[Segment, ...]) -> Table:
    """Each segment below the one that it leaves."""
    children: dict[int | None, list[int]] = {}
    for place, segment in enumerate(segments):
        children.setdefault(segment.parent, []).append(place)
    rows: list[tuple[str, ...]] = []
    waiting = [(place, 0) for place in reversed(children[None])]
    while waiting and len(rows) < MAX_SEGMENTS:
        place, depth = waiting.pop()
        rows.append(_segment_row(place, segments[place], depth))
        waiting += [(child, depth + 1) for child in reversed(children.get(place, []))]
    return Table(
        "Segments; a branch stands below the one that it leaves",
        ("segment", "after tokens", "tokens", "sampled tokens", "why"),
        tuple(rows),
        numeric=(False, True, True, True, False),
        note=_more(len(segments), MAX_SEGMENTS),
    )


def _segment_row(place: int, segment: Segment, depth: int) -> tuple[str, ...]:
    lead = INDENT * min(depth - 1, 8) + "└ " if depth else ""
    return (
        f"{lead}{place + 1}",
        MISSING if segment.parent is None else number(segment.shared_tokens),
        number(len(segment.ids)),
        number(sum(segment.response_mask)),
        prose(segment.fork_reason) or MISSING,
    )


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
        key=0,
        sets="turn",
    )  # fmt: skip


def _more(there_are: int, limit: int) -> str:
    return f"and {there_are - limit:,} more" if there_are > limit else ""
