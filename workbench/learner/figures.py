"""What there is to say about a step of a learner. Frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from workbench.metrics.aggregation import Aggregation, Declared, MeanBy
from workbench.types import ByFields

_TOKENS, _ROLLOUTS = MeanBy("tokens"), MeanBy("rewarded")


@dataclass(frozen=True, slots=True)
class StepFigures(ByFields):
    """Of one step. ``None`` where there was nothing to measure."""

    step: int
    """From 1; a step that changed nothing counts."""
    changed: bool
    """Whether the weights are others now."""
    note: str
    """Why they are not, or what is odd about the step; empty where all is well."""
    groups: int
    differing: int
    """Groups with rollouts of different rewards: only these are learned from."""
    rollouts: int
    left_out: int
    """Rollouts that failed, were cancelled, have no reward or no log-probabilities."""
    rewarded: int
    """Rollouts that take part, in groups that differ or not."""
    reward: float | None
    """Mean over these."""
    tokens: int
    """Sampled tokens that were learned from."""
    computed_tokens: int
    """Tokens that went through the model, those that rows share counted once."""
    loss: float | None
    grad_norm: float | None
    """Before it was clipped."""
    kl: float | None
    """Estimate of how far the learner was from who sampled, per token, in nats."""
    mean_weight: float | None
    """Of the tokens' importance weights, before they are cut."""
    largest_weight: float | None
    capped_share: float | None
    """Of the tokens: those whose weight was cut."""
    wall_s: float

    AGGREGATION: ClassVar[Declared] = {
        "step": Aggregation.LAST,
        "changed": Aggregation.SUM,
        "note": Aggregation.LAST,
        **dict.fromkeys(("groups", "differing", "rollouts", "left_out"), Aggregation.SUM),
        **dict.fromkeys(("rewarded", "tokens", "computed_tokens", "wall_s"), Aggregation.SUM),
        "reward": _ROLLOUTS,
        "loss": Aggregation.MEAN,
        "grad_norm": Aggregation.MEAN,
        **dict.fromkeys(("kl", "mean_weight", "capped_share"), _TOKENS),
        "largest_weight": Aggregation.MAX,
    }
    """How each is brought together over steps; see :mod:`workbench.metrics.aggregation`."""
