"""A trajectory as a conversation to read: messages, tool calls with their outcome, turns. Pure.

Everything in it is text as the model, the tools and the task wrote it: hostile until escaped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from widgets.tables import Table, number, table_of
from widgets.theme import MISSING
from workbench.rollout.trajectory import RolloutStatus, ToolCall, Trajectory

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
    turns = _match_turns(trajectory)
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


def content_text(content: object) -> str:
    """A message's content as text; parts that are not text are shown as JSON."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        return "\n".join(_part_text(part) for part in content)
    return _json(content)


def _part_text(part: object) -> str:
    if isinstance(part, Mapping) and isinstance(part.get("text"), str):
        return str(part["text"])
    return part if isinstance(part, str) else _json(part)


def _json(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)


def _facts(trajectory: Trajectory) -> list[tuple[str, str]]:
    versions = trajectory.versions
    facts = [
        ("reward", MISSING if trajectory.reward is None else f"{trajectory.reward:.4g}"),
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
    return facts


def _written(message: Mapping[str, Any]) -> list[tuple[str, str]]:
    calls = message.get("tool_calls") or ()
    functions = [call.get("function", call) for call in calls if isinstance(call, Mapping)]
    return [
        (cut(str(function.get("name") or MISSING)), cut(_json(function.get("arguments", ""))))
        for function in functions
    ]


def _call_view(call: ToolCall, shown: str = "") -> CallView:
    """A recorded call; its error only where what is shown anyway does not say it."""
    outcome = "malformed" if not call.well_formed else "failed" if call.error else "well-formed"
    return CallView(
        name=cut(call.name) or MISSING,
        arguments=cut(_json(dict(call.arguments))),
        outcome=outcome,
        error="" if call.error in shown else cut(call.error),
        seconds=f"{call.seconds_s:,.2f} s",
    )


def _match_answers(trajectory: Trajectory) -> tuple[dict[int, CallView], list[CallView]]:
    """Tool calls by the message that answers each, and those without one.

    From the end, since examples before the task may hold tool messages too.
    """
    places = [i for i, message in enumerate(trajectory.messages) if message.get("role") == "tool"]
    left = list(trajectory.tool_calls)
    answered = {}
    for place in reversed(places):
        if left and left[-1].result == trajectory.messages[place].get("content"):
            call = left.pop()
            answered[place] = _call_view(call, shown=call.result)
    return answered, [_call_view(call) for call in left]


def _match_turns(trajectory: Trajectory) -> dict[int, int]:
    """The number of the turn, from 1, that wrote a message, where that is certain."""
    places = [i for i, m in enumerate(trajectory.messages) if m.get("role") == "assistant"]
    turns = trajectory.num_turns
    is_whole = trajectory.status is not RolloutStatus.FAILED
    if not turns or not (len(places) == turns or (is_whole and len(places) > turns)):
        return {}
    return {place: number for number, place in enumerate(places[-turns:], 1)}


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
