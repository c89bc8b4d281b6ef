"""Starting: two replicas in Ray beside one bare engine in a process of its own."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from typing import Any

from workbench.cluster.manager import LLMServerManager
from workbench.config import PoolConfig
from workbench.models import resolve_model

BARE = """
import sys
from workbench.engines import vllm_setup as setup
setup.prepare_environment("cpu", 1, "ERROR")
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.v1.engine.async_llm import AsyncLLM
import asyncio
async def main():
    args = setup.make_args(sys.argv[1], {}, device="cpu")
    llm = AsyncLLM.from_engine_args(AsyncEngineArgs(**args))
    print("ready", flush=True)
    sys.stdin.readline()
    llm.shutdown()
if __name__ == "__main__":
    asyncio.run(main())
"""


def bare_start_s(model_dir: str) -> float:
    """From the process's start until its engine is ready."""
    began_s = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-c", BARE, model_dir],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip() == "ready":
                took_s = time.perf_counter() - began_s
                break
        else:
            raise RuntimeError("the bare engine did not start")
        process.communicate("\n")
    return took_s


async def pool_start(model: str) -> tuple[float, dict[str, float]]:
    """Seconds until two replicas serve, and what the slower one spent them on."""
    began_s = time.perf_counter()
    config = PoolConfig(model=model, replicas=2, name="lifecycle")
    manager = await LLMServerManager.create(config)
    took_s = time.perf_counter() - began_s
    try:
        statuses = await manager.statuses()
    finally:
        await manager.close()
    slowest = max(statuses, key=lambda status: status.start_s or 0.0)
    return took_s, dict(slowest.stages)


def start_figures(model: str, rounds: int) -> dict[str, Any]:
    """Medians; a first start of each side fills the file cache and is not counted."""
    model_dir = str(resolve_model(model))
    bare, ours, stages = [], [], []
    for counted in [False] + [True] * rounds:
        bare_s = bare_start_s(model_dir)
        pool_s, spent = asyncio.run(pool_start(model))
        if counted:
            bare.append(bare_s)
            ours.append(pool_s)
            stages.append(spent)
    names = dict.fromkeys(name for spent in stages for name in spent)
    start_s, bare_start = statistics.median(ours), statistics.median(bare)
    return {
        "start_s": round(start_s, 2),
        "bare_start_s": round(bare_start, 2),
        "start_ratio": round(start_s / bare_start, 3),
        "start_stages": {
            name: round(statistics.median([spent.get(name, 0.0) for spent in stages]), 3)
            for name in names
        },
    }
