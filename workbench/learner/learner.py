"""The learner: groups of rollouts in, other weights out."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.learner.config import LearnerConfig
from workbench.learner.figures import StepFigures
from workbench.learner.network import Network
from workbench.learner.objective import TokenSums, policy_loss
from workbench.learner.rows import Row, Selection, select
from workbench.learner.storing import load_state, save_state, write_weights
from workbench.learner.tree import Pack, packed
from workbench.models import resolve_model

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from workbench.trajectory import Trajectory

UNCHANGED = "no group has rollouts of different rewards that said something: nothing was changed"
FAR = "the rollouts' log-probabilities are not the learner's: are weights and temperature the same?"
FAR_FACTOR = 4.0
"""So many times off, in the mean of a step's importance weights, is not what staleness does."""
NOT_FINITE = "the gradient is not finite: nothing was changed"


class GRPOLearner:
    """Makes what did better than the rest of its group more likely; in this process.

    Nothing in it is random: the same steps give the same weights, on one machine and thread.

    Args:
        model: packaged name, local directory, or hub id.
        config: how it learns.

    Raises:
        ConfigError: there is no such model, or no such device.
    """

    def __init__(
        self, model: str | os.PathLike[str] = "smollm2-135m", config: LearnerConfig | None = None
    ) -> None:
        self.config = config or LearnerConfig()
        self.step_number = 0
        self._directory = resolve_model(str(model))
        self._network = Network(self._directory, self.config)

    def step(self, groups: Sequence[Sequence[Trajectory]]) -> StepFigures:
        """One change of the weights.

        Args:
            groups: each the rollouts of one task. Failed, cancelled and unrewarded ones may be
                among them, and take no part.

        Raises:
            ConfigError: a group has a single rollout.
        """
        began_s = time.perf_counter()
        chosen = select(groups, self.config)
        self._network.forget()
        loss, sums, computed = self._gradients(chosen.rows)
        norm, note = None, UNCHANGED
        if chosen.rows:
            norm = self._network.advance()
            note = "" if norm < float("inf") else NOT_FINITE
        self.step_number += 1
        wall_s = time.perf_counter() - began_s
        made = _figures(self.step_number, note, chosen, loss, sums)
        return dataclasses.replace(made, grad_norm=norm, computed_tokens=computed, wall_s=wall_s)

    def _gradients(self, rows: Sequence[Row]) -> tuple[float, TokenSums, int]:
        """Loss, sums over tokens, and how many tokens were computed."""
        loss, sums, computed = 0.0, TokenSums(), 0
        for pack in packed([row.ids for row in rows], self.config.tokens_per_pass):
            value, told = self._pass([rows[number] for number in pack.numbers], pack)
            loss, sums, computed = loss + value, sums + told, computed + len(pack.tree)
        return loss, sums, computed

    def _pass(self, rows: Sequence[Row], pack: Pack) -> tuple[float, TokenSums]:
        import torch

        log_probs = self._network.log_probs(rows, pack)

        def per_token(values: list[float]) -> torch.Tensor:
            return torch.tensor(values, dtype=log_probs.dtype, device=log_probs.device)

        value, told = policy_loss(
            log_probs,
            per_token([log_prob for row in rows for log_prob in row.log_probs]),
            per_token([row.advantage for row in rows for _ in row.targets]),
            per_token([row.share for row in rows for _ in row.targets]),
            self.config.importance_cap,
        )
        value.backward()
        return float(value.detach()), told

    def write_weights(self, folder: str | os.PathLike[str]) -> Path:
        """Put the weights down as a model's directory, for ``update_weights`` or anything else.

        It appears when it is complete, in the place of what was there. Returns it.
        """
        write_weights(self._network, self._directory, Path(folder))
        return Path(folder)

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Put down all that a learner goes on from; what was saved before stays until it is there.

        Returns the directory of the weights in it.
        """
        return save_state(self._network, self._directory, Path(folder), self.step_number)

    def load(self, folder: str | os.PathLike[str]) -> int:
        """Go on, to the bit, from where a learner of the same model was saved; at which step.

        What is configured stays as it is here.

        Raises:
            ConfigError: nothing was saved there, or of another model.
        """
        self.step_number = load_state(self._network, Path(folder))
        return self.step_number


def _figures(step: int, note: str, chosen: Selection, loss: float, sums: TokenSums) -> StepFigures:
    rewards, tokens = chosen.rewards, sums.tokens
    mean_weight = sums.weight / tokens if tokens else None
    is_far = mean_weight is not None and not 1 / FAR_FACTOR < mean_weight < FAR_FACTOR
    return StepFigures(
        step=step,
        changed=not note,
        note=note or (FAR if is_far else ""),
        groups=chosen.groups,
        differing=chosen.differing,
        rollouts=chosen.rollouts,
        left_out=chosen.rollouts - len(rewards),
        rewarded=len(rewards),
        reward=sum(rewards) / len(rewards) if rewards else None,
        tokens=tokens,
        computed_tokens=0,
        loss=loss if tokens else None,
        grad_norm=None,
        kl=sums.kl / tokens if tokens else None,
        mean_weight=mean_weight,
        largest_weight=sums.largest_weight if tokens else None,
        capped_share=sums.capped / tokens if tokens else None,
        wall_s=0.0,
    )
