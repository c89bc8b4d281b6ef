"""An answer for every call that the model wrote, whatever becomes of it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workbench.errors import DeadlineError
from workbench.rollout.tools.results import answer_to, problem_of, shortened
from workbench.trajectory import ToolCall

if TYPE_CHECKING:
    from collections.abc import Mapping

    from workbench.rollout.rendering import ParsedCall
    from workbench.rollout.tools.base import Tool
    from workbench.rollout.tools.limits import ToolLimits

GRACE_S = 1.0
"""How long an async tool may take to end once it was cancelled; then it is left to itself."""

_LEFT: set[asyncio.Task[Any]] = set()
"""Cancelled tools that go on nevertheless; nobody else holds them."""


@dataclass(frozen=True, slots=True)
class Answering:
    """Executes calls within their limits.

    Args:
        tools: by name.
        limits: the rollout's.
        until: when the rollout is over, by the clock of the loop; None for never.
    """

    tools: Mapping[str, Tool]
    limits: ToolLimits
    until: float | None = None

    async def answer(self, call: ParsedCall, turn: int, *, is_allowed: bool) -> ToolCall:
        """Execute a call, or say why not.

        Args:
            call: as the model wrote it.
            turn: the one that it was written in.
            is_allowed: whether it is among those of its turn that may be executed.
        """
        started = time.monotonic()
        problem = self._problem(call)
        well_formed = not problem
        if well_formed and not is_allowed:
            problem = f"only {self.limits.max_calls_per_turn} calls per turn are executed"
        text = f"error: {problem}"
        if not problem:
            text, error = await self._executed(self.tools[call.name], call.arguments or {})
            if error is not None:
                problem, text = problem_of(error) or "it failed", answer_to(error)
        limit, cut = self.limits.max_result_characters, self.limits.cut
        result, cut_characters = shortened(text, limit, cut)
        return ToolCall(
            turn=turn,
            name=call.name,
            arguments=call.arguments or {},
            result=result,
            well_formed=well_formed,
            error=shortened(problem, limit, cut)[0],
            seconds_s=time.monotonic() - started,
            cut_characters=cut_characters,
        )

    def _problem(self, call: ParsedCall) -> str:
        if call.problem:
            return call.problem
        if call.name not in self.tools:
            known = ", ".join(self.tools) or "none"
            return f"there is no tool {call.name!r}; there are: {known}"
        try:
            return self.tools[call.name].problem_with(call.arguments or {})
        except Exception as error:  # noqa: BLE001 - a schema from elsewhere may be broken
            return f"{call.name}: its arguments could not be checked: {problem_of(error)}"

    async def _executed(
        self, tool: Tool, arguments: Mapping[str, Any]
    ) -> tuple[str, BaseException | None]:
        async with tool.turn:
            limit_s, late = self.limits.tool_timeout_s, f"{tool.name} took longer than"
            late = f"{late} {limit_s:g} s"
            if self.until is not None:
                left_s = self.until - asyncio.get_running_loop().time()
                if left_s < limit_s:
                    limit_s, late = left_s, f"{tool.name}: the rollout's time is over"
            if limit_s <= 0:
                return "", DeadlineError(late)
            return await _bounded(tool, arguments, limit_s, late)


async def _bounded(
    tool: Tool, arguments: Mapping[str, Any], limit_s: float, late: str
) -> tuple[str, BaseException | None]:
    """Text, or what was raised: by the tool, or since it took too long."""
    task = asyncio.ensure_future(_contained(tool, arguments))
    try:
        done, _ = await asyncio.wait({task}, timeout=limit_s)
        return task.result() if done else ("", DeadlineError(late))
    finally:
        if not task.done():
            await _stop(task)


async def _stop(task: asyncio.Task[Any]) -> None:
    task.cancel()
    try:
        await asyncio.wait({task}, timeout=GRACE_S)
    finally:
        if not task.done():
            _LEFT.add(task)
            task.add_done_callback(_LEFT.discard)


async def _contained(tool: Tool, arguments: Mapping[str, Any]) -> tuple[str, BaseException | None]:
    """Nothing that a tool raises gets past here: some errors would end the whole loop."""
    try:
        return await tool.call(arguments), None
    except GeneratorExit:
        raise  # nobody awaits this any more
    except BaseException as error:  # noqa: BLE001 - it is the call's answer
        return "", error
