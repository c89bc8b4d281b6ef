"""A learner in a process of its own, with a real model."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from tests.unit.learner.tiny import a_rollout, a_segment
from workbench.checkpoint.check import check_checkpoint
from workbench.cluster.connection import connect
from workbench.cluster.learner import RayLearner
from workbench.errors import ConfigError, LearnerDiedError
from workbench.learner.config import LearnerConfig
from workbench.learner.network import quiet
from workbench.models import resolve_model
from workbench.rollout.rendering import make_renderer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from workbench.trajectory import Trajectory

pytestmark = pytest.mark.ray

MODEL = "smollm2-135m"


@pytest.fixture
async def learner() -> AsyncIterator[RayLearner]:
    connection = connect(None)
    made = RayLearner(MODEL, LearnerConfig(lr=5e-5))
    try:
        await made.start()
        yield made
    finally:
        made.close()
        connection.close()


def said(*answers: tuple[str, float]) -> list[Trajectory]:
    """A group: what the model answered to one question, with what it is worth."""
    model = resolve_model(MODEL)
    renderer = make_renderer(str(model), MODEL)
    prompt = renderer.prompt([{"role": "user", "content": "What is the capital of France?"}])
    spoken = [renderer.tokenizer.encode(f"{text}<|im_end|>") for text, _ in answers]
    group = [
        a_rollout(reward, a_segment(prompt, ids), group="france", index=index)
        for index, (ids, (_, reward)) in enumerate(zip(spoken, answers, strict=True))
    ]
    for rollout, known in zip(group, log_probs(model, group), strict=True):
        rollout.segments[0].log_probs[:] = known
    return group


def log_probs(weights: Path, group: list[Trajectory]) -> list[list[float]]:
    """Those of each answer's tokens, as the model in a directory has them."""
    import torch
    from transformers import AutoModelForCausalLM

    with quiet():
        model = AutoModelForCausalLM.from_pretrained(weights, dtype=torch.float32)
    found = []
    for rollout in group:
        (segment,) = rollout.segments
        with torch.no_grad():
            table = model(torch.tensor([segment.ids])).logits[0].log_softmax(dim=-1)
        picked = enumerate(segment.response_ids, len(segment.prompt_ids) - 1)
        found.append([float(table[place, token]) for place, token in picked])
    return found


async def test_a_learner_learns_hands_over_dies_and_goes_on(
    learner: RayLearner, tmp_path: Path
) -> None:
    group = said(("Paris.", 1.0), ("The capital of France is Paris.", 0.0))
    model = resolve_model(MODEL)
    before = [sum(rollout.segments[0].log_probs) for rollout in group]

    figures = await learner.step([group])
    assert figures.changed
    assert figures.mean_weight == pytest.approx(1.0, abs=0.1)  # bfloat16 against float32
    weights = await learner.weights()
    check_checkpoint(weights, model)
    after = [sum(known) for known in log_probs(weights, group)]
    assert after[0] > before[0] + 0.5
    assert after[0] - after[1] > before[0] - before[1] + 0.5

    newer = await learner.weights()
    learner.keep_only(newer)
    assert newer.is_dir()
    assert not weights.exists()

    with pytest.raises(ConfigError, match="n >= 2"):
        await learner.step([group[:1]])

    await learner.save(tmp_path)
    going_on = await learner.step([group])
    os.kill(learner.pid, signal.SIGKILL)
    with pytest.raises(LearnerDiedError, match="ended"):
        await learner.step([group])
    assert newer.is_dir()  # a pool may be on them

    await learner.start()
    assert await learner.load(tmp_path) == 1
    again = await learner.step([group])
    assert (again.step, again.loss, again.grad_norm) == (2, going_on.loss, going_on.grad_norm)

    folder = learner.folder
    learner.close()
    assert not folder.exists()
    with pytest.raises(LearnerDiedError, match="closed"):
        await learner.step([group])


async def test_what_is_wrong_is_told_as_it_is() -> None:
    with pytest.raises(ConfigError, match="model: there is no directory"):
        RayLearner("./nowhere")
