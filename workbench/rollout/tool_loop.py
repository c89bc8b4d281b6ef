"""An agent with tools: it answers, or calls tools and reads what they return, turn by turn.

Every call that the model writes is answered: one that cannot be read, names no known tool, has
wrong arguments, fails, hangs or is one too many gets a message that the model can use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError, TaskError
from workbench.rollout.loop import AgentLoopBase, register
from workbench.rollout.rendering import Message, ParsedCall, check_messages, task_messages
from workbench.rollout.tools import (
    DEFAULT_LIMITS,
    Answering,
    AnyTool,
    ToolBox,
    ToolLimits,
    calculator,
)
from workbench.types import FinishReason, SamplingParams, TokenOutput

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from workbench.trajectory import ToolCall

__all__ = ["ToolAgentLoop", "ToolLimits"]


@register("tool")
class ToolAgentLoop(AgentLoopBase):
    """Calls tools until it answers without one or meets a limit.

    A task's field ``tools`` narrows the tools to those of these names.

    Args:
        tools: functions with type hints and docstrings, stateful tools, sources of tools; a
            calculator if none are given.
        preamble: messages before the task's own: a system message, examples.
        limits: see :class:`ToolLimits`.
        common: what :class:`AgentLoopBase` takes.
    """

    def __init__(
        self,
        *,
        tools: Iterable[AnyTool] = (calculator,),
        preamble: Sequence[Message] = (),
        limits: ToolLimits = DEFAULT_LIMITS,
        **common: Any,
    ) -> None:
        super().__init__(**common)
        if not isinstance(limits, ToolLimits):
            raise ConfigError("limits", f"{limits!r}", allowed="a ToolLimits")
        self._box = ToolBox.of(tools)
        self._preamble = check_messages("preamble", preamble)
        self._limits = limits

    @classmethod
    def check_task(cls, task: Mapping[str, Any]) -> None:
        """It needs ``prompt`` or ``messages``; ``tools``, if it is there, are names."""
        task_messages(task)
        tools = task.get("tools")
        names = list(tools) if isinstance(tools, Iterable) else [tools]
        if tools is not None and (
            isinstance(tools, str) or not all(isinstance(name, str) for name in names)
        ):
            raise TaskError("tools", f"{tools!r}", allowed="a list of names of tools")

    async def run(self, sampling_params: SamplingParams, **task: Any) -> None:
        """Turn after turn."""
        wall_s = self._limits.wall_s
        until = None if wall_s is None else asyncio.get_running_loop().time() + wall_s
        self.trajectory.messages += [*self._preamble, *task_messages(task)]
        opened = self._box.open(task, self._limits.open_timeout_s, self.trajectory.notes.append)
        async with opened as tools:
            desk = Answering(tools, self._limits, until)
            self.trajectory.ended_by = await self._converse(sampling_params, desk)

    async def _converse(self, sampling_params: SamplingParams, desk: Answering) -> str:
        """Until something ends it; what did."""
        record = self.trajectory.messages
        specs = [tool.spec for tool in desk.tools.values()]
        self.trajectory.extra["tools"] = specs
        prompt_ids, fork = self.fit(await self.render.prompt(record, specs)), ""
        while not (limit := self._limit_met(desk.until)):
            budget, shortest = self._budget(sampling_params, prompt_ids)
            if budget < 1:
                return shortest
            params: SamplingParams = {**sampling_params, "max_tokens": budget}
            output = await self._sampled(prompt_ids, params, fork, desk.until)
            if output is None:
                return "wall_s"
            reply = await self.render.parse(output.token_ids, specs)
            record.append(reply.as_message())
            if output.finish_reason in {FinishReason.ABORT, FinishReason.ERROR}:
                return "abort"
            if not reply.calls:
                return shortest if output.finish_reason is FinishReason.LENGTH else "answer"
            answers = await self._answer(reply.calls, desk)
            record += answers
            bridge = await self.render.extend(prompt_ids, output.token_ids, answers, specs)
            fork = bridge.reason
            prompt_ids = bridge.ids or await self.render.prompt(record, specs)
        return limit

    def _limit_met(self, until: float | None) -> str:
        """The limit that forbids another turn; empty when none does."""
        if self.trajectory.num_turns >= self._limits.max_turns:
            return "max_turns"
        if self.trajectory.sampled_tokens >= self._limits.max_response_tokens:
            return "max_response_tokens"
        if until is not None and asyncio.get_running_loop().time() >= until:
            return "wall_s"
        return ""

    def _budget(
        self, sampling_params: SamplingParams, prompt_ids: Sequence[int]
    ) -> tuple[int, str]:
        """Tokens that the next turn may sample, and the name of what allows no more."""
        left = self._limits.max_response_tokens - self.trajectory.sampled_tokens
        bounds = [(left, "max_response_tokens")]
        if (asked := sampling_params.get("max_tokens")) is not None:
            bounds.append((asked, "max_tokens"))
        if (room := self.room(prompt_ids)) is not None:
            bounds.append((room, "context"))
        return min(bounds, key=lambda bound: bound[0])

    async def _sampled(
        self,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        fork: str,
        until: float | None,
    ) -> TokenOutput | None:
        """A turn; None when the rollout's time is over before it is complete."""
        limit = asyncio.timeout_at(until)
        try:
            async with limit:
                return await self.generate(prompt_ids, params, fork=fork)
        except TimeoutError:
            if limit.expired():
                return None
            raise

    async def _answer(self, calls: Sequence[ParsedCall], desk: Answering) -> list[Message]:
        """Execute a turn's calls side by side; one tool message for each, in order."""
        turn, allowed = self.trajectory.num_turns - 1, self._limits.max_calls_per_turn
        answered = await asyncio.gather(
            *(
                desk.answer(call, turn, is_allowed=number < allowed)
                for number, call in enumerate(calls)
            )
        )
        for call in answered:
            self.trajectory.add_tool_call(call)
        return [_told(asked, answer) for asked, answer in zip(calls, answered, strict=True)]


def _told(asked: ParsedCall, answer: ToolCall) -> Message:
    named = {"tool_call_id": asked.id} if asked.id else {}
    return {"role": "tool", "name": answer.name, "content": answer.result, **named}
