"""A turn goes where most of its prompt was sent before, unless that replica is overloaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.errors import ConfigError
from workbench.routing.policies.base import Need, Policy
from workbench.routing.policies.sticky import MARGIN, TOKENS_PER_REQUEST
from workbench.routing.prefix import BLOCK_TOKENS, MAX_BLOCKS, PrefixIndex

if TYPE_CHECKING:
    import random

    from workbench.routing.policies.base import Candidates, ReplicaView, Turn

MIN_SHARE = 0.3
"""Share of the prompt that has to be reusable before it counts (0–1): below, most of the prefill is
due anyway, and what is shared is likely the system prompt, which draws everybody to one replica."""


def total_tokens(turn: Turn) -> int:
    """Tokens of the prompt; at least what its blocks hold, where a client sends only those."""
    return max(turn.prompt_tokens, len(turn.blocks) * BLOCK_TOKENS)


def cached_tokens(turn: Turn, view: ReplicaView, pinned: ReplicaView | None, blocks: int) -> int:
    """Tokens of the prompt that the replica should have in its cache.

    The index knows the ``blocks`` of prompts. What was sampled after them is in the cache of the
    pinned replica only, and of use there if the prompt goes on from it: one that is shorter than
    the context was rewritten.
    """
    tokens = blocks * BLOCK_TOKENS
    if pinned is None or view.replica_id != pinned.replica_id:
        return tokens
    goes_on = turn.prompt_tokens >= turn.context_tokens
    return max(tokens, turn.context_tokens) if goes_on else tokens


class PrefixAware(Policy):
    """The replica with the longest known prefix of the prompt, else the least loaded.

    A prefix counts if it is ``min_share`` of the prompt and its replica is not overloaded: it may
    exceed the least loaded one by ``margin`` requests plus the worth of the prefill that is saved.
    A new session counts sessions alike, for its later turns will follow its first one: else all
    that share a beginning, opened one after the other, would pile up on one idle replica.

    Args:
        rng: for ties.
        min_share: 0–1.
        margin: requests.
        max_blocks: bound of the memory; see :class:`~workbench.routing.prefix.PrefixIndex`.

    Raises:
        ConfigError: a value is out of range.
    """

    name = "prefix-aware"
    needs = frozenset({Need.PROMPT_BLOCKS})

    def __init__(
        self,
        rng: random.Random,
        *,
        min_share: float = MIN_SHARE,
        margin: int = MARGIN,
        max_blocks: int = MAX_BLOCKS,
    ) -> None:
        if not 0 < min_share <= 1:
            raise ConfigError("min_share", f"{min_share} is no share", allowed="above 0, up to 1")
        if margin < 0:
            raise ConfigError("margin", f"{margin} is too small", allowed="0 or more")
        self._rng = rng
        self._min_share = min_share
        self._margin = margin
        self._index = PrefixIndex(max_blocks)

    def forget(self, replica_id: str) -> None:
        """What it had cached is gone with it."""
        self._index.forget(replica_id)

    def choose(self, turn: Turn, pinned: ReplicaView | None, candidates: Candidates) -> ReplicaView:
        """The best holder of the prompt's prefix, or the least loaded replica."""
        least = candidates.least_loaded()
        chosen = self._best_holder(turn, pinned, candidates, least) or least
        self._index.insert(turn.blocks, chosen.replica_id)
        return chosen

    def _best_holder(
        self, turn: Turn, pinned: ReplicaView | None, candidates: Candidates, least: ReplicaView
    ) -> ReplicaView | None:
        held = self._index.match(turn.blocks)
        on_least = cached_tokens(turn, least, pinned, held.get(least.replica_id, 0))
        needed = self._min_share * total_tokens(turn)
        fit: list[tuple[int, int, int, float, ReplicaView]] = []
        for view in candidates if held or pinned is not None else ():
            cached = cached_tokens(turn, view, pinned, held.get(view.replica_id, 0))
            allowed = self._margin + (cached - on_least) / TOKENS_PER_REQUEST
            if cached < needed or view.load > least.load + allowed:
                continue
            if pinned is None and view.num_sessions > least.num_sessions + allowed:
                continue
            chance = self._rng.random()
            fit.append((cached, -view.load, -view.num_sessions, chance, view))
        return max(fit)[-1] if fit else None
