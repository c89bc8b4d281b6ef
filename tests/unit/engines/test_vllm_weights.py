"""vLLM while its weights change: which tokens are whose, and when it stands still."""

from __future__ import annotations

import asyncio
import sys
from types import ModuleType, SimpleNamespace

import pytest

from workbench.engines.vllm import VLLMEngine
from workbench.errors import ConfigError, ReplicaDiedError
from workbench.types import FinishReason


class Dead(Exception):
    """vLLM's own word for it."""


class Collector:
    """Holds one merged output, as vLLM's do."""

    def __init__(self):
        self.ids = []
        self.reason = None
        self.closed = False
        self.request_id = "internal"

    def say(self, *ids, reason=None):
        self.ids += ids
        self.reason = reason

    def get_nowait(self):
        if not (self.ids or self.reason):
            return None
        ids, self.ids = self.ids, []
        logprobs = [{token: SimpleNamespace(logprob=-float(token))} for token in ids]
        completion = SimpleNamespace(
            token_ids=ids, logprobs=logprobs, finish_reason=self.reason, weight_versions=None
        )
        return SimpleNamespace(outputs=[completion], metrics=None, num_cached_tokens=None)

    def close(self):
        self.closed = True


class LLM:
    """``AsyncLLM``, as far as weights go; notes what it is asked."""

    errored = False

    def __init__(self):
        self.asked = []
        self.last_words = lambda: None
        """What it samples until it answers."""
        self.broken = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def _answer(self, *asked):
        self.asked.append(asked)
        await self.gate.wait()
        self.last_words()
        if self.broken:
            raise self.broken

    async def pause_generation(self, *, mode, clear_cache):
        await self._answer("pause", mode, clear_cache)

    async def resume_generation(self):
        await self._answer("resume")

    async def collective_rpc(self, method, *, kwargs):
        await self._answer(method, kwargs["weights_path"])

    async def update_weight_version(self, version):
        self.asked.append(("version", version))

    async def reset_prefix_cache(self, *, reset_running_requests):
        await self._answer("reset", reset_running_requests)

    async def sleep(self, level, *, mode):
        await self._answer("sleep", level, mode)

    async def wake_up(self):
        await self._answer("wake")


@pytest.fixture(autouse=True)
def vllm(monkeypatch):
    """The one name of it that draining needs."""
    module = ModuleType("vllm.v1.engine.exceptions")
    module.EngineDeadError = Dead
    monkeypatch.setitem(sys.modules, module.__name__, module)


def running(device="gpu", **args):
    engine = VLLMEngine("replica-0", "model", args, device=device)
    engine._llm, engine._collectors["r"] = LLM(), Collector()
    engine._stats.begins()
    return engine, engine._llm, engine._collectors["r"]


async def test_what_was_sampled_before_the_weights_came_is_of_the_old_ones():
    engine, llm, collector = running()
    collector.say(1, 2)
    llm.last_words = lambda: collector.say(3)
    await engine.load_weights("/w/v7", 7)
    collector.say(4)
    first, second = engine.drain()
    assert (first.token_ids, first.version) == ([1, 2, 3], 0)
    assert (second.token_ids, second.version) == ([4], 7)
    assert second.log_probs == [-4.0]
    assert engine.drain() == []
    assert llm.asked == [("reload_weights", "/w/v7"), ("version", "7")]


async def test_what_ended_before_the_weights_came_ends_with_its_tokens_and_is_forgotten():
    engine, llm, collector = running()
    llm.last_words = lambda: collector.say(1, reason="abort")
    await engine.load_weights("/w/v1", 1)
    (delta,) = engine.drain()
    assert (delta.token_ids, delta.finish_reason) == ([1], FinishReason.ABORT)
    assert (delta.version, collector.closed, engine._collectors) == (0, True, {})


async def test_weights_that_do_not_load_leave_the_version_as_it_was():
    engine, llm, collector = running()
    llm.broken = ValueError("another shape")
    with pytest.raises(ValueError, match="another shape"):
        await engine.load_weights("/w/v1", 1)
    collector.say(1)
    assert [delta.version for delta in engine.drain()] == [0]
    assert ("version", "1") not in llm.asked


def silent(engine, monkeypatch):
    """What it says of a stall after half a minute without a step."""
    at_s = engine._stats._heard_s + 30.0
    monkeypatch.setattr("workbench.engines.vllm_stats.time.monotonic", lambda: at_s)
    return engine.figures().stalled_s


async def test_it_is_stalled_while_it_has_requests_and_takes_no_step(monkeypatch):
    engine, llm, _ = running()
    assert silent(engine, monkeypatch) == 30.0
    await engine.pause()
    assert silent(engine, monkeypatch) == 0.0
    await engine.resume()
    assert engine.figures().stalled_s == 0.0, "it has only just gone on"
    assert silent(engine, monkeypatch) == 30.0
    engine._collectors.clear()
    assert silent(engine, monkeypatch) == 0.0
    assert llm.asked == [("pause", "keep", False), ("resume",)]


async def test_one_that_hangs_before_its_requests_have_ended_is_stalled_though_it_pauses(
    monkeypatch,
):
    engine, llm, _ = running()
    llm.gate.clear()
    pausing = asyncio.ensure_future(engine.pause("wait", clear_cache=True))
    await asyncio.sleep(0)
    assert llm.asked == [("pause", "wait", True)]
    assert silent(engine, monkeypatch) == 30.0
    pausing.cancel()
    await asyncio.wait([pausing])
    assert silent(engine, monkeypatch) == 0.0, "it may stand still until somebody resumes it"


async def test_on_a_gpu_it_sleeps_and_is_not_stalled_and_on_a_cpu_nothing_happens(monkeypatch):
    engine, llm, _ = running()
    with pytest.raises(ConfigError, match=r"enable_sleep_mode.*is off"):  # vLLM would say it did
        await engine.sleep()
    engine, llm, _ = running(enable_sleep_mode=True)
    assert await engine.sleep(2)
    assert silent(engine, monkeypatch) == 0.0
    assert await engine.wake()
    assert silent(engine, monkeypatch) == 30.0
    assert llm.asked == [("sleep", 2, "keep"), ("wake",)]
    engine, llm, _ = running("cpu")
    assert not await engine.sleep()
    assert not await engine.wake()
    assert llm.asked == []


async def test_clearing_the_cache_takes_the_blocks_of_those_that_run_too():
    engine, llm, _ = running()
    await engine.clear_cache()
    assert llm.asked == [("reset", True)]


async def test_without_an_engine_every_order_says_that_it_is_gone():
    engine = VLLMEngine("replica-0", "model", {}, device="cpu")
    for order in (engine.pause(), engine.resume(), engine.load_weights("w", 1)):
        with pytest.raises(ReplicaDiedError, match="replica-0"):
            await order
