"""What vLLM reports step by step, added up."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from workbench.engines.vllm import VLLMEngine
from workbench.engines.vllm_stats import EngineStats
from workbench.metrics.buckets import quantile


def step(stats, *, running=4, waiting=0, reused=0, ended=0, preempted=0, first_tokens=(), cached=0):
    """One step of the engine, as vLLM's stat loggers hear of it."""
    stats.record(
        SimpleNamespace(
            num_running_reqs=running,
            num_waiting_reqs=waiting,
            num_skipped_waiting_reqs=1,
            kv_cache_usage=0.25,
            kv_cache_eviction_events=[object()] * reused,
        ),
        SimpleNamespace(
            prompt_token_stats=SimpleNamespace(total=100, cached_tokens=cached),
            num_generation_tokens=running,
            num_preempted_reqs=preempted,
            finished_requests=[object()] * ended,
            time_to_first_tokens_iter=list(first_tokens),
        ),
    )


@pytest.fixture
def stats():
    return EngineStats(tells_evictions=True)


def evicted(stats):
    return stats.figures().evicted_blocks


def test_counters_grow_and_readings_are_those_of_the_last_step(stats):
    step(stats, running=7, cached=60)
    step(stats, running=3, waiting=2, ended=4, preempted=1)
    stats.record(None, None)
    figures = stats.figures()
    assert (figures.running, figures.waiting, figures.kv_cache_usage) == (3, 3, 0.25)
    assert (figures.prompt_tokens, figures.cached_prompt_tokens) == (200, 60)
    assert (figures.generation_tokens, figures.num_preempted, figures.finished) == (10, 1, 4)


def test_times_to_first_token_are_counted(stats):
    step(stats, first_tokens=[0.02, 0.6, 0.7])
    before = stats.figures().ttft_counts
    step(stats, first_tokens=[0.02])
    assert sum(before) == 3
    assert 0.5 < quantile((), before, 0.95) < 0.75
    assert quantile(before, stats.figures().ttft_counts, 0.95) < 0.025


@pytest.mark.parametrize("news", [{"ended": 1}, {"first_tokens": [0.1]}])
def test_the_pump_is_woken_by_a_first_token_and_by_an_end(stats, news):
    step(stats)
    assert not stats.urgent.is_set()
    step(stats, **news)
    assert stats.urgent.is_set()


def test_blocks_that_were_never_full_are_used_again_and_evict_nothing(stats):
    for _ in range(100):
        step(stats, ended=2)
        step(stats, reused=2)
    assert evicted(stats) == 0


def test_blocks_beyond_those_were_in_the_cache(stats):
    step(stats, ended=2)
    step(stats, reused=7)
    assert evicted(stats) == 5
    step(stats, reused=3)
    assert evicted(stats) == 8


def test_what_ends_in_a_step_makes_no_room_in_that_step_and_what_is_preempted_does(stats):
    step(stats)
    step(stats, reused=3, ended=3)
    assert evicted(stats) == 3
    step(stats, reused=4, preempted=1)
    assert evicted(stats) == 3


def test_a_request_that_was_stopped_leaves_a_block_too(stats):
    step(stats)
    stats.aborted(3)
    step(stats, reused=3)
    assert evicted(stats) == 0


def test_requests_that_leave_no_such_block_do_not_add_up(stats):
    """They end with a full one now and then; after months that must not hide what is evicted."""
    for _ in range(1000):
        step(stats, running=4, ended=1)
    step(stats, reused=10)
    assert evicted(stats) == 6


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, 0),
        ({"kv_cache_metrics": False}, None),
        ({"kv_cache_metrics_sample": 0.01}, None),
        ({"kv_cache_metrics": True, "kv_cache_metrics_sample": 1.0}, 0),
    ],
)
def test_evictions_are_unknown_where_the_caller_has_vllm_tell_only_some(given, told):
    engine = VLLMEngine("replica-0", "model", given, device="cpu")
    assert engine.figures().evicted_blocks is told
