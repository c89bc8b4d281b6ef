"""How much a model can read at once, and what becomes of prompts that are longer. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from workbench.errors import ConfigError, RolloutError

if TYPE_CHECKING:
    from collections.abc import Sequence

Overlong = Literal["reject", "cut-left"]


@dataclass(frozen=True, slots=True)
class ContextRules:
    """What all rollouts of a batch hold to.

    Raises:
        ConfigError: a limit that is none, or a policy that there is not.
    """

    max_tokens: int | None = None
    """Prompt and completion together; None when unknown, and then the engine refuses."""
    max_prompt_tokens: int | None = None
    """Of the first prompt. None for what the context has room for; a prompt that is cut is then cut
    to half of the context, so that something can be answered."""
    overlong: Overlong = "reject"
    """``reject`` makes a failed row; ``cut-left`` keeps the end of the prompt, and notes it."""

    def __post_init__(self) -> None:
        if self.overlong not in get_args(Overlong):
            raise ConfigError("overlong", f"{self.overlong!r}", allowed=list(get_args(Overlong)))
        for name, least in {"max_tokens": 2, "max_prompt_tokens": 1}.items():
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < least):
                allowed = f"a whole number from {least}, or None"
                raise ConfigError(name, f"{value!r}", allowed=allowed)

    def room(self, prompt_tokens: int) -> int | None:
        """Tokens that fit behind a prompt, below 1 when none do; None when unknown."""
        return None if self.max_tokens is None else self.max_tokens - prompt_tokens

    def fit(self, prompt_ids: Sequence[int]) -> tuple[list[int], str]:
        """A first prompt as it is sent, and what was done to it, empty when nothing was.

        Raises:
            RolloutError: it is too long, and is to be rejected.
        """
        longest = self._longest()
        size = len(prompt_ids)
        if longest is None or size <= longest:
            return list(prompt_ids), ""
        if self.overlong == "reject":
            raise RolloutError(f"the prompt has {size} tokens, {longest} are allowed")
        kept = self.max_prompt_tokens or max(1, (self.max_tokens or longest) // 2)
        kept = min(kept, longest)
        return list(prompt_ids[-kept:]), f"the prompt was cut on the left, from {size} to {kept}"

    def _longest(self) -> int | None:
        limits = [] if self.max_tokens is None else [self.max_tokens - 1]
        limits += [] if self.max_prompt_tokens is None else [self.max_prompt_tokens]
        return min(limits, default=None)
