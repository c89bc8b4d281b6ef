"""The base of every agent loop: one method to write, and the record keeps itself.

``self.generate`` samples a turn and records exactly what was sent and what came back, so a loop
cannot get its masks or log-probabilities wrong, and what it did before it failed is kept.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from workbench.errors import ConfigError, RolloutError, TaskError
from workbench.ids import new_id
from workbench.rollout.context import ContextRules
from workbench.rollout.outputs import AgentLoopOutput, VerlNames, adopt
from workbench.rollout.rendering import task_messages
from workbench.rollout.stage import RenderStage, StagedRenderer
from workbench.rollout.trajectory import TrajectoryBuilder
from workbench.types import FinishReason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from workbench.client import LLMServerClient
    from workbench.rollout.rendering import Renderer
    from workbench.types import SamplingParams, TokenOutput

LoopT = TypeVar("LoopT", bound="type[AgentLoopBase]")

Returned = AgentLoopOutput | list[AgentLoopOutput] | None


class AgentLoopBase(VerlNames, ABC):
    """One instance per rollout.

    Write :meth:`run`; take what you need from ``self.client`` (the token client), ``self.render``
    (messages ↔ tokens, to be awaited), ``self.trajectory`` (the record) and ``self.generate``.
    Settings of your own are keyword arguments of ``__init__`` that passes the rest on.

    Args:
        client: samples.
        renderer: the model's chat format; ``self.renderer`` has its methods without ``await``.
        stage: where rendering and parsing is done; without one, on the event loop.
        context: how long prompts may be.
    """

    requires: ClassVar[Sequence[str]] = ()
    """Fields without which a task cannot be run."""

    def __init__(
        self,
        *,
        client: LLMServerClient,
        renderer: Renderer,
        stage: RenderStage | None = None,
        context: ContextRules | None = None,
    ) -> None:
        self.client = client
        self.renderer = renderer
        self.render = StagedRenderer(renderer, stage)
        self.context = context or ContextRules()
        self.session_id = new_id()
        self.sessions = {self.session_id}
        """Those that it sampled under; they end with the rollout."""
        self.trajectory = TrajectoryBuilder()

    @abstractmethod
    async def run(self, sampling_params: SamplingParams, **task: Any) -> Returned:
        """Play one task; what it samples through ``self.generate`` becomes the trajectory.

        A loop that keeps its rows itself, as those for verl do, returns them.
        """

    @classmethod
    def check_task(cls, task: Mapping[str, Any]) -> None:
        """Refuse a task that this loop cannot run; called before any rollout starts.

        Raises:
            TaskError: names the field.
        """
        for name in cls.requires:
            if name not in task:
                raise TaskError(name, f"is missing; the task has {sorted(task)}")

    async def play(self, sampling_params: SamplingParams, task: Mapping[str, Any]) -> None:
        """Run the task and take over the rows that the loop kept itself, if it did.

        Raises:
            RolloutError: those rows are not what was sampled; or nothing was, and no limit is why;
                or what it wrote beside them is none that a record holds.
        """
        returned = await self.run(sampling_params, **self._fields(task))
        if returned is not None:
            adopt(self.trajectory, returned)
        elif not self.trajectory.num_turns and not self.trajectory.ended_by:
            raise RolloutError("nothing was sampled through self.generate")
        self.trajectory.check_words()

    def _fields(self, task: Mapping[str, Any]) -> Mapping[str, Any]:
        """The task's, and its conversation as ``raw_prompt`` for loops that take any field."""
        kinds = {p.kind for p in inspect.signature(self.run).parameters.values()}
        if "raw_prompt" in task or inspect.Parameter.VAR_KEYWORD not in kinds:
            return task
        try:
            return {**task, "raw_prompt": task_messages(task)}
        except TaskError:
            return task

    async def generate(
        self,
        prompt_ids: Sequence[int],
        sampling_params: SamplingParams,
        *,
        fork: str = "",
        session: str = "",
    ) -> TokenOutput:
        """Sample a turn and record it.

        Args:
            prompt_ids: the whole prompt; where it continues an earlier turn to the token that row
                grows, otherwise a new one begins.
            sampling_params: by the engine's names.
            fork: why the prompt does not continue any turn, where the loop knows.
            session: turns with the same one go to the same replica; the rollout's own by default.

        Raises:
            RolloutError: the engine failed on this generation; what it sampled is recorded.
        """
        output = await self.server_manager.generate(
            session or self.session_id,
            prompt_ids=prompt_ids,
            sampling_params=sampling_params,
            fork=fork,
        )
        if output.finish_reason is FinishReason.ERROR:
            raise RolloutError(f"the engine of {output.replica_id} failed on this generation")
        return output

    def fit(self, prompt_ids: Sequence[int]) -> list[int]:
        """A first prompt as the batch's rules have it: as it is, or cut, with a note in the row.

        Raises:
            RolloutError: it is too long.
        """
        fitting, note = self.context.fit(prompt_ids)
        if note:
            self.trajectory.notes.append(note)
        return fitting

    def room(self, prompt_ids: Sequence[int]) -> int | None:
        """Tokens that fit behind a prompt, below 1 when none do; None when unknown."""
        return self.context.room(len(prompt_ids))


REGISTRY: dict[str, type[AgentLoopBase]] = {}
"""Loops by the name under which they were registered."""


def register(name: str) -> Callable[[LoopT], LoopT]:
    """Give a loop class the name by which ``agent=`` asks for it.

    Registering a name again replaces it, so that a cell can be run twice.

    Raises:
        ConfigError: the name is one of those that come along, or it is given to no loop.
    """
    if not isinstance(name, str):
        raise ConfigError("name", f"{name!r}", allowed="a text: @register('name')")

    def add(loop: LoopT) -> LoopT:
        if not (isinstance(loop, type) and issubclass(loop, AgentLoopBase)):
            raise ConfigError(f"agent {name!r}", f"{loop!r}", allowed="a subclass of AgentLoopBase")
        known = REGISTRY.get(name)
        if known is not None and known.__module__.startswith("workbench.rollout."):
            raise ConfigError("name", f"{name!r} is an agent that comes along", allowed="another")
        REGISTRY[name] = loop
        return loop

    return add
