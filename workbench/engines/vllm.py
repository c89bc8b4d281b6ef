"""vLLM as an engine; beside ``vllm_requests`` and ``vllm_http`` nothing imports it.

Works with the CUDA build and with the CPU build of the same minor version. Requests go through
``AsyncLLM.add_request``, whose per-request collectors merge deltas until we drain them; vLLM's stat
logger tells when a request begins or ends, and carries the engine's figures.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from workbench.engines.base import EngineLimits
from workbench.engines.vllm_requests import (
    check_ids,
    finish_reason,
    refusal,
    sampled_log_probs,
    sampling_params,
)
from workbench.engines.vllm_setup import make_args
from workbench.engines.vllm_stats import EngineStats
from workbench.errors import ConfigError, ReplicaDiedError, RequestError
from workbench.types import EngineFigures, GenerateRequest, TokenDelta, VersionSpan

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from starlette.types import ASGIApp
    from vllm.outputs import RequestOutput
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.engine.output_processor import RequestOutputCollector

    from workbench.weights import PauseMode


class VLLMEngine:
    """Serves the model in ``model_dir``; ``given`` reaches ``AsyncEngineArgs`` untouched."""

    def __init__(
        self,
        replica_id: str,
        model_dir: str,
        given: Mapping[str, Any],
        *,
        device: str,
        seed: int = 0,
        profile_dir: str = "",
    ) -> None:
        self._replica_id = replica_id
        self._args = make_args(model_dir, given, device=device, seed=seed)
        self._device = device
        self._profile_dir = profile_dir
        """Where traces go; empty where none can be taken."""
        self._llm: AsyncLLM | None = None
        self._early: list[TokenDelta] = []
        """What was sampled before new weights came and is not handed over yet."""
        self._collectors: dict[str, RequestOutputCollector] = {}
        self._version = 0
        self._paused = False
        self._dies_of_seeds = False
        self._stats = EngineStats(tells_evictions=_tells_evictions(self._args))

    async def start(self) -> EngineLimits:
        """Load the model. It blocks for seconds, so it happens on a thread."""
        llm = await asyncio.to_thread(self._load)
        self._llm = llm
        await llm.update_weight_version(str(self._version))
        config = llm.vllm_config
        cuts = config.scheduler_config.enable_chunked_prefill
        # vLLM 0.32: "CPU Generator does not use offset"
        self._dies_of_seeds = self._device == "cpu" and cuts
        return EngineLimits(
            max_model_len=config.model_config.max_model_len,
            vocab_size=config.model_config.get_vocab_size(),
            max_num_seqs=config.scheduler_config.max_num_seqs,
            kv_cache_tokens=_kv_cache_tokens(config.cache_config),
        )

    def _load(self) -> AsyncLLM:
        from vllm.config import ProfilerConfig
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        args = dict(self._args)
        if self._profile_dir and "profiler_config" not in args:
            args["profiler_config"] = ProfilerConfig(
                profiler="torch", torch_profiler_dir=self._profile_dir
            )
        return AsyncLLM.from_engine_args(
            AsyncEngineArgs(**args), stat_loggers=[self._make_stat_logger]
        )

    def _make_stat_logger(self, *config: Any) -> Any:  # noqa: ARG002 - ours needs none
        return self._stats

    async def add(self, request: GenerateRequest) -> None:
        """Hand a request to vLLM, whose refusals become :class:`RequestError`."""
        from vllm.exceptions import VLLMClientError
        from vllm.v1.engine.exceptions import EngineDeadError

        llm = self._running()
        check_ids(request)
        if self._dies_of_seeds and request.sampling.get("seed") is not None:
            problem = "vLLM on a CPU dies where it cuts the prefill of a request with a seed"
            allowed = "no seed, or a pool with engine_args={'enable_chunked_prefill': False}"
            raise RequestError("sampling_params['seed']", problem, allowed=allowed)
        params = sampling_params(request.sampling)
        prompt: Any = {"prompt_token_ids": request.prompt_ids}
        if self._version:  # blocks of other weights are other blocks
            prompt["cache_salt"] = f"version {self._version}"
        if not self._collectors:
            self._stats.begins()
        try:
            self._collectors[request.request_id] = await llm.add_request(
                request.request_id, prompt, params, priority=request.priority
            )
        except EngineDeadError as error:
            raise self._death(error) from error
        except (VLLMClientError, ValueError, TypeError) as error:
            raise refusal(error, request.sampling, "prompt_ids") from error

    async def wait(self, timeout_s: float) -> None:
        """Return at the next first token or end, or after ``timeout_s``."""
        self._stats.urgent.clear()
        try:
            async with asyncio.timeout(timeout_s):
                await self._stats.urgent.wait()
        except TimeoutError:
            if self._running().errored:
                return  # drain() says so

    def drain(self) -> list[TokenDelta]:
        """Empty vLLM's collectors."""
        deltas, self._early = self._early, []
        return deltas + self._take()

    def _take(self) -> list[TokenDelta]:
        from vllm.v1.engine.exceptions import EngineDeadError

        deltas = []
        try:
            for request_id, collector in list(self._collectors.items()):
                output = collector.get_nowait()
                if output is not None:
                    delta = self._delta(request_id, output)
                    deltas.append(delta)
                    if delta.is_last:
                        self._collectors.pop(request_id).close()
        except EngineDeadError as error:
            raise self._death(error) from error
        if self._llm is not None and self._llm.errored:
            raise self._death(self._llm.dead_error)
        return deltas

    def _delta(self, request_id: str, output: RequestOutput) -> TokenDelta:
        completion = output.outputs[0]
        ids = list(completion.token_ids)
        stats = output.metrics
        return TokenDelta(
            request_id,
            ids,
            sampled_log_probs(ids, completion.logprobs),
            version=self._version,
            finish_reason=finish_reason(completion.finish_reason),
            num_cached_tokens=output.num_cached_tokens,
            num_preempted=stats.num_preemptions if stats else None,
            queue_s=max(0.0, stats.scheduled_ts - stats.queued_ts) if stats else None,
            first_token_s=stats.first_token_latency if stats else None,
            version_spans=tuple(
                VersionSpan(int(span.version), span.start, span.end)
                for span in completion.weight_versions or ()
            ),
        )

    async def abort(self, request_ids: Iterable[str]) -> None:
        """Stop requests; vLLM puts their last words into their collectors."""
        ids = [request_id for request_id in request_ids if request_id in self._collectors]
        self._stats.aborted(len(ids))
        await self._running().abort([self._collectors[i].request_id for i in ids], internal=True)
        self._stats.urgent.set()

    def figures(self) -> EngineFigures:
        """As the stat logger last heard it."""
        stalled_s = self._stats.silent_s if self._collectors and not self._paused else 0.0
        return replace(self._stats.figures(), stalled_s=stalled_s)

    def check(self) -> None:
        """vLLM watches its own processes."""
        llm = self._running()
        if llm.errored:
            raise self._death(llm.dead_error)

    # -- weights ----------------------------------------------------------------------------

    async def pause(self, mode: PauseMode = "keep", *, clear_cache: bool = False) -> None:
        """Stop scheduling; see :meth:`Engine.pause`."""
        try:  # until then an engine that hangs has to be noticed
            await self._running().pause_generation(mode=mode, clear_cache=clear_cache)
        finally:
            self._paused = True

    async def resume(self) -> None:
        """Go on scheduling. Idempotent."""
        await self._running().resume_generation()
        self._stats.begins()
        self._paused = False

    async def load_weights(self, directory: str, version: int) -> None:
        """Take weights over in place; an exception leaves them half old and half new."""
        llm = self._running()
        await llm.collective_rpc("reload_weights", kwargs={"weights_path": directory})
        # vLLM answers on the line on which it sends tokens: all that came before are here.
        self._early += self._take()
        await llm.update_weight_version(str(version))
        self._version = version

    async def clear_cache(self) -> None:
        """Drop all KV blocks; requests that run compute theirs again."""
        await self._running().reset_prefix_cache(reset_running_requests=True)

    async def sleep(self, level: int = 1) -> bool:
        """Give the GPU's memory back; on a CPU nothing happens."""
        if self._device == "cpu":
            return False
        if not self._args.get("enable_sleep_mode"):  # vLLM would say that it slept
            field = "engine_args['enable_sleep_mode']"
            raise ConfigError(field, "is off", allowed="True, for engines that are to sleep")
        self._paused = True
        await self._running().sleep(level, mode="keep")
        return True

    async def wake(self) -> bool:
        """The opposite of :meth:`sleep`."""
        if self._device == "cpu":
            return False
        await self._running().wake_up()
        self._stats.begins()
        self._paused = False
        return True

    # -- traces and HTTP --------------------------------------------------------------------

    async def start_profile(self) -> None:
        """Record what the engine does, until :meth:`stop_profile`."""
        await self._running().start_profile()

    async def stop_profile(self) -> None:
        """Write the traces."""
        await self._running().stop_profile()

    async def openai_app(self, model: str) -> ASGIApp:
        """vLLM's own OpenAI routes over this engine, as ``model``."""
        from workbench.engines.vllm_http import openai_app

        return await openai_app(self._running(), self._args, model)

    async def close(self) -> None:
        """Shut vLLM down with its processes."""
        llm, self._llm = self._llm, None
        if llm is not None:
            await asyncio.to_thread(llm.shutdown)

    def _running(self) -> AsyncLLM:
        if self._llm is None:
            raise ReplicaDiedError(self._replica_id, "its engine is not running")
        return self._llm

    def _death(self, error: BaseException) -> ReplicaDiedError:
        return ReplicaDiedError(self._replica_id, f"{type(error).__name__}: {error}".strip(": "))


def _tells_evictions(args: Mapping[str, Any]) -> bool:
    """Whether vLLM tells of every block that it uses again."""
    return bool(args["kv_cache_metrics"] and args["kv_cache_metrics_sample"] == 1.0)


def _kv_cache_tokens(cache_config: Any) -> int | None:
    blocks = cache_config.num_gpu_blocks
    return blocks * cache_config.block_size if blocks else None
