"""A learner in a process of its own, as a notebook or a script holds it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar

import pandas as pd

from workbench.aio import polite
from workbench.errors import ConfigError
from workbench.learner.figures import StepFigures
from workbench.metrics.aggregation import aggregate
from workbench.showing import table
from workbench.stream.groups import Group, GroupBatch
from workbench.trajectory import Trajectory

if TYPE_CHECKING:
    import os
    from collections.abc import Coroutine
    from pathlib import Path

    from workbench.cluster.learner import RayLearner
    from workbench.facade.reach import Reach

    Learnable = GroupBatch | Sequence[Group] | Sequence[Sequence[Trajectory]]

T = TypeVar("T")


class Learner:
    """Learns from groups of rollouts by comparing their rewards; see ``docs/learner.md``.

    Methods with an ``a`` in front are for an ``await``; the others block, and rollouts go on.
    """

    def __init__(self, port: RayLearner, reach: Reach, former: Learner | None = None) -> None:
        self._port = port
        self._reach = reach
        self._former = former
        """Whose weights the pool is on until this one's are published."""

    def step(self, batch: Learnable) -> StepFigures:
        """Change the weights once.

        Args:
            batch: of a stream; or the rollouts of each task, at least two of them.

        Raises:
            ConfigError: a group has a single rollout: there is nothing to compare it with.
            LearnerDiedError: its process is gone.
        """
        return self._call(self._port.step(_groups(batch)))

    async def astep(self, batch: Learnable) -> StepFigures:
        """:meth:`step` for an ``await``."""
        return await self._acall(self._port.step(_groups(batch)))

    def weights(self) -> Path:
        """Write the weights as they are now; the directory, which a pool can be given.

        Raises:
            LearnerDiedError: its process is gone.
        """
        return self._call(self._port.weights())

    async def aweights(self) -> Path:
        """:meth:`weights` for an ``await``."""
        return await self._acall(self._port.weights())

    def published(self, directory: Path) -> None:
        """A pool is on these weights: those that were written before are removed."""
        self._port.keep_only(directory)
        self._drop_former()

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write everything down that it takes to go on, as a whole or not at all.

        Raises:
            LearnerDiedError: its process is gone.
        """
        return self._call(self._port.save(folder))

    def load(self, folder: str | os.PathLike[str]) -> int:
        """Go on from what was saved; the number of the last step there.

        Raises:
            ConfigError: nothing was saved there, or of another model.
            LearnerDiedError: its process is gone.
        """
        return self._call(self._port.load(folder))

    def restart(self) -> None:
        """Have a process again where the old one died, with the model as it was at first."""
        self._call(self._port.start())

    def history(self) -> pd.DataFrame:
        """A row per step."""
        rows = [_row(figures) for figures in self._port.figures]
        return pd.DataFrame(rows, columns=list(StepFigures.AGGREGATION))

    def summary(self) -> pd.Series[Any]:
        """All steps as one: sums, means and maxima, as each figure declares."""
        return aggregate(self.history(), StepFigures.AGGREGATION)

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._port.pid

    @property
    def gpus(self) -> int:
        """That its process has."""
        return self._port.gpus

    def close(self) -> None:
        """End its process. Idempotent.

        The weights that it wrote last stay, since a replica that is replaced reads them: until
        another learner of its name has published, or its pool is closed.
        """
        self._port.end()

    def drop(self) -> None:
        """:meth:`close`, and remove the weights that it wrote."""
        self._port.close()
        self._drop_former()

    def _drop_former(self) -> None:
        if self._former is not None:
            self._former.drop()
            self._former = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        last = self._port.figures[-1] if self._port.figures else None
        reward = "" if last is None or last.reward is None else f", reward {last.reward:.3f}"
        return f"Learner({self._port.model!r}, step {last.step if last else 0}{reward})"

    def _repr_html_(self) -> str:
        rows = [_row(figures) for figures in self._port.figures[-5:]]
        return table(f"Learner: {self._port.model}", rows or [{"steps": 0}])

    def _call(self, coro: Coroutine[Any, Any, T]) -> T:
        return self._reach.call(coro)

    async def _acall(self, coro: Coroutine[Any, Any, T]) -> T:
        return await polite(self._reach.loop.submit(self._reach.while_open(coro)))


def _groups(batch: Learnable) -> Sequence[Sequence[Trajectory]]:
    groups = [
        group.trajectories if isinstance(group, Group) else group
        for group in (batch.groups if isinstance(batch, GroupBatch) else batch)
    ]
    for group in groups:
        if not isinstance(group, Sequence) or not all(isinstance(r, Trajectory) for r in group):
            allowed = "a batch of a stream, or for each task the list of its rollouts"
            raise ConfigError("batch", f"{type(group).__name__} is no group", allowed=allowed)
    return groups


def _row(figures: StepFigures) -> dict[str, Any]:
    return {name: getattr(figures, name) for name in StepFigures.AGGREGATION}
