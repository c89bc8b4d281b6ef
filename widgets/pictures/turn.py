"""One turn of a rollout: what it was told, what it said, what its tools answered, its tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from widgets.pictures.picture import Fact, Facts, Part, Table
from widgets.pictures.text import passage, prose, short
from widgets.pictures.tokens import turn_tokens
from widgets.tables import number
from widgets.theme import MISSING
from workbench.showing.text import content_text, json_text
from workbench.showing.turns import branch_words, outcome, story_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from widgets.pictures.tokens import Decode
    from workbench.showing.turns import TurnStory
    from workbench.trajectory import ToolCall, Trajectory

MAX_CALLS = 40
MAX_MESSAGES = 40
MESSAGE_LENGTH = 2000
RESULT_LENGTH = 2000


def turn_parts(trajectory: Trajectory, number_of: int, decode: Decode | None) -> tuple[Part, ...]:
    """A turn with all that surrounds it.

    Args:
        trajectory: whose.
        number_of: which, from 1.
        decode: token ids to text; None shows ids.
    """
    told = story_of(trajectory)
    story = told.turns[number_of - 1]
    is_last = number_of == len(told.turns)
    parts: tuple[Part, ...] = (_facts(story), _messages(story))
    if story.calls:
        parts += (calls_table(story.calls, wraps=True),)
    parts += (turn_tokens(trajectory, story, decode),)
    if is_last and told.loose:
        parts += (_table("Messages beside the turns", told.loose),)
    if story.is_branch:
        parts = (_branch(trajectory, story), *parts)
    return parts


def _branch(trajectory: Trajectory, story: TurnStory) -> Table:
    segment = trajectory.segments[story.turn.segment]
    told = branch_words(segment, story.turn.segment + 1)
    row = (f"{told}: {prose(segment.fork_reason, 400)}",)
    return Table("A branch begins here", ("from where, and why",), (row,), wraps=True)


def _facts(story: TurnStory) -> Facts:
    turn = story.turn
    return Facts(
        f"Turn {story.number}, segment {turn.segment + 1}",
        (
            Fact("sampled tokens", number(turn.end - turn.start)),
            Fact("finish reason", str(turn.finish_reason)),
            Fact("prompt tokens", number(turn.prompt_tokens)),
            Fact("of them cached", number(turn.num_cached_tokens)),
            Fact("replica", short(turn.replica_id)),
            Fact("attempts", number(turn.attempts)),
            Fact("preempted", number(turn.num_preempted)),
            Fact("queue", _seconds(turn.queue_s)),
            Fact("first token", _seconds(turn.first_token_s)),
            Fact("total", _seconds(turn.total_s)),
        ),
    )


def _seconds(value: float | None) -> str:
    return MISSING if value is None else f"{number(value, 2)} s"


def _messages(story: TurnStory) -> Table:
    own = (story.said,) if story.said else ()
    return _table("Messages: what it was told, and what it said", (*story.messages, *own))


def _table(title: str, messages: Sequence[Mapping[str, Any]]) -> Table:
    left = len(messages) - MAX_MESSAGES
    return Table(
        title,
        ("role", "content"),
        tuple(_message(message) for message in messages[-MAX_MESSAGES:]),
        empty="which of the rollout's messages are of this turn is not known",
        note=f"and {left:,} before these" if left > 0 else "",
        wraps=True,
    )


def _message(message: Mapping[str, Any]) -> tuple[str, ...]:
    calls = message.get("tool_calls")
    content = passage(content_text(message.get("content")), MESSAGE_LENGTH)
    asked = f"\n{prose(json_text(calls), 600)}" if calls else ""
    return short(str(message.get("role", MISSING))), f"{content}{asked}"


def calls_table(calls: Sequence[ToolCall], *, wraps: bool = False) -> Table:
    """Tool calls with what came of them.

    Args:
        calls: in their order.
        wraps: whether arguments and results are shown with their lines.
    """
    left = len(calls) - MAX_CALLS
    return Table(
        "Tool calls",
        ("turn", "tool", "outcome", "arguments", "result", "error", "time (s)"),
        tuple(_call(call, wraps=wraps) for call in calls[:MAX_CALLS]),
        numeric=(True, False, False, False, False, False, True),
        empty="no tool was called",
        note=f"and {left:,} more" if left > 0 else "",
        wraps=wraps,
    )


def _call(call: ToolCall, *, wraps: bool) -> tuple[str, ...]:
    arguments, result = json_text(dict(call.arguments)), call.result
    cut = f" [{call.cut_characters:,} characters cut]" if call.cut_characters else ""
    return (
        str(call.turn + 1),
        short(call.name) or MISSING,
        outcome(call),
        passage(arguments, RESULT_LENGTH) if wraps else prose(arguments, 300),
        (passage(result, RESULT_LENGTH) if wraps else prose(result, 400)) + cut,
        prose(call.error, 600 if wraps else 200),
        number(call.seconds_s, 2),
    )
