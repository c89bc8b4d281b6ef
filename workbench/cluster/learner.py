"""A learner as an actor of the cluster: beside the engines, and not in anybody's notebook."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import OutOfMemoryError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from workbench.checkpoint.folders import OwnFolder, roomy
from workbench.cluster.ports import our_errors
from workbench.cluster.remote import Remote
from workbench.errors import ConfigError, LearnerDiedError
from workbench.learner.config import LearnerConfig
from workbench.learner.rows import bare
from workbench.learner.storing import check_saved
from workbench.models import check_model, resolve_model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workbench.learner.figures import StepFigures
    from workbench.learner.learner import GRPOLearner
    from workbench.trajectory import Trajectory

GONE = "the learner's process ended; what it had saved is there for load() of another one"

VERSIONS = 3
"""Weights that there has to be room for: those that a pool is on, those that it is given, and those
that are being written."""


class LearnerActor:
    """A :class:`workbench.learner.learner.GRPOLearner` in a process of its own.

    Blocking methods, one at a time: a step is computed where nothing else is served.
    """

    _learner: GRPOLearner

    def start(self, model: str, config: LearnerConfig, niceness: int) -> int:
        """Load the model; the number of its process. What goes wrong here is told as it is."""
        from workbench.learner.learner import GRPOLearner

        os.nice(niceness)
        self._learner = GRPOLearner(model, config)
        return os.getpid()

    def step(self, groups: Sequence[Sequence[Trajectory]]) -> StepFigures:
        """See :meth:`GRPOLearner.step`."""
        return self._learner.step(groups)

    def write_weights(self, folder: str) -> None:
        """See :meth:`GRPOLearner.write_weights`."""
        self._learner.write_weights(folder)

    def save(self, folder: str) -> str:
        """See :meth:`GRPOLearner.save`."""
        return str(self._learner.save(folder))

    def load(self, folder: str) -> int:
        """See :meth:`GRPOLearner.load`."""
        return self._learner.load(folder)


class RayLearner:
    """A learner of this process's, in another one.

    It takes a GPU where the cluster has one free and the configuration wants one, and no core of
    the cluster's. Without a ``folder`` it runs on this process's node, in whose memory it hands its
    weights over.

    Args:
        model: as for the pool.
        config: how it learns.
        folder: where weights are handed over; on several nodes, one that all of them read.
        niceness: how far engines on the same cores go before it, 0 to 19.

    Raises:
        ConfigError: there can be no such model, folder or niceness.
    """

    def __init__(
        self,
        model: str,
        config: LearnerConfig | None = None,
        *,
        folder: str | os.PathLike[str] | None = None,
        niceness: int = 0,
    ) -> None:
        check_model(model)
        if type(niceness) is not int or not 0 <= niceness <= 19:
            raise ConfigError("niceness", f"{niceness!r}", allowed="a whole number from 0 to 19")
        if folder is not None and Path(folder).exists() and not Path(folder).is_dir():
            raise ConfigError("folder", f"{str(folder)!r} is a file", allowed="a directory")
        self.config = config or LearnerConfig()
        self.model = model
        self.figures: list[StepFigures] = []
        """Of the steps so far, that were taken by this object."""
        self.pid = 0
        """Of its process, once :meth:`start` has returned."""
        self.gpus = 0
        """That its process has."""
        self._given = folder
        self._niceness = niceness
        self._own: OwnFolder | None = None
        self._written = 0
        self._actor: Remote | None = None

    def check(self, load: str | os.PathLike[str] | None = None, *, spare_gpus: int = 0) -> None:
        """Refuse what could not start, or not go on from there; starts and loads nothing.

        Args:
            load: what :meth:`load` is to be given.
            spare_gpus: that will be free by then.

        Raises:
            ConfigError: there is no such device, or no learner of this model was saved there.
        """
        if self.config.device == "cuda" and _free_gpus() + spare_gpus < 1:
            problem = "'cuda', and the cluster has no GPU that is free"
            raise ConfigError(
                "device", problem, allowed="'cpu', or 'auto' for a GPU if one is free"
            )
        is_here = self._given is None or _nodes() == 1  # else another node's process reads it
        if load is not None and is_here:
            check_saved(Path(load), resolve_model(self.model), "load")

    async def start(self) -> None:
        """Load the model; returns when it can learn. Once more, where its process died.

        Raises:
            ConfigError: there is no such model, or no such device.
            LearnerDiedError: its process ended meanwhile.
            PoolError: its folder cannot be made safely.
        """
        size = sum(path.stat().st_size for path in resolve_model(self.model).glob("*.safetensors"))
        if self._actor is not None:
            self._actor.kill()
        if self._given is None and self._own is None:
            self._own = OwnFolder(roomy(VERSIONS * size), "learner")
        for cut_short in self.folder.glob(f".weights-{os.getpid()}-*"):
            shutil.rmtree(cut_short, ignore_errors=True)
        actor: Any = ray.remote(LearnerActor)
        self._actor = Remote(actor.options(**self._options()).remote())
        try:
            self.pid = await self._ask("start", self.model, self.config, self._niceness)
        except BaseException:
            if self._written:  # a pool may be on what was handed over
                self.end()
            else:
                self.close()
            raise

    def _options(self) -> dict[str, Any]:
        threads = str(self.config.threads)
        env = {
            "OMP_NUM_THREADS": threads,
            "MKL_NUM_THREADS": threads,
            "OMP_WAIT_POLICY": "PASSIVE",  # threads that spin while they wait starve the engines
        }
        options: dict[str, Any] = {"num_cpus": 0, "runtime_env": {"env_vars": env}}
        if self.config.device == "cuda" or (self.config.device == "auto" and _free_gpus() >= 1):
            options["num_gpus"] = 1
        self.gpus = options.get("num_gpus", 0)
        if self._given is None:
            here = ray.get_runtime_context().get_node_id()
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(here, soft=False)
        return options

    @property
    def folder(self) -> Path:
        """Where its weights are handed over."""
        if self._own is not None:
            return self._own.path
        return Path(self._given or "").resolve()

    async def step(self, groups: Sequence[Sequence[Trajectory]]) -> StepFigures:
        """One change of the weights; see :meth:`GRPOLearner.step`.

        Raises:
            ConfigError: a group has a single rollout.
            LearnerDiedError: its process is gone.
        """
        figures: StepFigures = await self._ask("step", [list(map(bare, group)) for group in groups])
        self.figures.append(figures)
        return figures

    async def weights(self) -> Path:
        """Write the weights as they are now; the directory, for ``update_weights``.

        It stays until :meth:`keep_only` or :meth:`close`: a replica that is replaced reads it.

        Raises:
            LearnerDiedError: its process is gone.
        """
        self._written += 1
        target = self.folder / f"weights-{os.getpid()}-{self._written:06}"
        await self._ask("write_weights", str(target))
        return target

    def keep_only(self, directory: Path) -> None:
        """The pool is on these: other weights that were handed over are of no use any more."""
        for other in self.folder.glob(f"weights-{os.getpid()}-*"):
            if other != directory:
                shutil.rmtree(other, ignore_errors=True)

    async def save(self, folder: str | os.PathLike[str]) -> Path:
        """See :meth:`GRPOLearner.save`.

        Raises:
            LearnerDiedError: its process is gone.
        """
        return Path(await self._ask("save", _absolute(folder)))

    async def load(self, folder: str | os.PathLike[str]) -> int:
        """See :meth:`GRPOLearner.load`.

        Raises:
            ConfigError: nothing was saved there, or of another model.
            LearnerDiedError: its process is gone.
        """
        step: int = await self._ask("load", _absolute(folder))
        return step

    def end(self) -> None:
        """End its process; what it handed over stays. Idempotent."""
        if self._actor is not None:
            self._actor.kill()
            self._actor = None
            self.gpus = 0

    def close(self) -> None:
        """End its process, and drop what it handed over. Idempotent."""
        self.end()
        if self._own is not None:
            self._own.close()
            self._own = None

    async def _ask(self, method: str, *args: Any) -> Any:
        if self._actor is None:
            raise LearnerDiedError("the learner was closed, or not started")
        try:
            with our_errors(LearnerDiedError(GONE)):
                return await self._actor.ask(method, *args)
        except LearnerDiedError as error:
            if isinstance(error.__cause__, OutOfMemoryError):
                raise LearnerDiedError(f"{GONE}. Its node ran out of memory") from error.__cause__
            raise


def _absolute(folder: str | os.PathLike[str]) -> str:
    """Its process has another working directory."""
    return str(Path(folder).absolute())


def _free_gpus() -> float:
    untyped: Any = ray
    return float(untyped.available_resources().get("GPU", 0))


def _nodes() -> int:
    untyped: Any = ray
    return sum(node["Alive"] for node in untyped.nodes())
