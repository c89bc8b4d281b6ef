"""Batches of rollouts: checked before anything is played, then played on a set of workers."""

from __future__ import annotations

import asyncio
import difflib
import inspect
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from workbench.client.generation import normalised
from workbench.engines.vllm_args import check_sampling_params, check_sampling_values
from workbench.errors import ConfigError
from workbench.rollout.agents import agent_loop
from workbench.rollout.context import ContextRules
from workbench.rollout.crew import Crew
from workbench.rollout.ledger import BatchRules
from workbench.rollout.pace import Places
from workbench.rollout.run import Batch, RolloutRun
from workbench.rollout.tasks import Tasks, rollout_specs
from workbench.rollout.worker import RolloutSetup

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from workbench.client import LLMServerClient
    from workbench.rollout.batch import RolloutBatch
    from workbench.rollout.crew import WorkerPort
    from workbench.rollout.keeping import Keeper
    from workbench.rollout.loop import AgentLoopBase
    from workbench.rollout.pace import PoolLoad
    from workbench.rollout.rendering import Renderer
    from workbench.rollout.rewards import Reward
    from workbench.types import SamplingParams


class AgentLoopManager:
    """Plays batches on a fixed set of workers.

    Args:
        workers: at least one; or a crew, which others share.
        concurrency: rollouts in flight, at most; or places, which others share.
        pad_id: fills the batch tensors.
    """

    def __init__(
        self, workers: Sequence[WorkerPort] | Crew, *, concurrency: int | Places, pad_id: int
    ) -> None:
        if not workers:
            raise ConfigError("workers", "none", allowed="at least one")
        if isinstance(concurrency, int) and concurrency < 1:
            raise ConfigError("concurrency", f"{concurrency!r}", allowed="a whole number from 1")
        self._crew = workers if isinstance(workers, Crew) else Crew(workers)
        self._places = concurrency if isinstance(concurrency, Places) else Places(concurrency)
        self._pad_id = pad_id

    @property
    def free(self) -> int:
        """Rollouts that could begin at once, by the pool's load."""
        return self._places.free

    @property
    def limit(self) -> int:
        """Rollouts that may be in flight, by the pool's load."""
        return self._places.limit

    def look(self, load: PoolLoad) -> None:
        """Have as many in flight as the pool can take, as it stands."""
        self._places.look(load)

    def start(self, tasks: Tasks, **options: Any) -> RolloutRun:
        """Begin a batch; needs a running event loop. Options as in :func:`prepare`."""
        return self.play(prepare(tasks, **options))

    def play(
        self,
        batch: Batch,
        *,
        name: str | None = None,
        keeper: Keeper | None = None,
        on_change: Callable[[], None] | None = None,
    ) -> RolloutRun:
        """Begin a batch that was prepared; without a name it is given one.

        A keeper writes down what ends. ``on_change``: as a rollout gets its place, or ends.
        """
        return RolloutRun(
            batch,
            self._crew,
            self._places,
            pad_id=self._pad_id,
            name=name,
            keeper=keeper,
            on_change=on_change,
        )

    async def generate_sequences(self, tasks: Tasks, **options: Any) -> RolloutBatch:
        """Play a batch to its end; options as in :func:`prepare`. Cancelling it stops the batch."""
        run = self.start(tasks, **options)
        try:
            await run
        except asyncio.CancelledError:
            run.cancel()
            await run
            raise
        return run.batch()


def prepare(
    tasks: Tasks,
    *,
    model_tokens: int | None = None,
    model: str = "",
    agent: str | type[AgentLoopBase] = "single_turn",
    n: int = 1,
    sampling_params: SamplingParams | None = None,
    reward: Reward | None = None,
    timeout_s: float | None = None,
    also: Collection[str] = (),
    **more: Any,
) -> Batch:
    """Check a batch without playing it.

    Args:
        tasks: see :func:`workbench.rollout.tasks.as_tasks`.
        model_tokens: the model's context, prompt and completion together; None when unknown.
        model: the model whose tokens the rollouts are made of, as it was asked for.
        agent: a registered name or a loop class.
        n: rollouts per task.
        sampling_params: by the engine's names.
        reward: of a finished trajectory.
        timeout_s: wall time of one rollout.
        also: options that the caller takes himself, to be told of where one is unknown.
        more: fields of :class:`BatchRules` and :class:`ContextRules`, and settings of the loop
            class.

    Raises:
        ConfigError: unknown agent, or settings that it does not take.
        RequestError: ``max_tokens`` is no whole number from 1.
        TaskError: a task lacks a field.
    """
    name, loop = agent_loop(agent)
    rules = BatchRules(**_taken(BatchRules, more))
    context = ContextRules(max_tokens=model_tokens, **_taken(ContextRules, more))
    check_loop_args(name, loop, more, also)
    check_options(sampling_params, reward, timeout_s)
    specs = rollout_specs(tasks, loop, n, spare=rules.spare)
    sampling = normalised(sampling_params or {})
    check_sampling_params(sampling)
    check_sampling_values(sampling)
    setup = RolloutSetup(name, loop, more, sampling, reward, timeout_s, context, model)
    return Batch(setup, specs, n, rules)


OF_THE_BATCH = {f.name for rules in (BatchRules, ContextRules) for f in fields(rules)} - {
    "max_tokens"
}
"""Options that are no loop's."""
OPTIONS = {"agent", "keep", "n", "retry_failed", "reward", "sampling_params", "timeout_s"}
"""Those that stand by themselves."""


def _taken(rules: type[BatchRules] | type[ContextRules], options: dict[str, Any]) -> dict[str, Any]:
    """Those of the options that are fields of the rules, taken out of them."""
    names = {field.name for field in fields(rules)} & OF_THE_BATCH
    return {name: options.pop(name) for name in names & options.keys()}


def check_loop_args(
    name: str, loop: type[AgentLoopBase], given: dict[str, Any], also: Collection[str] = ()
) -> None:
    """Refuse settings that no ``__init__`` of the loop class takes."""
    known = _known_args(loop)
    for setting in given:
        if setting not in known:
            problem = f"is neither a setting of the agent {name!r} nor an option of a batch"
            allowed = [*sorted(known), *sorted(OF_THE_BATCH | OPTIONS | {*also})]
            close = difflib.get_close_matches(setting, allowed, n=3)
            if setting in {"max_tokens", "temperature", "top_p", "stop", "seed"}:
                close = [f"sampling_params={{{setting!r}: …}}"]
            raise ConfigError(setting, problem, allowed=close or allowed)


VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _known_args(loop: type[AgentLoopBase]) -> set[str]:
    found: set[str] = set()
    for cls in loop.__mro__:
        if "__init__" in vars(cls) and cls is not object:
            taken = list(inspect.signature(vars(cls)["__init__"]).parameters.values())[1:]
            found |= {p.name for p in taken if p.kind not in VARIADIC}
    return found - {"client", "renderer", "stage", "context"}


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
        setup.make_loop(client, renderer)
    except ConfigError:
        raise
    except Exception as error:
        problem = f"{setup.agent!r} cannot be made with these settings: {error}"
        raise ConfigError("agent", problem) from error
