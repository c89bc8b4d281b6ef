"""A trajectory turn by turn: what each was told, what it sampled, and what came of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from workbench.trajectory import Segment, ToolCall, Trajectory, Turn


@dataclass(frozen=True, slots=True)
class TurnStory:
    """A turn with all that surrounds it."""

    number: int
    """From 1."""
    turn: Turn
    is_branch: bool
    """Whether its segment begins with it, beside another segment."""
    begin: int
    """Where what it was told begins, in its segment's ``ids``: after the turn before, or where the
    segment leaves its parent."""
    sampled: int
    """Where what it sampled begins there."""
    end: int
    """Where that ends."""
    rest: int
    """Where the segment ends, if this is its last turn; else ``end``."""
    messages: tuple[Mapping[str, Any], ...] = ()
    """What was said to it since the turn before; empty where that is not known."""
    said: Mapping[str, Any] | None = None
    """Its own message, where that is known; without the tool calls that are in ``calls``."""
    calls: tuple[ToolCall, ...] = ()


@dataclass(frozen=True, slots=True)
class Story:
    """A trajectory in the order in which it is read."""

    turns: tuple[TurnStory, ...]
    loose: tuple[Mapping[str, Any], ...]
    """Messages that are of no turn: those after the last, or all where nobody can tell."""


def story_of(trajectory: Trajectory) -> Story:
    """The trajectory turn by turn. Messages that only repeat a tool's result are left out."""
    written = match_turns(trajectory)
    answers = set(match_answers(trajectory))
    places = {number: place for place, number in written.items()}
    turns = []
    ends: dict[int, int] = {}
    last = {turn.segment: number for number, turn in enumerate(trajectory.turns, 1)}
    begin = 0
    for number, turn in enumerate(trajectory.turns, 1):
        segment = trajectory.segments[turn.segment]
        sampled, end = len(segment.prompt_ids) + turn.start, len(segment.prompt_ids) + turn.end
        before = range(begin, places.get(number, begin))
        begin = places.get(number, begin - 1) + 1
        calls = tuple(call for call in trajectory.tool_calls if call.turn == number - 1)
        turns.append(
            TurnStory(
                number=number,
                turn=turn,
                is_branch=turn.segment > 0 and turn.segment not in ends,
                begin=ends.get(turn.segment, segment.shared_tokens),
                sampled=sampled,
                end=end,
                rest=len(segment.ids) if last[turn.segment] == number else end,
                messages=tuple(trajectory.messages[i] for i in before if i not in answers),
                said=_said(trajectory.messages[places[number]], calls)
                if number in places
                else None,
                calls=calls,
            )
        )
        ends[turn.segment] = end
    left = range(begin, len(trajectory.messages))
    return Story(
        tuple(turns), tuple(trajectory.messages[i] for i in left if i not in answers or not written)
    )


def _said(message: Mapping[str, Any], calls: tuple[ToolCall, ...]) -> Mapping[str, Any]:
    return {**message, "tool_calls": None} if calls else message


def match_answers(trajectory: Trajectory) -> dict[int, ToolCall]:
    """Tool calls by the place of the message that answers each.

    From the end, since examples before the task may hold tool messages too.
    """
    places = [i for i, message in enumerate(trajectory.messages) if message.get("role") == "tool"]
    left = list(trajectory.tool_calls)
    answered = {}
    for place in reversed(places):
        if left and left[-1].result == trajectory.messages[place].get("content"):
            answered[place] = left.pop()
    return answered


def match_turns(trajectory: Trajectory) -> dict[int, int]:
    """The number of the turn, from 1, that wrote a message, where that is certain."""
    places = [i for i, m in enumerate(trajectory.messages) if m.get("role") == "assistant"]
    turns = trajectory.num_turns
    is_whole = trajectory.status != "failed"
    if not turns or not (len(places) == turns or (is_whole and len(places) > turns)):
        return {}
    return {place: number for number, place in enumerate(places[-turns:], 1)}


def outcome(call: ToolCall) -> str:
    """``well-formed``, ``failed`` (it could be read, but not be executed) or ``malformed``."""
    return "malformed" if not call.well_formed else "failed" if call.error else "well-formed"


def branch_words(segment: Segment, number: int) -> str:
    """Where a segment comes from, in words; ``number`` counts from 1."""
    if segment.parent is None:
        return f"Segment {number} begins anew" if number > 1 else f"Segment {number}"
    return (
        f"Segment {number} is a branch of segment {segment.parent + 1}, "
        f"after its first {segment.shared_tokens:,} tokens"
    )
