"""A conversation in OpenAI's form, as tasks and loops give it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from workbench.errors import TaskError

Message = Mapping[str, Any]
"""A chat message in OpenAI's form: ``role``, ``content``, maybe ``tool_calls``."""
ToolSpecs = Sequence[Mapping[str, Any]]
"""Tools in OpenAI's function form."""

ROLES = ("system", "developer", "user", "assistant", "tool")


def task_messages(fields: Mapping[str, Any]) -> list[Message]:
    """The conversation that a task opens with.

    That is its ``messages``; or its ``raw_prompt``, the same by another name; or its ``prompt``: a
    list of messages, or a string, which is what the user says.

    Raises:
        TaskError: it has none of them, or what it has is no conversation.
    """
    for name in ("messages", "raw_prompt", "prompt"):
        if fields.get(name) is not None:
            return _opening(name, fields[name])
    raise TaskError(
        "task",
        f"has no prompt and no messages, but {sorted(map(str, fields))}",
        allowed="prompt: a string, or messages (or raw_prompt): a list of {role, content}",
    )


def _opening(name: str, said: Any) -> list[Message]:
    if name == "prompt" and isinstance(said, str):
        return [{"role": "user", "content": said}]
    if name == "prompt" and not isinstance(said, Iterable):
        raise TaskError(name, f"{said!r}", allowed="a string, or a list of {role, content}")
    messages = check_messages(name, said)
    if not messages:
        raise TaskError(name, "is empty", allowed="at least one message")
    return messages


def check_messages(field: str, messages: Any) -> list[Message]:
    """Messages as a list.

    Raises:
        TaskError: they are none; names the first that is not.
    """
    if isinstance(messages, str | Mapping) or not isinstance(messages, Iterable):
        raise TaskError(field, f"{messages!r}", allowed="a list of {role, content}")
    checked = list(messages)
    for position, message in enumerate(checked):
        if not isinstance(message, Mapping) or message.get("role") not in ROLES:
            raise TaskError(
                f"{field}[{position}]", f"{message!r}", allowed=f"a role among {', '.join(ROLES)}"
            )
        checked[position] = _with_text(f"{field}[{position}]", message)
    return checked


def _with_text(field: str, message: Message) -> Message:
    """The message with its content as a text; parts that are text are joined."""
    content = message.get("content")
    if isinstance(content, str) or (content is None and message.get("tool_calls")):
        return message
    if content is None:
        raise TaskError(field, f"{message!r}", allowed="one with content")
    parts = content if isinstance(content, list | tuple) else [content]
    texts = [part.get("text") if isinstance(part, Mapping) else None for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise TaskError(
            f"{field}.content", f"{content!r}", allowed="a text, or parts that are text"
        )
    return {**message, "content": "".join(map(str, texts))}
