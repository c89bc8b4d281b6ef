"""What vLLM reports of itself, added up. Knows its reports by their fields and imports nothing."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from workbench.metrics import buckets
from workbench.types import EngineFigures


class EngineStats:
    """vLLM's stat logger: counts, and wakes the pump when a request begins or ends.

    ``tells_evictions``: vLLM tells of every block that it uses again.
    """

    def __init__(self, *, tells_evictions: bool) -> None:
        self.urgent = asyncio.Event()
        self._running = self._waiting = 0
        self._kv_cache_usage = 0.0
        self._prompt = self._cached = self._sampled = self._preempted = self._finished = 0
        self._first_token_times = buckets.empty_counts()
        self._evictions = _Evictions() if tells_evictions else None
        self._heard_s = time.monotonic()

    @property
    def silent_s(self) -> float:
        """Since the last step, or since :meth:`begins`."""
        return time.monotonic() - self._heard_s

    def begins(self) -> None:
        """An engine that had nothing to do has something from now on."""
        self._heard_s = time.monotonic()

    def record(
        self,
        scheduler_stats: Any,
        iteration_stats: Any,
        mm_cache_stats: Any = None,  # noqa: ARG002 - vLLM passes it
        engine_idx: int = 0,  # noqa: ARG002 - vLLM passes it
    ) -> None:
        """One step of the engine."""
        self._heard_s = time.monotonic()
        if self._evictions:
            self._evictions.record(scheduler_stats, iteration_stats)
        if scheduler_stats is not None:
            self._running = scheduler_stats.num_running_reqs
            self._waiting = (
                scheduler_stats.num_waiting_reqs + scheduler_stats.num_skipped_waiting_reqs
            )
            self._kv_cache_usage = scheduler_stats.kv_cache_usage
        if iteration_stats is not None:
            self._count(iteration_stats)

    def _count(self, iteration: Any) -> None:
        self._prompt += iteration.prompt_token_stats.total
        self._cached += iteration.prompt_token_stats.cached_tokens
        self._sampled += iteration.num_generation_tokens
        self._preempted += iteration.num_preempted_reqs
        self._finished += len(iteration.finished_requests)
        for time_s in iteration.time_to_first_tokens_iter:
            buckets.count(self._first_token_times, time_s)
        if iteration.finished_requests or iteration.time_to_first_tokens_iter:
            self.urgent.set()

    def aborted(self, requests: int) -> None:
        """So many were stopped, which vLLM does not report."""
        if self._evictions:
            self._evictions.left(requests)

    def figures(self) -> EngineFigures:
        """As it was last heard."""
        return EngineFigures(
            running=self._running,
            waiting=self._waiting,
            kv_cache_usage=self._kv_cache_usage,
            prompt_tokens=self._prompt,
            cached_prompt_tokens=self._cached,
            generation_tokens=self._sampled,
            num_preempted=self._preempted,
            finished=self._finished,
            evicted_blocks=self._evictions.blocks if self._evictions else None,
            ttft_counts=tuple(self._first_token_times),
        )

    def log_engine_initialized(self) -> None:
        """vLLM asks for it; there is nothing to say."""

    def log(self) -> None:
        """vLLM asks for it; there is nothing to say."""

    def record_sleep_state(self, is_awake: int, level: int) -> None:
        """vLLM asks for it; sleeping is not shown yet."""


class _Evictions:
    """Which of the blocks that vLLM uses again were in its prefix cache.

    It reports all of them as evicted, also those that were never full and so never in the cache. A
    request leaves one of these behind when it goes, and they are used again before any other: so
    many of the reported ones are none. A request that ends with its last block full leaves none,
    which hides an eviction.
    """

    def __init__(self) -> None:
        self.blocks = 0
        self._not_full = 0
        """Blocks left behind that were not used again yet: no more than requests ran together."""
        self._most_running = 0

    def left(self, requests: int) -> None:
        """So many requests have left the batch."""
        self._not_full = min(self._not_full + requests, self._most_running)

    def record(self, scheduler_stats: Any, iteration_stats: Any) -> None:
        """What was preempted made room in this step, what ended does in the next."""
        if iteration_stats is not None:
            self.left(iteration_stats.num_preempted_reqs)
        if scheduler_stats is not None:
            reused = len(scheduler_stats.kv_cache_eviction_events)
            self.blocks += max(0, reused - self._not_full)
            self._not_full = max(0, self._not_full - reused)
            self._most_running = max(self._most_running, scheduler_stats.num_running_reqs)
        if iteration_stats is not None:
            self.left(len(iteration_stats.finished_requests))
