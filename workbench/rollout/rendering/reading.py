"""A completion's tokens as what a model said."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench.rollout.rendering.parsing import MARKS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from workbench.rollout.rendering.parsing import Parser
    from workbench.rollout.rendering.replies import ParsedReply


class Reader:
    """Reads completions by their text.

    Args:
        tokenizer: of ``transformers``.
        parse: of the form that the model writes calls in.
        ends: what ends a turn, beside the special tokens.
        in_thoughts: whether a prompt ends inside thoughts.
    """

    def __init__(
        self, tokenizer: Any, parse: Parser, *, ends: Iterable[int] = (), in_thoughts: bool = False
    ) -> None:
        self._tokenizer = tokenizer
        self._parse = parse
        self._in_thoughts = in_thoughts
        added = tokenizer.added_tokens_decoder.items()
        self._unsaid = {i for i, token in added if token.special and str(token) not in MARKS}
        self._unsaid.update(ends)

    def __call__(self, ids: Sequence[int]) -> ParsedReply:
        """Read a completion. Special tokens are no words, but for those that mark a call."""
        text = decoded(self._tokenizer, [i for i in ids if i not in self._unsaid])
        return self._parse(text, in_thoughts=self._in_thoughts)


def decoded(tokenizer: Any, ids: Sequence[int]) -> str:
    """The text of ids, special tokens and all, as it is."""
    return str(tokenizer.decode(list(ids), clean_up_tokenization_spaces=False))
