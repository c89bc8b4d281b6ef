"""One question, one answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench.rollout.loop import AgentLoopBase, register
from workbench.rollout.rendering import Message, check_messages, task_messages
from workbench.types import FinishReason

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from workbench.types import SamplingParams


ENDS = {FinishReason.LENGTH: "max_tokens", FinishReason.ABORT: "abort"}


@register("single_turn")
class SingleTurnAgentLoop(AgentLoopBase):
    """Asks once.

    Args:
        preamble: messages before the task's own: a system message, examples.
        common: what :class:`AgentLoopBase` takes.
    """

    def __init__(self, *, preamble: Sequence[Message] = (), **common: Any) -> None:
        super().__init__(**common)
        self._preamble = check_messages("preamble", preamble)

    @classmethod
    def check_task(cls, task: Mapping[str, Any]) -> None:
        """It needs ``prompt`` or ``messages``."""
        task_messages(task)

    async def run(self, sampling_params: SamplingParams, **task: Any) -> None:
        """Render, sample, read."""
        record = self.trajectory.messages
        record += [*self._preamble, *task_messages(task)]
        prompt_ids = self.fit(await self.render.prompt(record))
        output = await self.generate(prompt_ids, sampling_params)
        reply = await self.render.parse(output.token_ids)
        record.append(reply.as_message())
        self.trajectory.ended_by = ENDS.get(output.finish_reason, "answer")
