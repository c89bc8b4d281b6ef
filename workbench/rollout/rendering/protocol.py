"""What an agent loop needs of a chat format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workbench.rollout.rendering.messages import Message, ToolSpecs
    from workbench.rollout.rendering.replies import ParsedReply


class Bridge(NamedTuple):
    """From one turn's tokens to the next turn's prompt."""

    ids: list[int] | None
    """Start with the last prompt and completion, to the token; None where that can't be done."""
    reason: str = ""
    """Why there are none, in words."""


class Renderer(Protocol):
    """What an agent loop needs of a chat format."""

    pad_id: int
    tokenizer: Any
    """The model's, as transformers has it."""

    def prompt(self, messages: Sequence[Message], tools: ToolSpecs = ()) -> list[int]:
        """Ids of a conversation, up to where the assistant's next turn begins.

        Raises:
            RolloutError: the chat format refuses the messages; says what it said.
        """
        ...

    def extend(
        self,
        prompt_ids: Sequence[int],
        completion_ids: Sequence[int],
        messages: Sequence[Message],
        tools: ToolSpecs = (),
    ) -> Bridge:
        """The next turn's prompt: both as they are, then ``messages``.

        Args:
            prompt_ids: what the last turn was sampled behind.
            completion_ids: what was sampled, with the end token if it was.
            messages: what was said to it; nothing that an assistant said.
            tools: those of the conversation.
        """
        ...

    def parse(self, completion_ids: Sequence[int], tools: ToolSpecs = ()) -> ParsedReply:
        """A completion in words, thoughts and tool calls; never raises.

        Args:
            completion_ids: what was sampled.
            tools: those of the conversation. Some formats write every argument as a bare text,
                and only the tool says whether ``12`` is a number or a string.
        """
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Plain text, special tokens and all."""
        ...
