r"""What a step makes larger: the reward of rollouts, each against the others of its group.

With the policy that sampled :math:`\mu`, the one that learns :math:`\pi`, the advantage
:math:`A_r` of a rollout and the share :math:`s_t` of a token in the average, a step follows

    gradient = sum over sampled tokens of  s_t * min(pi_t / mu_t, cap) * A_r * grad log pi_t

The weight ``pi / mu`` repairs that a token may come from older weights, or from an engine that
rounds in another way. It is cut, since a few large ones would be all that a step sees, and is a
constant for the gradient, so that a token whose weight was cut is still learned from.

Pure: tensors and numbers in, tensors and numbers out; no model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from workbench.learner.config import Average

SAME = 1e-6
"""Rewards whose spread is below this, as a share of the largest, are equal but for rounding."""


def group_advantages(rewards: Sequence[float | None], *, scale: bool = True) -> list[float]:
    """What each rollout of a group did better than the group, in the order given.

    Args:
        rewards: None for a rollout that has none: it takes no part, not even in the mean.
        scale: divide by the standard deviation (over the group as it is, not as a sample).

    Returns:
        0 for all where rewards do not differ, and for rollouts without one.
    """
    known = [reward for reward in rewards if reward is not None]
    if not known or max(known) - min(known) <= SAME * max(map(abs, known)):
        return [0.0] * len(rewards)
    mean = math.fsum(known) / len(known)
    spread = math.sqrt(math.fsum((reward - mean) ** 2 for reward in known) / len(known))
    unit = spread if scale else 1.0
    return [0.0 if reward is None else (reward - mean) / unit for reward in rewards]


def token_shares(sizes: Sequence[int], average: Average = "rollout") -> list[float]:
    """What one token of each rollout weighs in the step; over all tokens, the sum is 1.

    Args:
        sizes: sampled tokens of each rollout that is learned from, over all of its segments.
        average: ``rollout`` gives each rollout the same weight, and its tokens equal parts of it:
            a rollout that rambles, or was split into many rows, does not outvote the others.
            ``token`` gives each token the same weight.
    """
    if average == "token":
        return [1.0 / max(1, sum(sizes))] * len(sizes)
    spoken = sum(size > 0 for size in sizes)
    return [1.0 / (spoken * size) if size else 0.0 for size in sizes]


@dataclass(frozen=True, slots=True)
class TokenSums:
    """Over sampled tokens, each counted once."""

    tokens: int = 0
    weight: float = 0.0
    """Of the importance weights, before they are cut."""
    largest_weight: float = 0.0
    capped: int = 0
    """Tokens whose weight was cut."""
    kl: float = 0.0
    """Of the estimates ``w - 1 - log w`` of how far the learner is from who sampled, in nats."""

    def __add__(self, other: TokenSums) -> TokenSums:
        return TokenSums(
            self.tokens + other.tokens,
            self.weight + other.weight,
            max(self.largest_weight, other.largest_weight),
            self.capped + other.capped,
            self.kl + other.kl,
        )


def policy_loss(
    log_probs: torch.Tensor,
    sampled_log_probs: torch.Tensor,
    advantages: torch.Tensor,
    shares: torch.Tensor,
    cap: float,
) -> tuple[torch.Tensor, TokenSums]:
    """A scalar whose gradient a step goes down, and what there is to say about its tokens.

    All [T], one entry per sampled token. Losses of parts of a step add up to the step's.

    Args:
        log_probs: the learner's, with a gradient.
        sampled_log_probs: those that the tokens were sampled with.
        advantages: of each token's rollout.
        shares: of each token in the average; see :func:`token_shares`.
        cap: largest importance weight.
    """
    import torch

    with torch.no_grad():
        distance = log_probs - sampled_log_probs
        weights = distance.exp()
        used = weights.clamp(max=cap)
        sums = TokenSums(
            len(weights),
            float(weights.sum()),
            float(weights.max()) if len(weights) else 0.0,
            int((weights > cap).sum()),
            float((weights - 1 - distance).sum()),
        )
    return -(shares * used * advantages * log_probs).sum(), sums
