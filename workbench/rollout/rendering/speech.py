"""A conversation as the text that a chat template makes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench.errors import RolloutError
from workbench.rollout.rendering.forms import thoughts_in_content, with_ids, with_text_arguments
from workbench.rollout.rendering.words import calls_in_content, in_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from workbench.rollout.rendering.messages import Message, ToolSpecs

USER = {"role": "user", "content": "u"}
REPLY = {"role": "assistant", "content": "a"}
CALLING = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"probe": 1}}}],
}
ANSWER = {"role": "tool", "name": "f", "content": "2"}


class Speech:
    """What a template takes is tried out once; messages are then put as it takes them.

    A template without a section for tools gets them in words: a small model learns the form from
    calls in the conversation's examples, and where there are none a system message lists the
    tools. A tool's answer stands inside ``<tool_response>``, under the role ``tool`` where the
    template takes any role (measured to work better than ``user``).

    Args:
        tokenizer: of ``transformers``, with a chat template.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.template = _source(tokenizer.chat_template)
        self.has_tools = "tools" in self.template
        self.thinks = "think>" in self.template
        self._knows_thoughts = "reasoning_content" in self.template
        self.has_system = self._takes([{"role": "system", "content": "probe"}, USER], "probe")
        self._tool_role = "user"
        self._arguments_as_text = self.shows_calls = False
        if self.has_tools:
            self._learn_calls()
        elif self._takes([USER, REPLY, {"role": "tool", "content": "probe"}], "tool", "probe"):
            self._tool_role = "tool"

    def _learn_calls(self) -> None:
        called = with_ids([USER, CALLING, ANSWER])
        as_text = [with_text_arguments(message) for message in called]
        self.shows_calls = self._takes(called, "probe")
        if not self.shows_calls and self._takes(as_text, "probe"):
            self.shows_calls = self._arguments_as_text = True

    def _takes(self, messages: Sequence[Message], *shown: str) -> bool:
        try:
            text = self._apply(messages, (), open_turn=False)
        except RolloutError:
            return False
        return all(part in text for part in shown)

    def text(self, messages: Sequence[Message], tools: ToolSpecs, *, open_turn: bool) -> str:
        """The conversation in the template's words.

        Args:
            messages: what was said.
            tools: what may be called.
            open_turn: whether the assistant's next turn is begun.

        Raises:
            RolloutError: the template refuses the messages; says what it said.
        """
        said = list(messages)
        if not self._knows_thoughts:
            said = [thoughts_in_content(message) for message in said]
        if not self.has_tools:
            spoken = in_words(said, tools, tool_role=self._tool_role, has_system=self.has_system)
            return self._apply(spoken, (), open_turn=open_turn)
        if not self.shows_calls:
            return self._apply(map(calls_in_content, said), tools, open_turn=open_turn)
        named = with_ids(said)
        if self._arguments_as_text:
            named = [with_text_arguments(message) for message in named]
        return self._apply(named, tools, open_turn=open_turn)

    def _apply(self, said: Iterable[Message], tools: ToolSpecs, *, open_turn: bool) -> str:
        extra: dict[str, Any] = {"tools": list(tools)} if tools else {}
        try:
            text = self._tokenizer.apply_chat_template(
                list(said), add_generation_prompt=open_turn, tokenize=False, **extra
            )
        except Exception as error:  # a template may raise anything: it is the model's own code
            raise RolloutError(f"the chat template refused the messages: {error}") from error
        return str(text)


def _source(template: Any) -> str:
    """The template's text; of all of them where a tokenizer has several."""
    return template if isinstance(template, str) else "\n".join(map(str, template.values()))
