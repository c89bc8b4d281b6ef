"""A batch of rollouts: dealt to workers, watched, gathered in order.

Any batch size goes with any number of workers. A rollout that fails, or whose worker dies, is a
failed row; the others are untouched.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping
from itertools import count, pairwise
from typing import TYPE_CHECKING, Any, Protocol

from workbench.client.generation import normalised
from workbench.engines.vllm_args import check_sampling_params
from workbench.errors import ConfigError
from workbench.metrics.samples import RolloutSnapshot
from workbench.metrics.trajectories import trajectory_frame
from workbench.rollout.agents import agent_loop
from workbench.rollout.batch import RolloutBatch, make_batch
from workbench.rollout.tasks import RolloutSpec, Tasks, rollout_specs
from workbench.rollout.trajectory import RolloutStatus, Trajectory
from workbench.rollout.worker import RolloutSetup, outcome

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    import pandas as pd

    from workbench.client import LLMServerClient
    from workbench.rollout.loop import AgentLoopBase
    from workbench.rollout.rendering import Renderer
    from workbench.rollout.rewards import Reward
    from workbench.types import SamplingParams


REWARD_BINS = 20
"""Of a snapshot, at most."""

_numbers = count(1)


class WorkerPort(Protocol):
    """Plays rollouts, here or in another process. Cancelling a call stops its rollout."""

    async def run(self, setup: RolloutSetup, spec: RolloutSpec) -> Trajectory: ...


class RolloutRun:
    """A batch in progress. Awaiting it gives its trajectories in the order of the tasks."""

    def __init__(
        self,
        setup: RolloutSetup,
        specs: Sequence[RolloutSpec],
        workers: Sequence[WorkerPort],
        *,
        concurrency: int,
        pad_id: int,
        name: str | None = None,
    ) -> None:
        self.setup = setup
        self.name = name or f"rollouts-{next(_numbers)}"
        self._specs = specs
        self._workers = workers
        self._load: Counter[int] = Counter()
        self._broken: set[int] = set()
        self._slots = asyncio.Semaphore(concurrency)
        self._pad_id = pad_id
        self._ended: dict[str, Trajectory] = {}
        self._running = 0
        self._began_s = time.time()
        self._started_s = time.monotonic()
        self._wall_s: float | None = None
        self._tasks = [asyncio.create_task(self._play(spec)) for spec in specs]
        self._all = asyncio.ensure_future(self._gather())

    def __await__(self) -> Generator[Any, None, list[Trajectory]]:
        return asyncio.shield(self._all).__await__()

    def cancel(self) -> None:
        """Stop what has not ended; it becomes cancelled rows. What has ended stays."""
        for task in self._tasks:
            task.cancel()

    def snapshot(self) -> RolloutSnapshot:
        """Where it stands."""
        ended = list(self._ended.values())
        by_status = Counter(trajectory.status for trajectory in ended)
        causes = Counter(t.error.partition(":")[0] for t in ended if t.error)
        rewards = [t.reward for t in ended if t.reward is not None]
        return RolloutSnapshot(
            agent=self.setup.agent,
            total=len(self._specs),
            running=self._running,
            done=by_status[RolloutStatus.DONE],
            failed=by_status[RolloutStatus.FAILED],
            cancelled=by_status[RolloutStatus.CANCELLED],
            sampled_tokens=sum(t.sampled_tokens for t in ended),
            mean_reward=sum(rewards) / len(rewards) if rewards else None,
            wall_s=self._wall_s or time.monotonic() - self._started_s,
            name=self.name,
            failures=tuple(causes.most_common()),
            rewards=reward_bins(rewards),
            started_s=self._began_s,
        )

    def trajectories(self) -> list[Trajectory]:
        """Those that have ended, in the order of the tasks."""
        return [self._ended[s.rollout_id] for s in self._specs if s.rollout_id in self._ended]

    def to_pandas(self) -> pd.DataFrame:
        """A row per rollout that has ended."""
        return trajectory_frame(self.trajectories())

    def batch(self) -> RolloutBatch:
        """The batch tensors of the rollouts that have ended."""
        return make_batch(self.trajectories(), pad_id=self._pad_id)

    async def _gather(self) -> list[Trajectory]:
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for spec in self._specs:
            if spec.rollout_id not in self._ended:  # cancelled before its task's first step
                self._ended[spec.rollout_id] = self._unplayed(spec, None)
        self._wall_s = time.monotonic() - self._started_s
        return self.trajectories()

    async def _play(self, spec: RolloutSpec) -> None:
        try:
            async with self._slots:
                self._running += 1
                try:
                    self._ended[spec.rollout_id] = await self._on_a_worker(spec)
                finally:
                    self._running -= 1
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - it is the row's
            self._ended[spec.rollout_id] = self._unplayed(spec, error)

    async def _on_a_worker(self, spec: RolloutSpec) -> Trajectory:
        everyone = range(len(self._workers))
        able = [i for i in everyone if i not in self._broken] or everyone
        number = min(able, key=lambda i: self._load[i])
        self._load[number] += 1
        try:
            return await self._workers[number].run(self.setup, spec)
        except Exception:
            self._broken.add(number)  # it would look idle, and draw all rollouts that are left
            raise
        finally:
            self._load[number] -= 1

    def _unplayed(self, spec: RolloutSpec, error: BaseException | None) -> Trajectory:
        """The row of a rollout of which nothing came back; without an error it was cancelled."""
        status, told, trace = outcome(error) if error else (RolloutStatus.CANCELLED, "", "")
        return Trajectory(
            spec.rollout_id, spec.group, spec.index, self.setup.agent, spec.task,
            segments=(), turns=(), tool_calls=(), messages=(),
            status=status, reward=None, error=told, traceback=trace,
        )  # fmt: skip


class AgentLoopManager:
    """Plays batches on a fixed set of workers.

    Args:
        workers: at least one.
        concurrency: rollouts in flight at once, over all workers.
        pad_id: fills the batch tensors.
    """

    def __init__(self, workers: Sequence[WorkerPort], *, concurrency: int, pad_id: int) -> None:
        if not workers:
            raise ConfigError("workers", "none", allowed="at least one")
        if concurrency < 1:
            raise ConfigError("concurrency", f"{concurrency!r}", allowed="a whole number from 1")
        self._workers = workers
        self._concurrency = concurrency
        self._pad_id = pad_id

    def start(self, tasks: Tasks, **options: Any) -> RolloutRun:
        """Begin a batch; needs a running event loop. Options as in :meth:`prepare`."""
        return self.play(*self.prepare(tasks, **options))

    def play(
        self, setup: RolloutSetup, specs: Sequence[RolloutSpec], *, name: str | None = None
    ) -> RolloutRun:
        """Begin a batch that was prepared; without a name it is given one."""
        return RolloutRun(
            setup,
            specs,
            self._workers,
            concurrency=self._concurrency,
            pad_id=self._pad_id,
            name=name,
        )

    def prepare(
        self,
        tasks: Tasks,
        *,
        agent: str | type[AgentLoopBase] = "single_turn",
        n: int = 1,
        sampling_params: SamplingParams | None = None,
        reward: Reward | None = None,
        timeout_s: float | None = None,
        **loop_args: Any,
    ) -> tuple[RolloutSetup, list[RolloutSpec]]:
        """Check a batch without playing it.

        Args:
            tasks: strings, mappings or a DataFrame.
            agent: a registered name or a loop class.
            n: rollouts per task.
            sampling_params: by the engine's names.
            reward: of a finished trajectory.
            timeout_s: wall time of one rollout.
            loop_args: settings of the loop class.

        Raises:
            ConfigError: unknown agent, or settings that it does not take.
            RequestError: ``max_tokens`` is no whole number from 1.
            TaskError: a task lacks a field.
        """
        name, loop = agent_loop(agent)
        check_loop_args(name, loop, loop_args)
        check_options(sampling_params, reward, timeout_s)
        specs = rollout_specs(tasks, loop, n)
        sampling = normalised(sampling_params or {})
        check_sampling_params(sampling)
        return RolloutSetup(name, loop, loop_args, sampling, reward, timeout_s), specs

    async def generate_sequences(self, tasks: Tasks, **options: Any) -> RolloutBatch:
        """Play a batch to its end; options as in :meth:`prepare`. Cancelling it stops the batch."""
        run = self.start(tasks, **options)
        try:
            await run
        except asyncio.CancelledError:
            run.cancel()
            await run
            raise
        return run.batch()


def reward_bins(rewards: Sequence[float]) -> tuple[tuple[float, float, int], ...]:
    """Equal bins from the least reward to the greatest: from, to, rewards in between.

    The last one has both its ends. One bin where all rewards are the same; none without rewards.
    """
    if not rewards:
        return ()
    low, high = min(rewards), max(rewards)
    width = high / REWARD_BINS - low / REWARD_BINS  # in parts: the whole may be too large
    if not width:
        return ((low, high, len(rewards)),)
    edges = [min(low + i * width, high) for i in range(REWARD_BINS)]
    counts = Counter(bisect_right(edges, reward) - 1 for reward in rewards)
    return tuple((start, end, counts[i]) for i, (start, end) in enumerate(pairwise([*edges, high])))


def check_loop_args(name: str, loop: type[AgentLoopBase], given: dict[str, Any]) -> None:
    """Refuse settings that no ``__init__`` of the loop class takes."""
    known = _known_args(loop)
    for setting in given:
        if setting not in known:
            raise ConfigError(setting, f"agent {name!r} has no such setting", allowed=sorted(known))


def _known_args(loop: type[AgentLoopBase]) -> set[str]:
    found: set[str] = set()
    for cls in loop.__mro__:
        if "__init__" in vars(cls) and cls is not object:
            found |= set(inspect.signature(vars(cls)["__init__"]).parameters)
    return found - {"self", "client", "renderer", "common", "kwargs", "args"}


def check_options(sampling_params: Any, reward: Any, timeout_s: Any) -> None:
    """Refuse options of a batch that would fail every one of its rollouts."""
    if not isinstance(sampling_params or {}, Mapping):
        raise ConfigError("sampling_params", f"{sampling_params!r}", allowed="a mapping")
    if reward is not None and not callable(reward):
        raise ConfigError("reward", f"{reward!r}", allowed="a function of a trajectory, or None")
    if timeout_s is not None and not (isinstance(timeout_s, int | float) and timeout_s > 0):
        raise ConfigError("timeout_s", f"{timeout_s!r}", allowed="seconds above 0, or None")


def try_making(setup: RolloutSetup, client: LLMServerClient, renderer: Renderer) -> None:
    """Make one loop as every rollout will, so that wrong settings are refused before any is played.

    Raises:
        ConfigError: it cannot be made with these settings.
    """
    try:
        setup.loop(client=client, renderer=renderer, **setup.loop_args)
    except ConfigError:
        raise
    except Exception as error:
        problem = f"{setup.agent!r} cannot be made with these settings: {error}"
        raise ConfigError("agent", problem) from error
