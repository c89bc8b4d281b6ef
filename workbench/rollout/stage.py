"""Rendering and parsing apart from the event loop: a bounded stage of their own.

A thousand rollouts that get their replies at once would otherwise be parsed in one pass of the
loop, while nobody else's tokens move.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from workbench.rollout.rendering import Bridge, Message, ParsedReply, Renderer, ToolSpecs

P = ParamSpec("P")
T = TypeVar("T")


class RenderStage:
    """One thread that renders and parses for all rollouts of a worker, in the order of asking.

    One, since tokenizers of one model are not safe to use from two at once, and Python would not
    run two at once either. What is given up while it waits is not done.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="render")

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What ``work`` returns or raises."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: work(*args, **kwargs))

    def close(self) -> None:
        """End the thread once what it does is done. Idempotent."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class StagedRenderer:
    """A :class:`Renderer` for loops to await: the same methods, on a stage.

    Without a stage the work is done where it is asked for.
    """

    def __init__(self, renderer: Renderer, stage: RenderStage | None = None) -> None:
        self._renderer = renderer
        self._stage = stage

    async def prompt(self, messages: Sequence[Message], tools: ToolSpecs = ()) -> list[int]:
        """See :meth:`Renderer.prompt`. The messages are those of this moment."""
        return await self._run(self._renderer.prompt, list(messages), tools)

    async def extend(
        self,
        prompt_ids: Sequence[int],
        completion_ids: Sequence[int],
        messages: Sequence[Message],
        tools: ToolSpecs = (),
    ) -> Bridge:
        """See :meth:`Renderer.extend`."""
        return await self._run(
            self._renderer.extend, prompt_ids, completion_ids, list(messages), tools
        )

    async def parse(self, completion_ids: Sequence[int], tools: ToolSpecs = ()) -> ParsedReply:
        """See :meth:`Renderer.parse`."""
        return await self._run(self._renderer.parse, completion_ids, tools)

    async def decode(self, ids: Sequence[int]) -> str:
        """See :meth:`Renderer.decode`."""
        return await self._run(self._renderer.decode, ids)

    async def _run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self._stage is None:
            return work(*args, **kwargs)
        return await self._stage.run(work, *args, **kwargs)
