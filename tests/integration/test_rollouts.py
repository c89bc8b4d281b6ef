"""Agent loops on real replicas: exact to the token, and contained when something breaks."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from workbench import AgentLoopBase, Trajectory, verified_answer
from workbench.demo import counting_tasks, sum_tasks
from workbench.errors import ConfigError, TaskError, WorkbenchError
from workbench.rollout.preambles import calculator_preamble, counting_preamble
from workbench.rollout.trajectory import RolloutStatus

if TYPE_CHECKING:
    from workbench import Rollout, Workbench

pytestmark = [pytest.mark.ray, pytest.mark.vllm]


@pytest.fixture(scope="module")
def tool_rollout(bench: Workbench) -> Rollout:
    rollout = bench.rollout(
        sum_tasks(8),
        "tool",
        n=2,
        sampling_params={"temperature": 0.7, "max_tokens": 64},
        reward=verified_answer,
        preamble=calculator_preamble(),
    )
    rollout.result()
    return rollout


def test_most_tool_rollouts_call_the_calculator_and_many_are_right(tool_rollout: Rollout) -> None:
    frame = tool_rollout.to_pandas()
    assert len(frame) == 16
    assert (frame["status"] == "done").all()
    assert (frame["well_formed_calls"] > 0).mean() > 0.5
    assert frame["reward"].mean() > 0.3


def test_every_alignment_holds_and_no_turn_was_tokenised_again(tool_rollout: Rollout) -> None:
    for trajectory in tool_rollout.trajectories():
        trajectory.check()
        assert len(trajectory.segments) == 1
        assert trajectory.num_turns >= 1


def test_recorded_log_probabilities_are_those_of_the_recorded_tokens(
    bench: Workbench, tool_rollout: Rollout
) -> None:
    """Transformers scores each row in one pass: any shifted or foreign token would stand out."""
    for trajectory in tool_rollout.trajectories()[:4]:
        segment = trajectory.segments[0]
        scored = score_by_transformers(bench, segment.prompt_ids, segment.response_ids)
        sampled = np.array(segment.response_mask, dtype=bool)
        recorded = np.array(segment.log_probs)
        # The engine divides by the temperature before it takes the logarithm.
        assert recorded[sampled] == pytest.approx(scored[sampled], abs=2e-3)


def score_by_transformers(
    bench: Workbench, prompt_ids: list[int], response_ids: list[int]
) -> np.ndarray[Any, Any]:
    import torch
    from transformers import AutoModelForCausalLM

    from workbench.models import resolve_model

    model = AutoModelForCausalLM.from_pretrained(
        resolve_model(bench.config.model), dtype=torch.float32
    )
    with torch.no_grad():
        logits = model(torch.tensor([prompt_ids + response_ids])).logits[0] / 0.7
    scores = logits.log_softmax(-1)[len(prompt_ids) - 1 : -1]
    return scores.gather(1, torch.tensor(response_ids)[:, None])[:, 0].numpy()


def test_the_batch_has_a_row_per_rollout_with_rewards_on_the_last_token(
    tool_rollout: Rollout,
) -> None:
    batch = tool_rollout.batch()
    tensors = batch.tensors
    assert len(batch) == 16
    assert tensors["input_ids"].shape[1] == (
        tensors["prompts"].shape[1] + tensors["responses"].shape[1]
    )
    rewards = batch.rows["reward"].to_numpy(dtype=float)
    assert tensors["rm_scores"].sum(axis=1) == pytest.approx(rewards, abs=1e-6)
    sampled = [t.sampled_tokens for t in tool_rollout.trajectories()]
    assert tensors["response_mask"].sum(axis=1).tolist() == sampled


def test_the_rollouts_of_a_group_are_not_the_same_one_twice(bench: Workbench) -> None:
    """Also when they are played on replicas that were started alike."""
    rollout = bench.rollout(
        ["Tell me a story about a bear."], n=6, sampling_params={"max_tokens": 24}
    )
    rows = {tuple(t.segments[0].sampled_ids) for t in rollout.result()}
    assert len(rows) == 6


def test_the_second_turn_finds_the_first_in_the_prefix_cache(tool_rollout: Rollout) -> None:
    """Unless its replica was so much busier that the session had to yield, which few are."""
    later = [
        (trajectory.turns[0], turn)
        for trajectory in tool_rollout.trajectories()
        for turn in trajectory.turns[1:]
    ]
    stayed = [turn for first, turn in later if turn.replica_id == first.replica_id]
    assert len(stayed) >= 0.8 * len(later) > 0
    assert all((turn.num_cached_tokens or 0) > 300 for turn in stayed)


async def test_a_rollout_can_be_awaited(bench: Workbench) -> None:
    rollout = await asyncio.to_thread(
        bench.rollout,
        counting_tasks(4),
        sampling_params={"max_tokens": 8},
        reward=verified_answer,
        preamble=counting_preamble(),
    )
    trajectories = await rollout
    assert [t.group for t in trajectories] == [f"task-{n}" for n in range(4)]
    assert all(t.reward is not None for t in trajectories)


def test_a_loop_defined_here_plays_on_a_worker_in_another_process(bench: Workbench) -> None:
    class Twice(AgentLoopBase):
        """Asks the same thing twice."""

        requires = ("prompt",)

        async def run(self, sampling_params: Any, *, prompt: str, **_: Any) -> None:
            ids = self.renderer.prompt([{"role": "user", "content": prompt}])
            first = await self.generate(ids, sampling_params)
            again = [{"role": "user", "content": "Again, please."}]
            longer = self.renderer.extend(ids, first.token_ids, again)
            assert longer.ids is not None
            await self.generate(longer.ids, sampling_params)

    trajectories = bench.rollout(
        ["Say hello."] * 3, Twice, sampling_params={"max_tokens": 8}
    ).result()
    for trajectory in trajectories:
        trajectory.check()
        assert trajectory.status is RolloutStatus.DONE
        assert trajectory.num_turns == 2
        assert trajectory.agent == "Twice"


def test_a_failing_rollout_is_one_failed_row_and_the_others_are_untouched(
    bench: Workbench,
) -> None:
    def touchy(trajectory: Trajectory) -> float:
        if "two" in str(trajectory.task["prompt"]):
            raise RuntimeError("this reward does not like two")
        return 1.0

    tasks = ["one", "two", {"prompt": "three " * 9000}, "four"]
    rollout = bench.rollout(tasks, sampling_params={"max_tokens": 4}, reward=touchy)
    one, two, three, four = rollout.result()
    assert (one.reward, four.reward) == (1.0, 1.0)
    assert two.status is three.status is RolloutStatus.FAILED
    assert two.reward is three.reward is None
    assert "does not like two" in two.error
    assert "touchy" in two.traceback
    assert "tokens, 8191 are allowed" in three.error
    assert rollout.batch().rows["reward"].isna().sum() == 2


def test_a_cancelled_rollout_keeps_the_turns_it_had_and_a_dead_worker_is_replaced(
    bench: Workbench,
) -> None:
    class TurnThenWait(AgentLoopBase):
        async def run(self, sampling_params: Any, **_: Any) -> None:
            await self.generate(self.renderer.prompt([HELLO]), sampling_params)
            await asyncio.Event().wait()

    class Leave(AgentLoopBase):
        async def run(self, sampling_params: Any, **_: Any) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

    HELLO = {"role": "user", "content": "Say hello."}  # noqa: N806 - the loops' constant
    finished = sum(r.engine.finished for r in bench.snapshot().replicas)
    waiting = bench.rollout(["x"], TurnThenWait, sampling_params={"max_tokens": 4})
    with_one_more = time.monotonic() + 60
    while sum(r.engine.finished for r in bench.snapshot().replicas) == finished:
        assert time.monotonic() < with_one_more
    waiting.cancel()
    (kept,) = waiting.result()
    assert (kept.status, kept.num_turns) == (RolloutStatus.CANCELLED, 1)
    (lost,) = bench.rollout(["x"], Leave).result()
    assert "worker" in lost.error
    (again,) = bench.rollout(["x"], sampling_params={"max_tokens": 4}).result()
    assert again.status is RolloutStatus.DONE


def test_cancelling_keeps_what_ended_and_frees_the_pool(bench: Workbench) -> None:
    rollout = bench.rollout(
        ["Go on."] * 8, sampling_params={"max_tokens": 4000, "ignore_eos": True}
    )
    rollout.cancel()
    assert {t.status for t in rollout.result()} == {RolloutStatus.CANCELLED}
    assert rollout.snapshot().cancelled == 8
    assert bench.generate("Still there?", max_tokens=2).output.token_ids


def test_mistakes_are_named_before_anything_is_played(bench: Workbench) -> None:
    with pytest.raises(ConfigError, match=r"agent: unknown agent 'robot' \(allowed: .*tool"):
        bench.rollout(["hi"], "robot")
    with pytest.raises(ConfigError, match="max_turn: is neither a setting of the agent 'tool' nor"):
        bench.rollout(["hi"], "tool", max_turn=3)
    for options, field in [
        ({"reward": 3}, "reward"),
        ({"timeout_s": 0}, "timeout_s"),
        ({"tools": None}, "tools"),
        ({"limits": {"max_turns": 2}}, "limits"),
        ({"preamble": "be nice"}, "preamble"),
        ({"sampling_params": {"max_token": 5}}, "max_token"),
    ]:
        with pytest.raises(WorkbenchError, match=field):
            bench.rollout(["hi"], "tool", **options)
    with pytest.raises(TaskError, match=r"tasks\[1\]: has no prompt and no messages"):
        bench.rollout(["hi", {"question": "hi"}])


def test_the_bench_shows_itself_in_words_and_as_a_table(bench: Workbench) -> None:
    assert repr(bench).startswith("Workbench('smollm2-135m', 2/2 replicas ready on ")
    page = bench._repr_html_()
    assert "replica-1" in page
    assert "<script" not in page
