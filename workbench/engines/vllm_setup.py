"""What a vLLM engine is started with: arguments and environment. Imports nothing of vLLM."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # which cores are free is for the system to know
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
    """Set what vLLM reads from the environment; before it is first imported.

    ``threads``: of each of its processes that compute, on a CPU.
    """
    os.environ.setdefault("VLLM_LOGGING_LEVEL", log_level)
    os.environ.setdefault("VLLM_LOGGING_COLOR", "0")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    if device == "cpu":
        for name, value in CPU_ENV.items():
            os.environ.setdefault(name, value)
        os.environ["OMP_NUM_THREADS"] = str(threads)
