"""A prompt in words, and the answer."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workbench.rollout.rendering import Message, task_messages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workbench.facade.opening import Opened
    from workbench.types import TokenOutput

MAX_TOKENS = 256
"""Of an answer, unless more are asked for."""

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer in words, with the tokens it was made of."""

    text: str
    prompt_ids: list[int]
    output: TokenOutput

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Reply({self.text!r}, {len(self.prompt_ids)} prompt tokens, {self.output})"


async def ask(
    pool: Opened, prompt: str | Sequence[Message], session: str | None, sampling: dict[str, Any]
) -> Reply:
    """Put a prompt, or a conversation, to the model."""
    renderer = await pool.players.renderer()
    asked = {"prompt": prompt} if isinstance(prompt, str) else {"messages": prompt}
    prompt_ids = renderer.prompt(task_messages(asked))
    output = await pool.client.generate(
        session or f"ask-{next(_numbers)}",
        prompt_ids=prompt_ids,
        sampling_params={"max_tokens": MAX_TOKENS, **sampling},
    )
    return Reply(renderer.parse(output.token_ids).text, prompt_ids, output)
