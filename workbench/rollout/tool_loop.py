"""An agent with tools: it answers, or calls tools and reads what they return, turn by turn.

Every call that the model writes is answered: one that cannot be read, names no known tool, has
wrong arguments, fails, hangs or is one too many gets a message that the model can use.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError, DeadlineError
from workbench.rollout.loop import AgentLoopBase, register
from workbench.rollout.rendering import Message, ParsedCall, check_messages, task_messages
from workbench.rollout.tools import Tool, by_name, calculator
from workbench.rollout.trajectory import ToolCall
from workbench.types import FinishReason, SamplingParams

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class ToolLimits:
    """How far a rollout may go. Whichever is met first ends it, in this order of checks."""

    max_turns: int = 4
    """Assistant generations."""
    max_response_tokens: int = 1024
    """Sampled tokens over all turns."""
    max_calls_per_turn: int = 4
    """Tool calls in one turn that are executed; those beyond are answered with an error."""
    tool_timeout_s: float = 10.0
    """Of one tool call."""

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if not isinstance(value, int | float) or value <= 0:
                raise ConfigError(name, f"{value!r}", allowed="a number above 0")


@register("tool")
class ToolAgentLoop(AgentLoopBase):
    """Calls tools until it answers without one or meets a limit.

    Args:
        tools: functions with type hints and docstrings; a calculator if none are given.
        preamble: messages before the task's own: a system message, examples.
        limits: see :class:`ToolLimits`.
        common: what :class:`AgentLoopBase` takes.
    """

    def __init__(
        self,
        *,
        tools: Sequence[Tool | Callable[..., Any]] = (calculator,),
        preamble: Sequence[Message] = (),
        limits: ToolLimits = ToolLimits(),
        **common: Any,
    ) -> None:
        super().__init__(**common)
        if not isinstance(limits, ToolLimits):
            raise ConfigError("limits", f"{limits!r}", allowed="a ToolLimits")
        self._tools = by_name(tools)
        self._preamble = check_messages("preamble", preamble)
        self._limits = limits

    @classmethod
    def check_task(cls, task: Mapping[str, Any]) -> None:
        """It needs ``prompt`` or ``messages``."""
        task_messages(task)

    async def run(self, sampling_params: SamplingParams, **task: Any) -> None:
        """Turn after turn."""
        specs = [tool.spec for tool in self._tools.values()]
        record = self.trajectory.messages
        record += [*self._preamble, *task_messages(task)]
        prompt_ids: list[int] = self.renderer.prompt(record, specs)
        fork = ""
        while budget := self._budget(sampling_params):
            output = await self.generate(
                prompt_ids, {**sampling_params, "max_tokens": budget}, fork=fork
            )
            reply = self.renderer.parse(output.token_ids)
            record.append(reply.as_message())
            if not reply.calls or output.finish_reason in {FinishReason.ABORT, FinishReason.ERROR}:
                return
            answers = await self._answer(reply.calls)
            record += answers
            extended = self.renderer.extend(prompt_ids, output.token_ids, answers, specs)
            fork = "" if extended else "the chat format cannot be extended; rendered anew"
            prompt_ids = extended or self.renderer.prompt(record, specs)

    def _budget(self, sampling_params: SamplingParams) -> int:
        """Tokens that the next turn may sample; 0 when the rollout is over."""
        if self.trajectory.num_turns >= self._limits.max_turns:
            return 0
        left = self._limits.max_response_tokens - self.trajectory.sampled_tokens
        return max(0, min(left, sampling_params.get("max_tokens") or left))

    async def _answer(self, calls: Sequence[ParsedCall]) -> list[Message]:
        """Execute a turn's calls side by side; one tool message for each, in order."""
        allowed = self._limits.max_calls_per_turn
        records = await asyncio.gather(
            *(self._execute(call, number < allowed) for number, call in enumerate(calls))
        )
        for record in records:
            self.trajectory.add_tool_call(record)
        return [
            {"role": "tool", "name": record.name, "content": record.result} for record in records
        ]

    async def _execute(self, call: ParsedCall, is_allowed: bool) -> ToolCall:
        started = time.monotonic()
        problem = self._problem(call)
        well_formed = not problem
        if well_formed and not is_allowed:
            problem = f"only {self._limits.max_calls_per_turn} calls per turn are executed"
        result = ""
        if not problem:
            try:
                result = await self._tools[call.name].call(
                    call.arguments or {}, self._limits.tool_timeout_s
                )
            except DeadlineError as late:
                problem = str(late)
            except (Exception, SystemExit, asyncio.CancelledError) as error:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise  # it is the rollout that is cancelled, not the tool
                problem = f"{type(error).__name__}: {error}"
        return ToolCall(
            turn=self.trajectory.num_turns - 1,
            name=call.name,
            arguments=call.arguments or {},
            result=f"error: {problem}" if problem else result,
            well_formed=well_formed,
            error=problem,
            seconds_s=time.monotonic() - started,
        )

    def _problem(self, call: ParsedCall) -> str:
        if call.problem:
            return call.problem
        if call.name not in self._tools:
            return f"there is no tool {call.name!r}; there are: {', '.join(self._tools)}"
        return self._tools[call.name].problem_with(call.arguments or {})
