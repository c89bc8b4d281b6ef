"""A replica of two processes that share one model, on two cores."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from workbench import Workbench
from workbench.models import resolve_model

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.ray, pytest.mark.vllm]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small and random, with heads that divide by two; the tokenizer is the packaged model's."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("two-way")
    config = LlamaConfig(
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=2,
        num_attention_heads=8,
        num_key_value_heads=8,
        vocab_size=49_152,
    )
    torch.manual_seed(0)
    made = LlamaForCausalLM(config)
    made.to(torch.bfloat16).save_pretrained(folder)
    packaged = resolve_model("smollm2-135m")
    for file in [*packaged.glob("*token*"), *packaged.glob("*.jinja")]:
        shutil.copy(file, folder)
    return folder


def test_one_replica_takes_two_cores_and_new_weights(model: Path) -> None:
    args = {"tensor_parallel_size": 2, "max_model_len": 512}
    with Workbench(str(model), 1, engine_args=args, progress=False) as bench:
        before = bench.generate("Hi", temperature=0, max_tokens=8).output
        assert len(before.token_ids) == 8
        update = bench.update_weights(model)
        assert not update.replaced
        after = bench.generate("Hi", temperature=0, max_tokens=8).output
        assert after.token_ids == before.token_ids
        assert [span.version for span in after.version_spans] == [1]
