"""What new messages add to a conversation, read off one that stands in for it.

The stand-in has a system message, a question and a reply of one word. The template's text of it,
with the new messages behind, is compared to its text up to where the reply begins: if it does not
begin with that, the template rewrites what came before. What follows the reply's word is what the
new messages add, whatever the real conversation's past is, so the past is neither rendered nor
read. The rest of this module is about where a reply ends.
"""

from __future__ import annotations

import enum
import itertools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workbench.errors import RolloutError
from workbench.rollout.rendering.parsing import THINK

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from workbench.rollout.rendering.messages import Message, ToolSpecs
    from workbench.rollout.rendering.speech import Speech

ASKED, SAID, THOUGHT = "StandInQuestion", "StandInReply", "StandInThought"
"""Words that a template leaves alone, and nobody else says."""

_ORDINARY = re.compile(r"[\w.-]+")


class Turn(enum.Enum):
    """What a turn's words were, as far as it matters to a template."""

    WORDS = "words"
    THOUGHTS_AND_WORDS = "thoughts, and then words"
    THOUGHTS = "thoughts that were not closed"


@dataclass(frozen=True, slots=True)
class Tail:
    """What follows the last word of a reply."""

    before: str
    """Between the word and the end token."""
    text: str
    """The end token and all that follows."""
    end: str
    """The end token."""


class StandIn:
    """Of one template.

    Args:
        speech: renders.
        added: tokens that no merge crosses: text is split at them first.
        ends: those that are known to end a turn. What the template itself puts behind a reply is
            added to them.
    """

    def __init__(self, speech: Speech, added: Iterable[str], ends: Iterable[str]) -> None:
        self._speech = speech
        self._added = sorted(added, key=len, reverse=True)
        system = {"role": "system", "content": "s"}
        self._head: list[Message] = [system] if speech.has_system else []
        self._head.append({"role": "user", "content": ASKED})
        closed = self._behind_reply([], open_turn=False)
        followed = self._behind_reply([{"role": "user", "content": ASKED}], open_turn=True)
        self.has_end = bool(closed)
        """Whether a turn has an end of its own, and not just another's beginning."""
        self.ends = {*ends, closed, followed} - {""}

    def _behind_reply(self, messages: Sequence[Message], *, open_turn: bool) -> str:
        """The token behind a reply; empty where there is none."""
        conversation = [*self._head, {"role": "assistant", "content": SAID}, *messages]
        try:
            text = self._speech.text(conversation, (), open_turn=open_turn)
        except RolloutError:
            return ""
        return self._first_token(text.rpartition(SAID)[2].lstrip())

    def _first_token(self, text: str) -> str:
        return next((token for token in self._added if text.startswith(token)), "")

    def opening(self, tools: ToolSpecs) -> str:
        """Up to where the reply begins."""
        return self._speech.text(self._head, tools, open_turn=True)

    def opens_thoughts(self) -> bool:
        """Whether a prompt ends inside thoughts."""
        try:
            return self.opening(()).rstrip().endswith(THINK)
        except RolloutError:  # then it refuses every prompt
            return False

    def tail(
        self, turn: Turn, messages: Sequence[Message], tools: ToolSpecs, *, has_thoughts: bool
    ) -> Tail:
        """What follows the last word of a turn.

        Args:
            turn: what its words were.
            messages: those that follow it.
            tools: those of the conversation.
            has_thoughts: whether earlier turns have thoughts.

        Raises:
            RolloutError: says why it cannot be known.
        """
        opening = self.opening(tools)
        if has_thoughts and turn is Turn.WORDS:
            self._longer(Turn.THOUGHTS_AND_WORDS, messages, tools)
        longer, has_calls = self._longer(turn, messages, tools)
        if not longer.startswith(opening):
            raise RolloutError("the chat template rewrites what came before")
        word = THOUGHT if turn is Turn.THOUGHTS else SAID
        position = longer.find(word, len(opening))
        if position < 0:
            raise RolloutError("the chat template rewrites what came before: the reply is gone")
        rest = longer[position + len(word) :]
        if has_calls:
            return self._behind_more(rest, keeps=False)
        if turn is Turn.THOUGHTS:
            return self._behind_more(rest, keeps=True)
        return self._behind_words(rest)

    def _longer(
        self, turn: Turn, messages: Sequence[Message], tools: ToolSpecs
    ) -> tuple[str, bool]:
        """The stand-in with the messages, and whether its reply calls the tools that answer."""
        calls = [] if turn is Turn.THOUGHTS else self._calls_for(messages)
        try:
            longer = self._text(_reply(turn, calls), messages, tools)
        except RolloutError:
            if not calls:
                raise
            calls = []  # it may take their answers without them, as where it takes one at a time
            longer = self._text(_reply(turn, calls), messages, tools)
        if turn is not Turn.WORDS and THOUGHT not in longer:
            roles = ", ".join(sorted({str(message["role"]) for message in messages}))
            raise RolloutError(
                f"the chat template drops what was thought before a message by: {roles}"
            )
        return longer, bool(calls)

    def _text(self, reply: Message, messages: Sequence[Message], tools: ToolSpecs) -> str:
        return self._speech.text([*self._head, reply, *messages], tools, open_turn=True)

    def _calls_for(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        """Calls that the leading tool messages answer, where the template shows calls."""
        if not self._speech.shows_calls:
            return []
        answers = itertools.takewhile(lambda message: message["role"] == "tool", messages)
        return [_call_for(answer) for answer in answers]

    def _behind_words(self, rest: str) -> Tail:
        text = rest.lstrip()
        end = self._first_token(text)
        if not end:
            raise RolloutError("the chat template puts no token of its own behind a turn")
        return Tail(rest[: len(rest) - len(text)], text, end)

    def _behind_more(self, rest: str, *, keeps: bool) -> Tail:
        """Behind what a turn has behind the stand-in's word.

        Args:
            rest: what follows the word.
            keeps: whether a turn that was cut at the word lacks what is before the end.
        """
        found = [(rest.find(end), -len(end), end) for end in self.ends if end in rest]
        if not found:
            raise RolloutError("the chat template puts no known end behind a turn")
        position, _, end = min(found)
        return Tail(rest[:position] if keeps else "", rest[position:], end)


def _reply(turn: Turn, calls: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A reply whose last word is known."""
    reply: dict[str, Any] = {"role": "assistant", "content": SAID}
    if turn is not Turn.WORDS:
        reply["reasoning_content"] = THOUGHT
    if turn is Turn.THOUGHTS or calls:
        reply["content"] = ""
    return {**reply, "tool_calls": calls} if calls else reply


def _call_for(answer: Message) -> dict[str, Any]:
    name = str(answer.get("name") or "")
    if not _ORDINARY.fullmatch(name):
        name = "tool"  # the model may have made it up, of any characters
    return {"type": "function", "function": {"name": name, "arguments": {"x": SAID}}}
