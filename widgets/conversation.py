"""A trajectory as a conversation to read: messages, tool calls with their outcome, turns. Pure.

Everything in it is text as the model, the tools and the task wrote it: hostile until escaped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from widgets.tables import Table, number, table_of
from widgets.theme import MISSING
from workbench.showing.text import content_text, json_text
from workbench.showing.turns import match_answers, match_turns, outcome

if TYPE_CHECKING:
    from workbench.trajectory import ToolCall, Trajectory

MAX_CHARACTERS = 6000
"""Of one message; what is left out beyond is counted."""


@dataclass(frozen=True, slots=True)
class CallView:
    """A tool call as it was written, or as it was answered."""

    name: str
    arguments: str
    outcome: str
    """``well-formed``, ``failed`` (it could be read, but not be executed) or ``malformed``."""
    error: str
    seconds: str


@dataclass(frozen=True, slots=True)
class MessageView:
    """One message. ``turn`` counts from 1; 0 where it is not known to be a generation's."""

    role: str
    turn: int
    content: str
    written: tuple[tuple[str, str], ...]
    """Name and arguments of the tool calls in it."""
    answers: CallView | None
    """The call that this tool message answers."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a report shows of one rollout."""

    name: str
    status: str
    facts: tuple[tuple[str, str], ...]
    messages: tuple[MessageView, ...]
    unanswered: tuple[CallView, ...]
    """Recorded tool calls that no message answers."""
    turns: Table | None
    error: str
    traceback: str


def conversation_of(trajectory: Trajectory) -> Conversation:
    """A trajectory in words."""
    answered, unanswered = _match_answers(trajectory)
    turns = match_turns(trajectory)
    return Conversation(
        name=trajectory.rollout_id,
        status=str(trajectory.status),
        facts=tuple(_facts(trajectory)),
        messages=tuple(
            MessageView(
                role=str(message.get("role", MISSING)),
                turn=turns.get(place, 0),
                content=cut(content_text(message.get("content"))),
                written=tuple(_written(message)),
                answers=answered.get(place),
            )
            for place, message in enumerate(trajectory.messages)
        ),
        unanswered=tuple(unanswered),
        turns=_turn_table(trajectory),
        error=trajectory.error,
        traceback=trajectory.traceback,
    )


def cut(text: str) -> str:
    """The text, or as much of it as a report has room for and how much that leaves out."""
    if len(text) <= MAX_CHARACTERS:
        return text
    return f"{text[:MAX_CHARACTERS]}\n[… {len(text) - MAX_CHARACTERS:,} more characters]"


def _facts(trajectory: Trajectory) -> list[tuple[str, str]]:
    versions = trajectory.versions
    facts = [
        ("reward", MISSING if trajectory.reward is None else f"{trajectory.reward:.4g}"),
        ("ended by", cut(trajectory.ended_by) or MISSING),
        ("finish reason", str(trajectory.finish_reason or MISSING)),
        ("turns", number(trajectory.num_turns)),
        ("sampled tokens", number(trajectory.sampled_tokens)),
        ("wall time", f"{trajectory.wall_s:,.1f} s"),
        ("agent", trajectory.agent),
        ("group", f"{trajectory.group}, rollout {trajectory.index}"),
    ]
    if versions:
        oldest, newest = versions
        facts.append(("policy version", f"{oldest}" if oldest == newest else f"{oldest}–{newest}"))
    facts += [(f"reward: {name}", f"{part:.4g}") for name, part in trajectory.reward_parts.items()]
    facts += [("attempts", number(trajectory.attempts))] if trajectory.attempts > 1 else []
    facts += [("note", cut(note)) for note in trajectory.notes]
    return facts


def _written(message: Mapping[str, Any]) -> list[tuple[str, str]]:
    calls = message.get("tool_calls") or ()
    functions = [call.get("function", call) for call in calls if isinstance(call, Mapping)]
    return [
        (cut(str(function.get("name") or MISSING)), cut(json_text(function.get("arguments", ""))))
        for function in functions
    ]


def _call_view(call: ToolCall, shown: str = "") -> CallView:
    """A recorded call; its error only where what is shown anyway does not say it."""
    return CallView(
        name=cut(call.name) or MISSING,
        arguments=cut(json_text(dict(call.arguments))),
        outcome=outcome(call),
        error="" if call.error in shown else cut(call.error),
        seconds=f"{call.seconds_s:,.2f} s",
    )


def _match_answers(trajectory: Trajectory) -> tuple[dict[int, CallView], list[CallView]]:
    """Tool calls by the message that answers each, and those without one."""
    answered = match_answers(trajectory)
    left = trajectory.tool_calls[: len(trajectory.tool_calls) - len(answered)]
    views = {place: _call_view(call, shown=call.result) for place, call in answered.items()}
    return views, [_call_view(call) for call in left]


def _turn_table(trajectory: Trajectory) -> Table | None:
    if not trajectory.turns:
        return None
    rows = [
        {
            "turn": place,
            "replica_id": turn.replica_id,
            "prompt_tokens": turn.prompt_tokens,
            "cached_tokens": turn.num_cached_tokens,
            "sampled_tokens": turn.end - turn.start,
            "finish_reason": str(turn.finish_reason),
            "attempts": turn.attempts,
            "queue_s": turn.queue_s,
            "first_token_s": turn.first_token_s,
            "total_s": turn.total_s,
        }
        for place, turn in enumerate(trajectory.turns, 1)
    ]
    numeric = {"cached_tokens": "Int64", "queue_s": "Float64", "first_token_s": "Float64"}
    return table_of(pd.DataFrame(rows).astype(numeric))
