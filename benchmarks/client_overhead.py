"""What the client, the balancer and the replica cost over a bare ``AsyncLLM``.

32 concurrent generations of 64 tokens, plain and streamed, through ``LLMServerClient``, balancer
and one replica, against the same requests on an ``AsyncLLM`` with the same arguments in this
process. Both engines are loaded; sides alternate within each round, so that what else the machine
does hits both alike. Fresh prompts each round: no side gains from its prefix cache.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from benchmarks.report import arguments, emit
from workbench.cluster.connection import connect
from workbench.cluster.manager import LLMServerManager
from workbench.config import PoolConfig
from workbench.engines import vllm_setup as engine
from workbench.models import resolve_model

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from workbench.client import LLMServerClient

CONCURRENT = 32
TOKENS = 64
PROMPT = 48
SAMPLING = {"temperature": 1.0, "max_tokens": TOKENS, "ignore_eos": True}

Prompts = list[list[int]]
Side = Callable[[Prompts], Awaitable[int]]


@asynccontextmanager
async def bare_engine(model_dir: str) -> AsyncIterator[Any]:
    """An ``AsyncLLM`` with the arguments that a replica uses."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    llm = AsyncLLM.from_engine_args(
        AsyncEngineArgs(**engine.make_args(model_dir, {}, device="cpu"))
    )
    try:
        yield llm
    finally:
        llm.shutdown()


def bare_side(llm: Any, *, streamed: bool) -> Side:
    """Generate on the bare engine; the number of tokens."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    kind = RequestOutputKind.DELTA if streamed else RequestOutputKind.FINAL_ONLY
    params = SamplingParams(**SAMPLING, logprobs=0, detokenize=False, output_kind=kind)

    async def one(number: int, prompt: list[int]) -> int:
        tokens = 0
        request = {"prompt_token_ids": prompt}
        async for output in llm.generate(request, params, f"{number}-{time.monotonic_ns()}"):
            tokens += len(output.outputs[0].token_ids)
        return tokens

    return _all(one)


def our_side(client: LLMServerClient, *, streamed: bool) -> Side:
    """Generate through the client; the number of tokens."""

    async def one(number: int, prompt: list[int]) -> int:
        session = f"{number}-{time.monotonic_ns()}"
        if not streamed:
            output = await client.generate(session, prompt_ids=prompt, sampling_params=SAMPLING)
            return len(output.token_ids)
        tokens = 0
        async for delta in client.stream(session, prompt_ids=prompt, sampling_params=SAMPLING):
            tokens += len(delta.token_ids)
        return tokens

    return _all(one)


def _all(one: Callable[[int, list[int]], Awaitable[int]]) -> Side:
    async def side(prompts: Prompts) -> int:
        return sum(await asyncio.gather(*(one(n, prompt) for n, prompt in enumerate(prompts))))

    return side


async def measure(sides: dict[str, Side], rounds: int, vocabulary: int) -> dict[str, list[float]]:
    """Tokens per second of each side in each round; a first round that is not counted warms up."""
    rng = random.Random(0)
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        prompts = [[rng.randrange(vocabulary) for _ in range(PROMPT)] for _ in range(CONCURRENT)]
        order = list(sides) if number % 2 else list(reversed(sides))
        for name in order:
            started = time.perf_counter()
            tokens = await sides[name](prompts)
            if number:
                rates[name].append(tokens / (time.perf_counter() - started))
            assert tokens == CONCURRENT * TOKENS, (name, tokens)
    return rates


async def run(rounds: int) -> dict[str, Any]:
    """Both engines, both ways."""
    model_dir = str(resolve_model("smollm2-135m"))
    manager = await LLMServerManager.create(PoolConfig(model="smollm2-135m"))
    try:
        async with bare_engine(model_dir) as llm, await manager.get_client() as client:
            sides = {
                "bare_plain": bare_side(llm, streamed=False),
                "ours_plain": our_side(client, streamed=False),
                "bare_streamed": bare_side(llm, streamed=True),
                "ours_streamed": our_side(client, streamed=True),
            }
            rates = await measure(sides, rounds, manager.limits.vocab_size)
    finally:
        await manager.close()
    return summary(rates)


def summary(rates: dict[str, list[float]]) -> dict[str, Any]:
    """Medians and ratios; ``ratio_tokens_per_s`` is the lower of the two."""
    medians = {name: statistics.median(values) for name, values in rates.items()}
    plain = medians["ours_plain"] / medians["bare_plain"]
    streamed = medians["ours_streamed"] / medians["bare_streamed"]
    return {
        "ratio_tokens_per_s": round(min(plain, streamed), 4),
        "ratio_plain": round(plain, 4),
        "ratio_streamed": round(streamed, 4),
        "tokens_per_s": {name: round(value, 1) for name, value in medians.items()},
        "raw_tokens_per_s": {n: [round(v, 1) for v in values] for n, values in rates.items()},
        "concurrent": CONCURRENT,
        "tokens": TOKENS,
        "prompt_tokens": PROMPT,
    }


def main() -> None:
    """Command line."""
    options = arguments(__doc__).parse_args()
    engine.prepare_environment("cpu", threads=1, log_level="ERROR")
    connection = connect()
    try:
        emit(asyncio.run(run(options.rounds)))
    finally:
        connection.close()


if __name__ == "__main__":
    main()
