"""Messages ↔ tokens.

Where the ``renderers`` package knows a model it does the work. For any other model
:class:`TemplateRenderer` uses the model's own chat template, and extends a conversation without
tokenising again what was sampled: it renders a stand-in conversation with and without the new
messages, takes what the new ones add, and appends that to the ids that were sampled.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from workbench.errors import ConfigError, RolloutError, TaskError

Message = Mapping[str, Any]
"""A chat message in OpenAI's form: ``role``, ``content``, maybe ``tool_calls``."""
ToolSpecs = Sequence[Mapping[str, Any]]
"""Tools in OpenAI's function form."""


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """A tool call as the model wrote it."""

    name: str
    arguments: Mapping[str, Any] | None
    """None when they could not be read."""
    raw: str
    problem: str = ""
    """Why it cannot be executed as it stands, in words that the model can use."""


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """A completion in words."""

    text: str
    calls: tuple[ParsedCall, ...]

    def as_message(self) -> dict[str, Any]:
        """As an assistant message."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text}
        if self.calls:
            message["tool_calls"] = [
                {
                    "type": "function",
                    "function": {
                        "name": c.name,
                        "arguments": c.raw if c.arguments is None else c.arguments,
                    },
                }
                for c in self.calls
            ]
        return message


class Renderer(Protocol):
    """What an agent loop needs of a chat format."""

    pad_id: int

    def prompt(self, messages: Sequence[Message], tools: ToolSpecs = ()) -> list[int]:
        """Ids of a conversation, up to where the assistant's next turn begins."""
        ...

    def extend(
        self,
        prompt_ids: Sequence[int],
        completion_ids: Sequence[int],
        messages: Sequence[Message],
        tools: ToolSpecs = (),
    ) -> list[int] | None:
        """The next turn's prompt: both as they are, then ``messages``; None if it can't be done."""
        ...

    def parse(self, completion_ids: Sequence[int]) -> ParsedReply:
        """A completion in words and tool calls."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Plain text, special tokens and all."""
        ...


def make_renderer(model_dir: str, reference: str = "") -> Renderer:
    """The renderer of a model.

    Args:
        model_dir: a directory with a tokenizer.
        reference: the name it was asked for by; ``renderers`` knows models by their hub id.
    """
    from renderers.base import MODEL_RENDERER_MAP
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    if reference in MODEL_RENDERER_MAP:
        return KnownRenderer(tokenizer, reference)
    if not tokenizer.chat_template:
        raise ConfigError("model", f"{model_dir!r} has no chat template", allowed="a chat model")
    return TemplateRenderer(tokenizer)


class KnownRenderer:
    """A model that the ``renderers`` package has a renderer for."""

    def __init__(self, tokenizer: Any, reference: str) -> None:
        from renderers import create_renderer

        tokenizer.name_or_path = reference
        self._tokenizer = tokenizer
        self._renderer = create_renderer(tokenizer)
        self.pad_id: int = _pad_id(tokenizer)

    def prompt(self, messages: Sequence[Message], tools: ToolSpecs = ()) -> list[int]:
        """See :class:`Renderer`."""
        ids: list[int] = self._renderer.render_ids(
            _plain(messages), tools=_bare(tools), add_generation_prompt=True
        )
        return ids

    def extend(
        self,
        prompt_ids: Sequence[int],
        completion_ids: Sequence[int],
        messages: Sequence[Message],
        tools: ToolSpecs = (),
    ) -> list[int] | None:
        """See :class:`Renderer`."""
        bridged = self._renderer.bridge_to_next_turn(
            list(prompt_ids), list(completion_ids), _plain(messages), tools=_bare(tools)
        )
        return None if bridged is None else list(bridged.token_ids)

    def parse(self, completion_ids: Sequence[int]) -> ParsedReply:
        """See :class:`Renderer`."""
        parsed = self._renderer.parse_response(list(completion_ids))
        calls = tuple(
            ParsedCall(
                call.name or "",
                call.arguments if isinstance(call.arguments, Mapping) else None,
                call.raw,
                "" if call.status == "ok" else f"the call could not be read: {call.status}",
            )
            for call in parsed.tool_calls
        )
        return ParsedReply(parsed.content or "", calls)

    def decode(self, ids: Sequence[int]) -> str:
        """See :class:`Renderer`."""
        return str(self._tokenizer.decode(list(ids)))


class TemplateRenderer:
    """Any model with a chat template; tool calls as ``<tool_call>{…}</tool_call>``.

    A template without a section for tools gets them in words: a small model learns the form from
    calls in the conversation's examples, and where there are none a system message lists the
    tools. A tool's answer stands inside ``<tool_response>``, under the role ``tool`` where the
    template takes any role (measured to work better than ``user``).
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._has_tools = "tools" in tokenizer.chat_template
        self.pad_id: int = _pad_id(tokenizer)
        self._tool_role = "user"
        if not self._has_tools and self._takes_role("tool"):
            self._tool_role = "tool"

    def _takes_role(self, role: str) -> bool:
        said = [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}]
        try:
            text = self._tokenizer.apply_chat_template(
                [*said, {"role": role, "content": "probe"}], tokenize=False
            )
        except Exception:  # noqa: BLE001 - a template refuses in its own way
            return False
        return role in text and "probe" in text

    def prompt(self, messages: Sequence[Message], tools: ToolSpecs = ()) -> list[int]:
        """See :class:`Renderer`."""
        return self._render(messages, tools, open_turn=True)

    def extend(
        self,
        prompt_ids: Sequence[int],
        completion_ids: Sequence[int],
        messages: Sequence[Message],
        tools: ToolSpecs = (),
    ) -> list[int] | None:
        """See :class:`Renderer`."""
        stand_in = [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}]
        closed = self._render(stand_in, tools, open_turn=False)
        longer = self._render([*stand_in, *messages], tools, open_turn=True)
        if longer[: len(closed)] != closed:
            return None  # this template rewrites what came before
        close = self._close_of_turn(closed)
        if close is None:
            return None
        done = list(completion_ids)
        if done and done[-1] == close[0]:
            close = close[1:]  # the model closed its turn itself
        return [*prompt_ids, *done, *close, *longer[len(closed) :]]

    def _close_of_turn(self, closed: Sequence[int]) -> list[int] | None:
        """What the template puts after an assistant's words: the end token and what follows it."""
        end = self._tokenizer.eos_token_id
        if end not in closed:
            return None
        last = len(closed) - 1 - list(reversed(closed)).index(end)
        return list(closed[last:])

    def parse(self, completion_ids: Sequence[int]) -> ParsedReply:
        """See :class:`Renderer`."""
        text = self._tokenizer.decode(list(completion_ids), skip_special_tokens=True)
        return parse_tagged(text)

    def decode(self, ids: Sequence[int]) -> str:
        """See :class:`Renderer`."""
        return str(self._tokenizer.decode(list(ids)))

    def _render(
        self, messages: Sequence[Message], tools: ToolSpecs, *, open_turn: bool
    ) -> list[int]:
        extra: dict[str, Any] = {"tools": list(tools)} if tools and self._has_tools else {}
        said = (
            _plain(messages)
            if self._has_tools
            else _in_words(messages, tools, tool_role=self._tool_role)
        )
        try:
            ids = self._tokenizer.apply_chat_template(
                said, add_generation_prompt=open_turn, tokenize=True, return_dict=False, **extra
            )
        except Exception as error:  # a template may raise anything: it is the model's own code
            raise RolloutError(f"the chat template refused the messages: {error}") from error
        return list(ids)


_CALL = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|$)", re.DOTALL)


def parse_tagged(text: str) -> ParsedReply:
    """Read ``<tool_call>{"name": …, "arguments": {…}}</tool_call>`` out of a text."""
    calls = []
    for match in _CALL.finditer(text):
        raw = match.group(1)
        if not match.group(0).endswith("</tool_call>"):
            calls.append(ParsedCall("", None, raw, "the call has no closing </tool_call>"))
        else:
            calls.append(_parse_call(raw))
    return ParsedReply(_CALL.sub("", text).strip(), tuple(calls))


def _parse_call(raw: str) -> ParsedCall:
    try:
        call = json.loads(raw)
    except (ValueError, RecursionError) as error:
        return ParsedCall("", None, raw, f"the call is not JSON: {error}")
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return ParsedCall("", None, raw, 'the call has no "name"')
    arguments = call.get("arguments", {})
    if not isinstance(arguments, dict):
        return ParsedCall(call["name"], None, raw, '"arguments" is not an object')
    return ParsedCall(call["name"], arguments, raw)


def _in_words(
    messages: Sequence[Message], tools: ToolSpecs, *, tool_role: str
) -> list[dict[str, str]]:
    """Messages for a template that has no section for tools."""
    said = [_in_words_one(message, tool_role) for message in messages]
    if tools and not _has_examples(messages):
        if not said or said[0]["role"] != "system":
            said.insert(0, {"role": "system", "content": "Use the tools where they help."})
        listed = "\n".join(json.dumps(tool["function"]) for tool in tools)
        said[0]["content"] += (
            f"\n\nTools:\n{listed}\n\nCall one with "
            '<tool_call>{"name": ..., "arguments": {...}}</tool_call>.'
        )
    return said


def _has_examples(messages: Sequence[Message]) -> bool:
    """Whether a tool is called before the last thing that a user says: calls after it are new."""
    asked = [position for position, m in enumerate(messages) if m["role"] == "user"]
    return any(message.get("tool_calls") for message in messages[: asked[-1] if asked else 0])


def _in_words_one(message: Message, tool_role: str) -> dict[str, str]:
    role, content = message["role"], message.get("content") or ""
    if role == "tool":
        return {"role": tool_role, "content": f"<tool_response>{content}</tool_response>"}
    for call in message.get("tool_calls", ()):
        function = call["function"]
        spoken = {"name": function["name"], "arguments": function["arguments"]}
        content = f"{content}\n<tool_call>{json.dumps(spoken)}</tool_call>".strip()
    return {"role": role, "content": content}


def _plain(messages: Sequence[Message]) -> list[dict[str, Any]]:
    return [dict(message) for message in messages]


def _bare(tools: ToolSpecs) -> list[Any] | None:
    """``renderers`` takes the functions themselves."""
    return [tool["function"] for tool in tools] or None


def _pad_id(tokenizer: Any) -> int:
    for name in ("pad_token_id", "eos_token_id"):
        value = getattr(tokenizer, name, None)
        if value is not None:
            return int(value)
    return 0


ROLES = ("system", "developer", "user", "assistant", "tool")


def task_messages(fields: Mapping[str, Any]) -> list[Message]:
    """The conversation that a task opens with: its ``messages``, or its ``prompt`` as the user's.

    Raises:
        TaskError: it has neither, or they are not what they should be.
    """
    if fields.get("messages") is not None:
        messages = check_messages("messages", fields["messages"])
        if not messages:
            raise TaskError("messages", "is empty", allowed="at least one message")
        return messages
    if "prompt" not in fields:
        raise TaskError(
            "task",
            f"has neither a prompt nor messages, but {sorted(map(str, fields))}",
            allowed="prompt: a string, or messages: a list of {role, content}",
        )
    prompt = fields["prompt"]
    if not isinstance(prompt, str):
        raise TaskError("prompt", f"{prompt!r}", allowed="a string")
    return [{"role": "user", "content": prompt}]


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
        if message.get("content") is None and not message.get("tool_calls"):
            raise TaskError(f"{field}[{position}]", f"{message!r}", allowed="one with content")
    return checked
