"""Messages and tools in the forms that renderers and templates take."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from workbench.rollout.rendering.messages import Message, ToolSpecs


def plain(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages that may be written to, in characters that there are."""
    return [
        {key: sound(value) if isinstance(value, str) else value for key, value in message.items()}
        for message in messages
    ]


def sound(text: str) -> str:
    """A text without halves of characters, which no tokenizer takes: a tool may return some."""
    return text.encode(errors="replace").decode()


def bare(tools: ToolSpecs) -> list[Any] | None:
    """The functions themselves, as ``renderers`` takes them."""
    return [tool["function"] for tool in tools] or None


def pad_id(tokenizer: Any) -> int:
    """What rows are filled up with: the padding token, or else the end token."""
    for name in ("pad_token_id", "eos_token_id"):
        value = getattr(tokenizer, name, None)
        if value is not None:
            return int(value)
    return 0


def with_ids(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages in which calls and their answers name each other: some templates insist on it.

    Names that are missing count from 0 in each turn, and have the nine characters that Mistral's
    templates ask for.
    """
    made = plain(messages)
    for position, message in enumerate(made):
        if message.get("tool_calls"):
            _name_calls(message, _answers(made, position + 1))
    return made


def _answers(messages: Sequence[dict[str, Any]], start: int) -> Iterator[dict[str, Any]]:
    for message in messages[start:]:
        if message["role"] != "tool":
            return
        yield message


def _name_calls(message: dict[str, Any], answers: Iterator[dict[str, Any]]) -> None:
    named = []
    for number, call in enumerate(message["tool_calls"]):
        answer = next(answers, {})
        identity = call.get("id") or answer.get("tool_call_id") or f"call{number:05}"
        answer.setdefault("tool_call_id", identity)
        named.append({**call, "id": identity})
    message["tool_calls"] = named


def thoughts_in_content(message: Message) -> dict[str, Any]:
    """For templates that know no ``reasoning_content``: thoughts where the model had put them."""
    made = dict(message)
    thoughts = made.pop("reasoning_content", None)
    if thoughts:
        made["content"] = f"<think>\n{thoughts}\n</think>\n\n{made.get('content') or ''}"
    return made


def with_text_arguments(message: Message) -> dict[str, Any]:
    """For templates that take a call's arguments as a string."""
    made = dict(message)
    if made.get("tool_calls"):
        made["tool_calls"] = [_as_text(call) for call in made["tool_calls"]]
    return made


def _as_text(call: dict[str, Any]) -> dict[str, Any]:
    function = call["function"]
    arguments = function["arguments"]
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {**call, "function": {**function, "arguments": text}}
