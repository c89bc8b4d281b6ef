"""vLLM as an engine: the one module that imports it.

Works with the CUDA build and with the CPU build of the same minor version. Requests go through
``AsyncLLM.add_request``, whose per-request collectors merge deltas until we drain them; vLLM's stat
logger tells when a request begins or ends, and carries the engine's figures.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from workbench.engines.base import EngineLimits
from workbench.engines.vllm_stats import EngineStats
from workbench.errors import ReplicaDiedError, RequestError
from workbench.types import EngineFigures, FinishReason, GenerateRequest, TokenDelta, VersionSpan

if TYPE_CHECKING:
    from vllm.outputs import RequestOutput
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.engine.output_processor import RequestOutputCollector

COMMON_ARGS: dict[str, Any] = {
    "logprobs_mode": "processed_logprobs",  # what was sampled from, temperature included
    "enable_prefix_caching": True,
    "kv_cache_metrics": True,  # with all blocks, or evictions cannot be counted
    "kv_cache_metrics_sample": 1.0,
}

CPU_ARGS: dict[str, Any] = {
    "dtype": "bfloat16",
    "enforce_eager": True,
    "block_size": 32,  # 13 % more tokens/s than 128, and a prefix cache that is finer
    "max_num_seqs": 64,
    "distributed_executor_backend": "uni",  # worker and engine core in one process
}
"""Measured on two cores with a 135M model; any of them yields to ``engine_args``."""

CPU_ENV = {
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # without it "uni" is silently turned into "mp"
}


def make_args(
    model_dir: str, given: Mapping[str, Any], *, device: str, seed: int = 0
) -> dict[str, Any]:
    """The arguments of a replica's engine: ours, then the caller's over them.

    Replicas with one seed would sample alike, and the rollouts of a group could be the same ones.
    """
    ours = COMMON_ARGS | (CPU_ARGS if device == "cpu" else {})
    if given.get("tensor_parallel_size", 1) * given.get("pipeline_parallel_size", 1) > 1:
        ours = ours | {"distributed_executor_backend": "mp"}
    return {"model": model_dir, "seed": seed} | ours | dict(given)


def prepare_environment(device: str, threads: int, log_level: str = "INFO") -> None:
    """Set what vLLM reads from the environment; before it is first imported."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", log_level)
    os.environ.setdefault("VLLM_LOGGING_COLOR", "0")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    if device == "cpu":
        for name, value in CPU_ENV.items():
            os.environ.setdefault(name, value)
        os.environ["OMP_NUM_THREADS"] = str(threads)


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
    ) -> None:
        self._replica_id = replica_id
        self._args = make_args(model_dir, given, device=device, seed=seed)
        self._llm: AsyncLLM | None = None
        self._collectors: dict[str, RequestOutputCollector] = {}
        self._version = 0
        self._stats = EngineStats(tells_evictions=_tells_evictions(self._args))

    async def start(self) -> EngineLimits:
        """Load the model. It blocks for seconds, so it happens on a thread."""
        llm = await asyncio.to_thread(self._load)
        self._llm = llm
        await llm.update_weight_version(str(self._version))
        config = llm.vllm_config
        return EngineLimits(
            max_model_len=config.model_config.max_model_len,
            vocab_size=config.model_config.get_vocab_size(),
            max_num_seqs=config.scheduler_config.max_num_seqs,
            kv_cache_tokens=_kv_cache_tokens(config.cache_config),
        )

    def _load(self) -> AsyncLLM:
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        return AsyncLLM.from_engine_args(
            AsyncEngineArgs(**self._args), stat_loggers=[self._make_stat_logger]
        )

    def _make_stat_logger(self, *config: Any) -> Any:  # noqa: ARG002 - ours needs none
        return self._stats

    async def add(self, request: GenerateRequest) -> None:
        """Hand a request to vLLM, whose refusals become :class:`RequestError`."""
        from vllm.exceptions import VLLMClientError
        from vllm.v1.engine.exceptions import EngineDeadError

        llm = self._running()
        _check_ids(request)
        params = _sampling_params(request.sampling)
        try:
            self._collectors[request.request_id] = await llm.add_request(
                request.request_id,
                {"prompt_token_ids": request.prompt_ids},
                params,
                priority=request.priority,
            )
        except EngineDeadError as error:
            raise self._death(error) from error
        except (VLLMClientError, ValueError, TypeError) as error:
            raise _refusal(error, request.sampling, "prompt_ids") from error

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
            _sampled_log_probs(ids, completion.logprobs),
            version=self._version,
            finish_reason=_finish_reason(completion.finish_reason),
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
        return self._stats.figures()

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


def _check_ids(request: GenerateRequest) -> None:
    """Whole numbers, and nothing that only looks like one: vLLM would take it and then break.

    Its front end passes such values on, and its core ends the thread that hears of requests on the
    first message that it cannot decode; the engine would look alive and answer nobody.
    """
    for token in request.prompt_ids:
        if type(token) is not int:
            raise RequestError("prompt_ids", f"{token!r} is no token id", allowed="whole numbers")
    if type(request.priority) is not int:
        raise RequestError("priority", f"{request.priority!r}", allowed="a whole number")


def _sampling_params(sampling: Mapping[str, Any]) -> Any:
    """vLLM's parameters, with what the workbench needs whatever the caller said.

    Raises:
        RequestError: names the parameter that is unknown, out of range, or of another type than
            vLLM's core decodes (see :func:`_check_ids`).
    """
    import msgspec
    from vllm import SamplingParams
    from vllm.exceptions import VLLMClientError
    from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

    given = dict(sampling)
    for name, allowed in _NOT_OURS.items():
        if given.pop(name, allowed[0]) not in allowed:
            raise RequestError(
                f"sampling_params[{name!r}]", "is not supported", allowed=f"{allowed[0]}, or absent"
            )
    given |= {
        "logprobs": 0,  # the sampled token's own, and no other
        "flat_logprobs": True,
        "detokenize": bool(given.get("stop")),  # only stop strings need text
        "output_kind": RequestOutputKind.DELTA,
    }
    try:
        if isinstance(given.get("structured_outputs"), Mapping):
            given["structured_outputs"] = StructuredOutputsParams(**given["structured_outputs"])
        params = SamplingParams(**given)
        msgspec.msgpack.decode(msgspec.msgpack.encode(params), type=SamplingParams)
    except (VLLMClientError, ValueError, TypeError, AttributeError) as error:
        raise _refusal(error, sampling, "sampling_params") from error
    return params


_NOT_OURS: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "prompt_logprobs": (None,),
    "logprobs": (0, 1, True, False, None),
}
"""Parameters whose meaning the workbench fixes, with the values that agree with it."""


def _refusal(error: Exception, sampling: Mapping[str, Any], otherwise: str) -> RequestError:
    """vLLM's complaint, with the field that it is about; ``otherwise`` where it names none."""
    text = str(error)
    parameter = getattr(error, "parameter", None)
    named = [
        name for name in sampling if name == parameter or f"'{name}'" in text or f"$.{name}" in text
    ]
    return RequestError(f"sampling_params[{named[0]!r}]" if named else otherwise, text)


def _sampled_log_probs(ids: list[int], logprobs: Any) -> list[float]:
    """The log-probability of each sampled token from vLLM's flat or nested form."""
    if logprobs is None:
        if ids:
            raise ValueError(f"the engine gave no log-probabilities for {len(ids)} tokens")
        return []
    if hasattr(logprobs, "start_indices"):
        values = logprobs.logprobs
        return [float(values[start]) for start in logprobs.start_indices]
    return [float(position[token].logprob) for token, position in zip(ids, logprobs, strict=True)]


def _tells_evictions(args: Mapping[str, Any]) -> bool:
    """Whether vLLM tells of every block that it uses again."""
    return bool(args["kv_cache_metrics"] and args["kv_cache_metrics_sample"] == 1.0)


def _finish_reason(reason: str | None) -> FinishReason | None:
    if reason is None:
        return None
    try:
        return FinishReason(reason)
    except ValueError:
        return FinishReason.STOP  # vLLM has rules of its own that end a generation


def _kv_cache_tokens(cache_config: Any) -> int | None:
    blocks = cache_config.num_gpu_blocks
    return blocks * cache_config.block_size if blocks else None
