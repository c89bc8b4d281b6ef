"""Calls, answers and tools in words, for a template that has no section for tools."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workbench.rollout.rendering.messages import Message, ToolSpecs

Said = list[dict[str, str]]
"""Messages of role and content, and nothing else."""


def in_words(
    messages: Sequence[Message], tools: ToolSpecs, *, tool_role: str, has_system: bool
) -> Said:
    """Messages for a template that has no section for tools.

    Args:
        messages: the conversation.
        tools: listed in the system message, unless calls in examples show their form.
        tool_role: who brings a tool's answer. Where it is the user, answers that follow one
            another are one message, since many templates let roles alternate only.
        has_system: whether the template takes a system message; if not, the first user says it.
    """
    said = [_in_words_one(message, tool_role) for message in messages]
    if tool_role == "user":
        said = _joined(said, messages)
    if tools and not _has_examples(messages):
        if not said or said[0]["role"] != "system":
            said.insert(0, {"role": "system", "content": "Use the tools where they help."})
        listed = "\n".join(json.dumps(tool["function"]) for tool in tools)
        said[0]["content"] += (
            f"\n\nTools:\n{listed}\n\nCall one with "
            '<tool_call>{"name": ..., "arguments": {...}}</tool_call>.'
        )
    if not has_system and said and said[0]["role"] == "system":
        said = _told_by_user(said)
    return said


def _has_examples(messages: Sequence[Message]) -> bool:
    """Whether a tool is called before the last thing that a user says: calls after it are new."""
    asked = [position for position, m in enumerate(messages) if m["role"] == "user"]
    return any(message.get("tool_calls") for message in messages[: asked[-1] if asked else 0])


def _in_words_one(message: Message, tool_role: str) -> dict[str, str]:
    role, content = message["role"], message.get("content") or ""
    if role == "tool":
        return {"role": tool_role, "content": f"<tool_response>{content}</tool_response>"}
    return {"role": role, "content": calls_in_content(message)["content"]}


def calls_in_content(message: Message) -> dict[str, Any]:
    """For templates that show no ``tool_calls``: calls as the model writes them."""
    made = dict(message)
    content = made.get("content") or ""
    for call in made.pop("tool_calls", None) or ():
        function = call["function"]
        spoken = {"name": function["name"], "arguments": function["arguments"]}
        content = f"{content}\n<tool_call>{json.dumps(spoken)}</tool_call>".strip()
    return {**made, "content": content}


def _joined(said: Said, messages: Sequence[Message]) -> Said:
    """Answers of one turn, and what the user says behind them, as one message."""
    joined: Said = []
    follows_answer = False
    for one, message in zip(said, messages, strict=True):
        if follows_answer and one["role"] == "user":
            joined[-1]["content"] += f"\n{one['content']}"
        else:
            joined.append(one)
        follows_answer = message["role"] == "tool"
    return joined


def _told_by_user(said: Said) -> Said:
    told, *rest = said
    if not rest or rest[0]["role"] != "user":
        return [{"role": "user", "content": told["content"]}, *rest]
    return [{"role": "user", "content": f"{told['content']}\n\n{rest[0]['content']}"}, *rest[1:]]
