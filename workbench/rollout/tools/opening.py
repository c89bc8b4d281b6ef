"""A rollout's tools from all their sources: opened together, closed together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeGuard

from workbench.errors import ConfigError, RolloutError, TaskError
from workbench.rollout.tools.base import Tool, ToolSession, ToolSource
from workbench.rollout.tools.functions import TAKEN, by_name, merged
from workbench.rollout.tools.results import problem_of
from workbench.rollout.tools.stateful import StatefulTool

AnyTool = Tool | ToolSource | type[StatefulTool] | Callable[..., Any]
"""What a loop takes as a tool or a source of tools."""


@dataclass(frozen=True, slots=True)
class ToolBox:
    """What an agent was given as its tools, before a rollout opens them.

    Args:
        plain: functions, which need no opening.
        sources: in the order in which they were given.
    """

    plain: Mapping[str, Tool]
    sources: tuple[ToolSource, ...]

    @classmethod
    def of(cls, tools: Iterable[AnyTool]) -> ToolBox:
        """Sort them.

        Raises:
            ConfigError: one is no tool, or two have one name.
        """
        if not isinstance(tools, Iterable) or isinstance(tools, str | Mapping):
            raise ConfigError("tools", f"{tools!r}", allowed=f"a list of {TAKEN}")
        made = [item() if _is_stateful(item) else item for item in tools]
        sources = [item for item in made if isinstance(item, ToolSource)]
        plain = by_name(item for item in made if not isinstance(item, ToolSource))
        stateful = [item for item in sources if isinstance(item, StatefulTool)]
        merged([plain, *({s.tool_name: Tool(s.execute, s.tool_name, s.spec)} for s in stateful)])
        return cls(plain, tuple(sources))

    @asynccontextmanager
    async def open(
        self, task: Mapping[str, Any], limit_s: float, note: Callable[[str], None]
    ) -> AsyncIterator[dict[str, Tool]]:
        """The tools of one rollout, by name.

        Args:
            task: the rollout's; its field ``tools`` narrows them to those of these names.
            limit_s: seconds for opening a source, and for closing it.
            note: told what went wrong in closing.

        Raises:
            RolloutError: a source could not be opened; names it.
            ConfigError: two sources have a tool of one name.
            TaskError: the task asks for a tool that there is not.
        """
        opened: list[tuple[str, ToolSession]] = []
        try:
            for source in self.sources:
                session = await _opened(source, task, limit_s)
                opened.append((label(source), session))
            tools = merged([self.plain, *(session.tools for _, session in opened)])
            yield chosen(tools, task.get("tools"))
        finally:
            await to_the_end(_close(opened, limit_s, note))


def _is_stateful(item: Any) -> TypeGuard[type[StatefulTool]]:
    return isinstance(item, type) and issubclass(item, StatefulTool)


def label(source: ToolSource) -> str:
    """What to call a source in a message."""
    if isinstance(source, StatefulTool):
        return source.tool_name
    return getattr(source, "name", "") or type(source).__name__


def chosen(tools: dict[str, Tool], names: Iterable[str] | None) -> dict[str, Tool]:
    """Those of these names; all for None.

    Raises:
        TaskError: there is none of a name.
    """
    if names is None:
        return tools
    wanted = list(names)
    for name in wanted:
        if name not in tools:
            raise TaskError("tools", f"there is no tool {name!r}", allowed=list(tools))
    return {name: made for name, made in tools.items() if name in wanted}


async def _opened(source: ToolSource, task: Mapping[str, Any], limit_s: float) -> ToolSession:
    limit = asyncio.timeout(limit_s)
    try:
        async with limit:
            return await source.open(task)
    except (ConfigError, TaskError):
        raise
    except Exception as error:
        late = f"it took longer than {limit_s:g} s"
        problem = late if limit.expired() else problem_of(error)
        raise RolloutError(f"the tool {label(source)} could not be opened: {problem}") from error


async def _close(
    opened: list[tuple[str, ToolSession]], limit_s: float, note: Callable[[str], None]
) -> None:
    for name, session in reversed(opened):
        limit = asyncio.timeout(limit_s)
        try:
            async with limit:
                await session.close()
        except BaseException as error:  # noqa: BLE001 - a tool must not take the others along
            late = f"it took longer than {limit_s:g} s"
            problem = late if limit.expired() else problem_of(error)
            note(f"the tool {name} was not closed: {problem}")


async def to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Await work that must be done even if the caller is cancelled; then be cancelled."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    task.result()
