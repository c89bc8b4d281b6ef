"""Loops in verl's style: they keep their rows themselves, and only what was sampled is believed."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from uuid import uuid4

import pytest

from tests.unit.chat import call, renderer, says
from tests.unit.inprocess import WAIT_S, simulated_pool, until
from workbench.rollout.context import ContextRules
from workbench.rollout.tasks import RolloutSpec
from workbench.rollout.worker import AgentLoopWorker, RolloutSetup
from workbench.verl import (
    AgentLoopBase,
    AgentLoopMetrics,
    AgentLoopOutput,
    register,
    simple_timer,
)


@register("in-verls-style-once")
class Once(AgentLoopBase):
    """Asks once."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.prompt_length = self.rollout_config.prompt_length
        self.response_length = self.rollout_config.response_length

    async def run(self, sampling_params, **kwargs):
        metrics = {}
        prompt_ids = await self.apply_chat_template(list(kwargs["raw_prompt"]))
        with simple_timer("generate_sequences", metrics):
            output = await self.server_manager.generate(
                request_id=uuid4().hex,
                prompt_ids=prompt_ids,
                sampling_params=sampling_params,
                image_data=None,
            )
        return AgentLoopOutput(
            prompt_ids=prompt_ids,
            response_ids=output.token_ids[: self.response_length],
            response_mask=[1] * len(output.token_ids),
            response_logprobs=output.log_probs,
            num_turns=2,
            metrics=metrics,
            extra_fields={"source": kwargs["data_source"]},
        )


class Tools(AgentLoopBase):
    """Goes on as long as tools are called; rows are put together by hand."""

    def __init__(self, response_length=10_000, **kwargs):
        super().__init__(**kwargs)
        self.response_length = response_length

    async def run(self, sampling_params, **kwargs):
        prompt_ids = await self.apply_chat_template(list(kwargs["raw_prompt"]))
        ids, mask, log_probs = list(prompt_ids), [], []
        request_id, turns = uuid4().hex, 0
        while len(mask) < self.response_length:
            output = await self.server_manager.generate(
                request_id=request_id, prompt_ids=ids, sampling_params=sampling_params
            )
            turns += 1
            ids = ids + output.token_ids
            mask += [1] * len(output.token_ids)
            log_probs += output.log_probs
            text = await self.loop.run_in_executor(None, self.tokenizer.decode, output.token_ids)
            if "<tool_call>" not in text:
                break
            told = self.tokenizer.encode("\n42\n", add_special_tokens=False)
            ids = ids + told
            mask += [0] * len(told)
            log_probs += [0.0] * len(told)
        response_ids = ids[len(prompt_ids) :]
        return AgentLoopOutput(
            prompt_ids=prompt_ids,
            response_ids=response_ids[: self.response_length],
            response_mask=mask[: self.response_length],
            response_logprobs=log_probs[: self.response_length],
            num_turns=2 * turns,
            metrics=AgentLoopMetrics(num_preempted=0),
            reward_score=0.5,
        )


TASK = {"raw_prompt": [{"role": "user", "content": "hello"}], "data_source": "here"}


async def play(loop, *texts, reward=None, **loop_args):
    async with simulated_pool(says(*(texts or ("hi",)))) as pool:
        worker = AgentLoopWorker(pool.client(), renderer())
        setup = RolloutSetup(
            "verl", loop, loop_args, {"max_tokens": 200}, reward, context=ContextRules(4096)
        )
        async with asyncio.timeout(WAIT_S):
            trajectory = await worker.run(setup, RolloutSpec("task-0/0", "task-0", 0, TASK))
        await until(lambda: pool.balancer.pins() == {})
    trajectory.check()
    return trajectory


async def test_a_loop_that_asks_once_runs_as_it_is():
    trajectory = await play(Once)
    assert (trajectory.status, trajectory.error) == ("done", "")
    (segment,) = trajectory.segments
    assert renderer().decode(segment.sampled_ids).startswith("hi")
    assert segment.response_mask == [1] * len(segment.response_ids)
    assert trajectory.extra["source"] == "here"
    assert trajectory.extra["metrics"]["generate_sequences"] > 0


async def test_a_loop_with_tools_has_its_rows_to_the_token():
    trajectory = await play(Tools, call("ask"), "done")
    assert (trajectory.status, trajectory.num_turns, trajectory.reward) == ("done", 2, 0.5)
    (segment,) = trajectory.segments
    told = [
        token
        for token, mask in zip(segment.response_ids, segment.response_mask, strict=True)
        if not mask
    ]
    assert renderer().decode(told) == "\n42\n"


async def test_a_rows_end_may_be_cut_and_that_is_noted():
    whole = await play(Tools, call("ask"), "done")
    size = len(whole.segments[0].response_ids)
    trajectory = await play(Tools, call("ask"), "done", response_length=size - 2)
    (segment,) = trajectory.segments
    assert segment.response_ids == whole.segments[0].response_ids[:-2]
    assert trajectory.notes == ("the loop left out the last 2 tokens of segment 0",)


async def test_a_batchs_reward_goes_before_the_loops_own():
    trajectory = await play(Tools, reward=lambda played: {"mine": played.reward * 2})
    assert (trajectory.reward, trajectory.reward_parts) == (1.0, {"mine": 1.0})


def changed(**changes):
    """A loop whose row was tampered with."""

    class Tampered(Tools):
        async def run(self, sampling_params, **kwargs):
            row = await super().run(sampling_params, **kwargs)
            return replace(row, **{name: change(row) for name, change in changes.items()})

    return Tampered


@pytest.mark.parametrize(
    ("loop", "complaint"),
    [
        (changed(response_mask=lambda row: row.response_mask[1:]), "response_mask has"),
        (changed(response_logprobs=lambda row: [0.0]), "response_logprobs has 1 entries"),
        (changed(response_ids=lambda row: [*row.response_ids[:-1], 0]), "not what was sampled"),
        (changed(prompt_ids=lambda row: [0, *row.prompt_ids[1:]]), "differs at token 0"),
        (
            changed(response_mask=lambda row: [0, *row.response_mask[1:]]),
            "response_mask is 0 at token 0, which was sampled",
        ),
        (
            changed(
                response_ids=lambda row: [*row.response_ids, 5],
                response_mask=lambda row: [*row.response_mask, 1],
                response_logprobs=lambda row: None,
            ),
            "which nobody sampled",
        ),
        (
            changed(response_logprobs=lambda row: [p - 1 for p in row.response_logprobs]),
            "response_logprobs is .* the engine's",
        ),
        (
            changed(
                prompt_ids=lambda row: [*row.prompt_ids, row.response_ids[0]],
                response_ids=lambda row: row.response_ids[1:],
                response_mask=lambda row: row.response_mask[1:],
                response_logprobs=lambda row: None,
            ),
            "the first prompt that was sent had",
        ),
        (changed(reward_score=lambda row: float("nan")), "reward_score is nan"),
    ],
)
async def test_a_row_that_is_not_what_was_sampled_is_a_failed_row_that_says_where(loop, complaint):
    trajectory = await play(loop, call("ask"), "done")
    assert (trajectory.status, trajectory.reward) == ("failed", None)
    assert trajectory.error.startswith("RolloutError: row 0")
    assert re.search(complaint, trajectory.error), trajectory.error
    assert trajectory.sampled_tokens, "what was sampled is kept"


async def test_several_rows_are_a_tree_and_one_that_was_not_returned_is_noted():
    class Branches(AgentLoopBase):
        async def run(self, sampling_params, **kwargs):
            prompt_ids = await self.apply_chat_template(list(kwargs["raw_prompt"]))
            outputs = [
                await self.server_manager.generate(
                    request_id=uuid4().hex,
                    prompt_ids=[*prompt_ids, extra],
                    sampling_params=sampling_params,
                )
                for extra in (65, 66, 67)
            ]
            return [
                AgentLoopOutput([*prompt_ids, extra], output.token_ids, [1] * len(output.token_ids))
                for extra, output in ((65, outputs[0]), (67, outputs[2]))
            ]

    trajectory = await play(Branches)
    assert trajectory.status == "done"
    one, other = trajectory.segments
    assert (one.prompt_ids[-1], other.prompt_ids[-1]) == (65, 67)
    assert (other.parent, other.shared_tokens) == (0, len(one.prompt_ids) - 1)
    assert trajectory.notes == ("the loop left out 1 of 3 segments",)


async def test_a_row_that_nothing_was_sampled_for_is_refused():
    class Invented(AgentLoopBase):
        async def run(self, sampling_params, **kwargs):
            return AgentLoopOutput([1], [2], [1])

    trajectory = await play(Invented)
    assert trajectory.error == ("RolloutError: row 0: nothing was sampled through server_manager")


async def test_the_best_of_several_samples_may_be_said_twice():
    class Several(AgentLoopBase):
        async def run(self, sampling_params, **kwargs):
            prompt_ids = await self.apply_chat_template(list(kwargs["raw_prompt"]))
            outputs = [
                await self.server_manager.generate(
                    request_id=uuid4().hex, prompt_ids=prompt_ids, sampling_params=sampling_params
                )
                for _ in range(3)
            ]
            return [
                AgentLoopOutput(prompt_ids, o.token_ids, [1] * len(o.token_ids), o.log_probs)
                for o in outputs
            ]

    trajectory = await play(Several)
    assert (trajectory.status, trajectory.error) == ("done", "")
    said = [renderer().decode(segment.sampled_ids) for segment in trajectory.segments]
    assert len(said) == 3
    assert len(set(said)) == 1
