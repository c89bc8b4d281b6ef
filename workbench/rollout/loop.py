"""The base of every agent loop: one method to write, and the record keeps itself.

``self.generate`` samples a turn and records exactly what was sent and what came back, so a loop
cannot get its masks or log-probabilities wrong, and what it did before it failed is kept.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from workbench.errors import RolloutError, TaskError
from workbench.rollout.trajectory import TrajectoryBuilder
from workbench.types import FinishReason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from workbench.client import LLMServerClient
    from workbench.rollout.rendering import Renderer
    from workbench.types import SamplingParams, TokenOutput

LoopT = TypeVar("LoopT", bound="type[AgentLoopBase]")


class AgentLoopBase(ABC):
    """One instance per rollout.

    Write :meth:`run`; take what you need from ``self.client`` (the token client),
    ``self.renderer`` (messages ↔ tokens) and ``self.generate``. Settings of your own are keyword
    arguments of ``__init__`` that passes the rest on.
    """

    requires: ClassVar[Sequence[str]] = ()
    """Fields without which a task cannot be run."""

    def __init__(self, *, client: LLMServerClient, renderer: Renderer) -> None:
        self.client = client
        self.renderer = renderer
        self.session_id = uuid.uuid4().hex
        self.trajectory = TrajectoryBuilder()

    @property
    def server_manager(self) -> LLMServerClient:
        """verl's name for the client."""
        return self.client

    @abstractmethod
    async def run(self, sampling_params: SamplingParams, **task: Any) -> None:
        """Play one task; what it samples through ``self.generate`` becomes the trajectory."""

    @classmethod
    def check_task(cls, task: Mapping[str, Any]) -> None:
        """Refuse a task that this loop cannot run; called before any rollout starts.

        Raises:
            TaskError: names the field.
        """
        for name in cls.requires:
            if name not in task:
                raise TaskError(name, f"is missing; the task has {sorted(task)}")

    async def generate(
        self, prompt_ids: Sequence[int], sampling_params: SamplingParams, *, fork: str = ""
    ) -> TokenOutput:
        """Sample a turn and record it.

        Args:
            prompt_ids: the whole prompt; where it continues the last turn to the token the row
                grows, otherwise a new one begins.
            sampling_params: by the engine's names.
            fork: why the prompt does not continue the last turn, where the loop knows.
        """
        output = await self.client.generate(
            self.session_id, prompt_ids=prompt_ids, sampling_params=sampling_params
        )
        self.trajectory.add_turn(prompt_ids, output, fork)
        if output.finish_reason is FinishReason.ERROR:
            raise RolloutError(f"the engine of {output.replica_id} failed on this generation")
        return output


REGISTRY: dict[str, type[AgentLoopBase]] = {}
"""Loops by the name under which they were registered."""


def register(name: str) -> Callable[[LoopT], LoopT]:
    """Give a loop class the name by which ``agent=`` asks for it.

    Registering a name again replaces it, so that a cell can be run twice.
    """

    def add(loop: LoopT) -> LoopT:
        REGISTRY[name] = loop
        return loop

    return add
