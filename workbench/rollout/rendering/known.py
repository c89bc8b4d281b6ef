"""Models that the ``renderers`` package knows."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from workbench.errors import RolloutError
from workbench.rollout.rendering.forms import bare, pad_id, plain
from workbench.rollout.rendering.parsing import (
    THINK,
    THOUGHT,
    as_arguments,
    is_sound,
    parse_bare,
    parse_tagged,
)
from workbench.rollout.rendering.protocol import Bridge
from workbench.rollout.rendering.reading import Reader, decoded
from workbench.rollout.rendering.replies import ParsedCall, ParsedReply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workbench.rollout.rendering.messages import Message, ToolSpecs

log = logging.getLogger(__name__)

FINE = ("ok", "unknown_tool")
"""A call that can be executed, as far as reading it goes. So can one with texts that are no JSON,
where its format writes arguments as they are: whether they fit is for the tool to say."""
PROBLEMS = {
    "invalid_json": "its arguments are not JSON",
    "unclosed_block": "it was not closed",
    "missing_name": "it names no tool",
    "malformed_structure": "it does not have the form of a call",
}
"""What ``renderers`` finds wrong with a call, in words."""
OWN_PARSERS = {"llama-3": parse_bare, "qwen3": parse_tagged, "qwen3-vl": parse_tagged}
"""Formats whose calls are plain JSON. They are read here, by their text: ``renderers`` splits at
the end tag also where it stands in an argument, and takes bad JSON for words."""


class KnownRenderer:
    """A model that the ``renderers`` package has a renderer for.

    Args:
        tokenizer: of ``transformers``.
        reference: the model's name on the hub.
    """

    def __init__(self, tokenizer: Any, reference: str) -> None:
        from renderers import create_renderer
        from renderers.base import MODEL_RENDERER_MAP

        tokenizer.name_or_path = reference
        self.tokenizer = tokenizer
        self._reference = reference
        self._renderer = create_renderer(tokenizer)
        self.pad_id: int = pad_id(tokenizer)
        self._opening = self.prompt([{"role": "user", "content": "u"}])
        self._mark = tokenizer.convert_tokens_to_ids(THOUGHT)
        self._in_thoughts = self.decode(self._opening).rstrip().endswith(THINK)
        own = OWN_PARSERS.get(MODEL_RENDERER_MAP[reference])
        self._read = own and Reader(tokenizer, own, in_thoughts=self._in_thoughts)

    def prompt(self, messages: Sequence[Message], tools: ToolSpecs = ()) -> list[int]:
        """See :class:`Renderer`."""
        try:
            ids = self._renderer.render_ids(
                plain(messages), tools=bare(tools), add_generation_prompt=True
            )
        except Exception as error:  # what it refuses, and how, differs by model
            raise RolloutError(
                f"the renderer of {self._reference} refused the messages: {error}"
            ) from error
        return list(ids)

    def extend(
        self,
        prompt_ids: Sequence[int],
        completion_ids: Sequence[int],
        messages: Sequence[Message],
        tools: ToolSpecs = (),
    ) -> Bridge:
        """See :class:`Renderer`."""
        past = [*prompt_ids, *completion_ids]
        try:
            bridged = self._renderer.bridge_to_next_turn(
                list(prompt_ids), list(completion_ids), plain(messages), tools=bare(tools)
            )
        except Exception as error:  # noqa: BLE001 - as above; what is wrong shows in a full render
            return Bridge(None, f"the renderer of {self._reference} failed: {error}")
        if bridged is None:
            roles = ", ".join(sorted({str(message["role"]) for message in messages}))
            return Bridge(
                None, f"the format of {self._reference} rewrites what came before: {roles}"
            )
        ids = list(bridged.token_ids)
        if ids[: len(past)] != past:
            return Bridge(None, f"the renderer of {self._reference} changed what was sampled")
        return Bridge(ids)

    def parse(self, completion_ids: Sequence[int], tools: ToolSpecs = ()) -> ParsedReply:
        """See :class:`Renderer`."""
        if self._read is not None:
            return self._read(completion_ids)
        try:
            parsed = self._renderer.parse_response(
                list(completion_ids), tools=bare(tools), prompt_ids=self._opening
            )
        except Exception:  # it is made for what its model says, and a model may say anything
            log.warning("a reply could not be parsed", exc_info=True)
            return ParsedReply(self.decode(completion_ids), ())
        said_at = self._end_of_thoughts(completion_ids)
        calls = [
            call for call in parsed.tool_calls if (call.token_span or (said_at,))[0] >= said_at
        ]
        return ParsedReply(
            parsed.content or "",
            tuple(_call(call) for call in calls),
            parsed.reasoning_content or "",
        )

    def _end_of_thoughts(self, ids: Sequence[int]) -> int:
        """Where the thoughts end that a completion begins with; 0 where there are none."""
        begins = self._in_thoughts or self.decode(ids[:4]).lstrip().startswith(THINK)
        return list(ids).index(self._mark) if begins and self._mark in ids else 0

    def decode(self, ids: Sequence[int]) -> str:
        """See :class:`Renderer`."""
        return decoded(self.tokenizer, ids)


def _call(call: Any) -> ParsedCall:
    name, identity, status = call.name or "", call.id or "", str(call.status)
    arguments = as_arguments(call.arguments)
    if status not in FINE and not (status == "invalid_json" and arguments):
        problem = f"the call could not be read: {PROBLEMS.get(status, status)}"
        return ParsedCall(name, None, call.raw, problem, identity)
    if arguments is None or not is_sound(arguments):
        return ParsedCall(name, None, call.raw, "the call's arguments are no object", identity)
    return ParsedCall(name, arguments, call.raw, "", identity)
