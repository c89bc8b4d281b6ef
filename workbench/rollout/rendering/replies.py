"""What a model said: words, thoughts and tool calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """A tool call as the model wrote it."""

    name: str
    arguments: Mapping[str, Any] | None
    """None when they could not be read."""
    raw: str
    problem: str = ""
    """Why it cannot be executed as it stands, in words that the model can use."""
    id: str = ""
    """The call's own name, in formats where the model gives it one; its answer repeats it as
    ``tool_call_id``."""


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """A completion in words."""

    text: str
    calls: tuple[ParsedCall, ...]
    thoughts: str = ""
    """What it thought before; a call that stands in there is none."""

    def as_message(self) -> dict[str, Any]:
        """As an assistant message."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text}
        if self.thoughts:
            message["reasoning_content"] = self.thoughts
        if self.calls:
            message["tool_calls"] = [_as_tool_call(call) for call in self.calls]
        return message


def _as_tool_call(call: ParsedCall) -> dict[str, Any]:
    arguments = call.raw if call.arguments is None else call.arguments
    made = {"type": "function", "function": {"name": call.name, "arguments": arguments}}
    return {"id": call.id, **made} if call.id else made
