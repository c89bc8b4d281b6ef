"""A steady load on a pool: as soon as a generation ends, the next begins."""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from workbench.client import LLMServerClient
    from workbench.cluster.manager import LLMServerManager

CONCURRENT = 32
TOKENS = 96
PROMPT = 48
LOOK_S = 0.1
SETTLED = 2 * CONCURRENT
"""Generations that end before anything is measured: until then they begin and end in step."""


class Load:
    """Runs while the block does."""

    def __init__(self, manager: LLMServerManager, client: LLMServerClient) -> None:
        self._manager = manager
        self._client = client
        self._numbers = itertools.count()
        self._durations: list[float] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.failed = 0

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._go_on(i)) for i in range(CONCURRENT)]
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _go_on(self, number: int) -> None:
        spread = 0.5 + number / CONCURRENT  # different lengths, or all would begin together
        sampling = {"max_tokens": int(TOKENS * spread), "ignore_eos": True}
        while True:
            began_s, turn = time.perf_counter(), next(self._numbers)
            prompt = [(turn * 131 + i * 17) % 40_000 + 10 for i in range(PROMPT)]
            try:
                await self._client.generate(
                    f"load-{turn}", prompt_ids=prompt, sampling_params=sampling
                )
            except Exception:  # noqa: BLE001 - counted: none is expected
                self.failed += 1
            else:
                self._durations.append(time.perf_counter() - began_s)

    @property
    def mean_request_s(self) -> float:
        """Of those that ended."""
        return statistics.mean(self._durations)

    async def settled(self) -> None:
        """Enough have ended."""
        while len(self._durations) < SETTLED:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)

    async def sampled(self) -> int:
        """Tokens that the engines say they sampled so far."""
        pool = await self._manager.snapshot()
        return sum(r.engine.generation_tokens for r in pool.replicas if r.engine)

    async def tokens_per_s(self, window_s: float) -> float:
        """From now on, over so many seconds."""
        began_s, before = time.perf_counter(), await self.sampled()
        await asyncio.sleep(window_s)
        after = await self.sampled()
        return (after - before) / (time.perf_counter() - began_s)
