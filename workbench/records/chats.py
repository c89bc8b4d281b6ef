"""Trajectories as chats, in the form in which trainers take data for fine-tuning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError
from workbench.records.plain import plain
from workbench.trajectory import RolloutStatus, Trajectory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


def sft_chats(
    trajectories: Iterable[Trajectory], *, keep: Callable[[Trajectory], bool] | None = None
) -> list[dict[str, Any]]:
    """One chat per rollout, in OpenAI's form.

    A chat has ``messages``, ``tools`` where the trajectory knows them (its ``extra["tools"]``),
    ``rollout_id`` and ``reward``. Each tool call has an ``id`` and its arguments as JSON text, each
    tool message the ``tool_call_id`` of the call that it answers.

    Args:
        trajectories: those without messages are left out.
        keep: which of the others to take; by default those that are done.
    """
    wanted = keep or _is_done
    return [_chat(t) for t in trajectories if t.messages and wanted(t)]


def write_chats(
    path: str | Path,
    trajectories: Iterable[Trajectory],
    *,
    keep: Callable[[Trajectory], bool] | None = None,
) -> int:
    """Write :func:`sft_chats` to a JSONL file, a chat per line; how many there were.

    Raises:
        ConfigError: the path does not end in ``.jsonl``, or cannot be written.
    """
    path = Path(path)
    if path.suffix != ".jsonl":
        raise ConfigError("path", f"{str(path)!r}", allowed="one in .jsonl")
    chats = sft_chats(trajectories, keep=keep)
    lines = [json.dumps(chat, allow_nan=False) + "\n" for chat in chats]
    try:
        path.write_text("".join(lines), encoding="utf-8")
    except OSError as error:
        raise ConfigError("path", f"{str(path)!r} cannot be written: {error}") from error
    return len(chats)


def _is_done(trajectory: Trajectory) -> bool:
    return trajectory.status is RolloutStatus.DONE


def _chat(trajectory: Trajectory) -> dict[str, Any]:
    chat = {"messages": _messages(plain(trajectory.messages))}
    tools = trajectory.extra.get("tools")
    if tools:
        chat["tools"] = plain(tools)
    return chat | {
        "rollout_id": plain(trajectory.rollout_id),
        "reward": plain(trajectory.reward),
    }


def _messages(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """With ids on calls and answers; answers without one are in the order of the calls."""
    calls = 0
    open_ids: list[str] = []
    for message in messages:
        if message.get("tool_calls"):
            numbered = enumerate(message["tool_calls"], start=calls)
            message["tool_calls"] = [_call(call, f"call_{number}") for number, call in numbered]
            calls += len(message["tool_calls"])
            open_ids = [call["id"] for call in message["tool_calls"]]
        elif message.get("role") == "tool":
            spare_id = open_ids[0] if open_ids else f"call_{calls}"
            answered = message["tool_call_id"] = message.get("tool_call_id") or spare_id
            open_ids = [other for other in open_ids if other != answered]
    return messages


def _call(call: Mapping[str, Any], spare_id: str) -> dict[str, Any]:
    function = dict(call.get("function", call))
    arguments = function.get("arguments", {})
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return {
        "id": call.get("id") or spare_id,
        "type": "function",
        "function": {"name": function.get("name", ""), "arguments": arguments},
    }
