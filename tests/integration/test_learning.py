"""Something is learned while rollouts go on, on a real replica of its own."""

from __future__ import annotations

from statistics import fmean

import pytest

from benchmarks.learning_tasks import TASKS
from workbench import Workbench

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

STEPS = 6


def test_rewards_rise_while_weights_change_under_rollouts() -> None:
    task = TASKS["calculator_call"]
    engine = {"max_num_seqs": 64, "max_model_len": 512}
    with Workbench("smollm2-135m", 1, engine_args=engine, progress=False) as bench:
        learner = bench.learner(lr=5e-5)
        stream = bench.stream(
            task.tasks(STEPS * task.groups, seed=1),
            task.agent,
            n=task.n,
            reward=task.reward,
            sampling_params={"temperature": 1.0, "max_tokens": task.max_tokens},
            required_samples=task.groups,
            **task.settings,
        )
        rewards = []
        for batch in stream:
            assert batch.max_staleness <= 1
            figures = learner.step(batch)
            assert figures.reward == pytest.approx(batch.mean_reward)
            rewards.append(figures.reward)
            stream.publish(learner)
        assert len(rewards) == STEPS
        assert stream.snapshot().pool_version == STEPS
    assert fmean(rewards[-2:]) > fmean(rewards[:2]) + 0.3
