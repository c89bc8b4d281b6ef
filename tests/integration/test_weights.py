"""New weights on real replicas, while they serve."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.test_serving import prompt_ids, until_idle
from workbench.errors import CheckpointError, ConfigError
from workbench.models import resolve_model

if TYPE_CHECKING:
    from collections.abc import Callable

    from workbench import Workbench
    from workbench.types import TokenOutput
    from workbench.weights import WeightUpdate

pytestmark = [pytest.mark.ray, pytest.mark.vllm]

MODEL = resolve_model("smollm2-135m")
QUESTION = "What is the capital of France? Answer in one sentence, and then tell me why it is so."


@pytest.fixture(scope="module")
def others() -> dict[str, Any]:
    """Weights that answer otherwise: every layer's output is turned down."""
    from safetensors.torch import load_file

    state: dict[str, Any] = load_file(MODEL / "model.safetensors")
    return {name: value * 0.5 if "down_proj" in name else value for name, value in state.items()}


def answer(bench: Workbench, session: str) -> TokenOutput:
    return bench.generate(QUESTION, session=session, temperature=0, max_tokens=24).output


def test_answers_follow_the_weights_and_no_block_of_others_is_reused(
    bench: Workbench, others: dict[str, Any]
) -> None:
    before = bench.weight_versions()["replica-0"]
    first = answer(bench, "follows")
    assert answer(bench, "follows").num_cached_tokens  # blocks of this prompt are in the cache
    update = bench.update_weights(others)
    assert update.transfer_s > 0
    changed = answer(bench, "follows")
    assert changed.token_ids != first.token_ids
    assert changed.num_cached_tokens == 0
    assert [span.version for span in changed.version_spans] == [before + 1]
    bench.update_weights(MODEL, version=before + 5)
    back = answer(bench, "follows")
    assert back.token_ids == first.token_ids
    assert back.num_cached_tokens == 0
    assert set(bench.weight_versions().values()) == {before + 5}


async def during(
    bench: Workbench, update: Callable[[], WeightUpdate]
) -> tuple[list[TokenOutput], WeightUpdate]:
    """What eight generations give while the weights change in the middle of them."""
    ids = await asyncio.to_thread(prompt_ids, bench, QUESTION)
    sampling = {"max_tokens": 96, "ignore_eos": True, "temperature": 0.0}
    begun = asyncio.Event()

    async def one(number: int) -> list[Any]:
        deltas = []
        stream = client.stream(f"during-{number}", prompt_ids=ids, sampling_params=sampling)
        async for delta in stream:
            deltas.append(delta)
            begun.set()
        return deltas

    async with bench.client() as client:
        calls = [
            asyncio.ensure_future(
                client.generate(f"d-{n}", prompt_ids=ids, sampling_params=sampling)
            )
            for n in range(8)
        ]
        watched = asyncio.ensure_future(one(0))
        await begun.wait()
        told = await asyncio.to_thread(update)
        outputs = await asyncio.gather(*calls)
        await watched
    await until_idle(bench)
    return outputs, told


@pytest.mark.parametrize("mode", ["keep", "abort", "wait"])
async def test_calls_go_on_through_an_update(bench: Workbench, mode: Any) -> None:
    before = bench.weight_versions()["replica-0"]
    outputs, told = await during(bench, lambda: bench.update_weights(MODEL, mode=mode))
    assert not told.replaced
    for output in outputs:
        assert len(output.token_ids) == len(output.log_probs) == 96
        assert output.finish_reason == "length"
        spans = output.version_spans
        assert [spans[0].start, spans[-1].end] == [0, 96]
        assert [s.start for s in spans[1:]] == [s.end for s in spans[:-1]]
        assert {s.version for s in spans} <= {before, before + 1}
    versions = {span.version for output in outputs for span in output.version_spans}
    # The same weights under a new name: to the end, the greedy answer is one.
    assert len({tuple(output.token_ids) for output in outputs}) == 1
    if mode == "wait":
        assert before in versions
    else:
        assert versions == {before, before + 1}
        assert {o.attempts for o in outputs} == ({1} if mode == "keep" else {2})


async def test_kept_requests_compute_their_blocks_anew_where_that_is_asked_for(
    bench: Workbench, others: dict[str, Any]
) -> None:
    def there_and_back() -> WeightUpdate:
        bench.update_weights(others, recompute=True)
        return bench.update_weights(MODEL, recompute=True)

    calm = (await during(bench, lambda: bench.update_weights(MODEL)))[0]
    assert not any(output.num_preempted for output in calm)
    outputs, _ = await during(bench, there_and_back)
    for output in outputs:
        assert len(output.token_ids) == 96
        assert output.num_preempted  # its blocks were dropped, and computed again
        own = [s for s in output.version_spans if s.version == output.version_spans[0].version]
        assert output.token_ids[: own[0].end] == calm[0].token_ids[: own[0].end]


def test_weights_that_do_not_fit_are_refused_and_touch_nothing(
    bench: Workbench, others: dict[str, Any], tmp_path: Any
) -> None:
    versions = bench.weight_versions()
    norm = "model.norm.weight"
    refused: list[tuple[Any, str]] = [
        (tmp_path / "nowhere", "no directory"),
        (tmp_path, "safetensors"),
        ({**others, norm: others[norm] * float("nan")}, f"NaN.*{norm}"),
        ({name: value for name, value in others.items() if name != norm}, f"missing: {norm}"),
        ({**others, norm: others[norm][:7]}, norm),
    ]
    for source, complaint in refused:
        with pytest.raises(CheckpointError, match=complaint):
            bench.update_weights(source)
    for version in (versions["replica-0"], 1.5, -1):
        with pytest.raises(ConfigError, match=r"version: .*a whole number above"):
            bench.update_weights(MODEL, version=version)
    with pytest.raises(ConfigError, match=r"mode: 'gently' \(allowed: keep, abort, wait\)"):
        bench.update_weights(MODEL, mode="gently")  # type: ignore[arg-type]
    assert bench.weight_versions() == versions
    assert "Paris" in str(bench.generate(QUESTION, temperature=0, max_tokens=24))
