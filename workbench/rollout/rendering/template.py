"""Any model with a chat template."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench.errors import RolloutError
from workbench.rollout.rendering.forms import pad_id, sound
from workbench.rollout.rendering.parsing import THINK, THOUGHT, parser_for
from workbench.rollout.rendering.protocol import Bridge
from workbench.rollout.rendering.reading import Reader, decoded
from workbench.rollout.rendering.speech import Speech
from workbench.rollout.rendering.stand_in import StandIn, Tail, Turn

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from workbench.rollout.rendering.messages import Message, ToolSpecs
    from workbench.rollout.rendering.replies import ParsedReply


class TemplateRenderer:
    """Any model with a chat template.

    Args:
        tokenizer: of ``transformers``, with a chat template.
        end_ids: what ends a turn beside the tokenizer's own end token.
    """

    def __init__(self, tokenizer: Any, end_ids: Iterable[int] = ()) -> None:
        self.tokenizer = tokenizer
        self.pad_id: int = pad_id(tokenizer)
        self._speech = Speech(tokenizer)
        named = {i: str(token) for i, token in tokenizer.added_tokens_decoder.items()}
        self._id_of = {text: i for i, text in named.items()}
        ends = [named[i] for i in {tokenizer.eos_token_id, *end_ids} if i in named]
        self._stand_in = StandIn(self._speech, named.values(), ends)
        self._ends = {self._id_of[text] for text in self._stand_in.ends}
        self._in_thoughts = self._stand_in.opens_thoughts()
        self._read = Reader(
            tokenizer,
            parser_for(self._speech.template),
            ends=self._ends,
            in_thoughts=self._in_thoughts,
        )

    def prompt(self, messages: Sequence[Message], tools: ToolSpecs = ()) -> list[int]:
        """See :class:`Renderer`."""
        return self._encode(self._speech.text(messages, tools, open_turn=True))

    def extend(
        self,
        prompt_ids: Sequence[int],
        completion_ids: Sequence[int],
        messages: Sequence[Message],
        tools: ToolSpecs = (),
    ) -> Bridge:
        """See :class:`Renderer`."""
        done = list(completion_ids)
        try:
            turn = self._turn(done)
            had = self._has_thoughts(prompt_ids)
            tail = self._stand_in.tail(turn, messages, tools, has_thoughts=had)
            added = self._behind(done, turn, tail)
        except RolloutError as error:
            return Bridge(None, str(error))
        return Bridge([*prompt_ids, *done, *added])

    def _behind(self, done: Sequence[int], turn: Turn, tail: Tail) -> list[int]:
        """What comes behind a completion: of the turn's end, only what it has not said itself."""
        ids = self._encode(tail.text)
        end = self._id_of[tail.end]
        if ids[:1] != [end]:
            raise RolloutError(f"{tail.end!r} is no token where it stands")
        is_ended = bool(done) and (
            done[-1] == end or (self._stand_in.has_end and done[-1] in self._ends)
        )
        if not is_ended:
            return [*self._encode(tail.before), *ids]
        if turn is Turn.THOUGHTS:
            raise RolloutError("the turn ended inside its thoughts, which the format closes")
        return ids[1:]

    def _turn(self, done: Sequence[int]) -> Turn:
        if not self._speech.thinks:
            return Turn.WORDS
        text = self.decode(done)
        if THOUGHT in text:
            return Turn.THOUGHTS_AND_WORDS
        begins = text.lstrip().startswith(THINK) or self._in_thoughts
        return Turn.THOUGHTS if begins else Turn.WORDS

    def _has_thoughts(self, ids: Sequence[int]) -> bool:
        """Whether earlier turns may have thoughts."""
        if not self._speech.thinks:
            return False
        mark = self._id_of.get(THOUGHT)
        return mark is None or mark in ids

    def parse(self, completion_ids: Sequence[int], tools: ToolSpecs = ()) -> ParsedReply:  # noqa: ARG002
        """See :class:`Renderer`. Calls are JSON here, which tells numbers from strings."""
        return self._read(completion_ids)

    def decode(self, ids: Sequence[int]) -> str:
        """See :class:`Renderer`."""
        return decoded(self.tokenizer, ids)

    def _encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(sound(text), add_special_tokens=False))
