"""Agent loops on the simulated engine: whatever the model writes, the record is exact."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.chat import CHATML, END, FORGETFUL, STRICT, call, ids, renderer, says
from tests.unit.inprocess import WAIT_S, manual_pool, until
from tests.unit.rollout.playing import SUM, answers, echo, play, setup, spec, worker_on
from workbench.errors import ConfigError, RequestError
from workbench.records import write_trajectories
from workbench.rollout.loop import REGISTRY, AgentLoopBase, register
from workbench.rollout.single_turn import SingleTurnAgentLoop
from workbench.rollout.tool_loop import ToolAgentLoop, ToolLimits
from workbench.rollout.worker import AgentLoopWorker
from workbench.types import FinishReason

# -- single turn -----------------------------------------------------------------------------


async def test_one_question_gets_one_answer():
    trajectory = await play("two", loop=SingleTurnAgentLoop)
    assert [m["content"] for m in trajectory.messages] == ["1+1?", "two"]
    (segment,) = trajectory.segments
    assert segment.prompt_ids == renderer().prompt([{"role": "user", "content": "1+1?"}])
    assert segment.response_ids == ids(f"two{END}")
    assert trajectory.finish_reason is FinishReason.STOP


@pytest.mark.parametrize("loop", [SingleTurnAgentLoop, ToolAgentLoop])
async def test_a_preamble_comes_before_the_task(loop):
    before = [{"role": "system", "content": "Be brief."}]
    trajectory = await play("two", loop=loop, preamble=before)
    assert trajectory.messages[0] == before[0]
    assert (
        renderer()
        .decode(trajectory.segments[0].prompt_ids)
        .startswith("<|im_start|>system\nBe brief.")
    )


@pytest.mark.parametrize("loop", [SingleTurnAgentLoop, ToolAgentLoop])
async def test_a_conversation_as_a_task_is_played_as_it_is(loop):
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    messages += [{"role": "user", "content": "c"}]
    trajectory = await play("d", loop=loop, task={"messages": messages})
    assert list(trajectory.messages[:3]) == messages
    assert len(messages) == 3, "the task itself is not written to"


@pytest.mark.parametrize("loop", [SingleTurnAgentLoop, ToolAgentLoop])
async def test_an_empty_generation_is_a_valid_row_with_an_empty_response(loop):
    async with manual_pool() as pool:
        worker = AgentLoopWorker(pool.client(), renderer())
        playing = asyncio.ensure_future(worker.run(setup(loop), spec()))
        (engine,) = pool.engines
        await until(lambda: engine.asked)
        engine.say(engine.asked[0], finish=FinishReason.STOP)
        trajectory = await playing
    trajectory.check()
    assert (trajectory.status, trajectory.num_turns) == ("done", 1)
    assert trajectory.segments[0].response_ids == []
    assert trajectory.messages[-1] == {"role": "assistant", "content": ""}


# -- forks -----------------------------------------------------------------------------------


async def test_a_format_that_cannot_be_extended_forks_and_says_so():
    trajectory = await play(SUM, SUM, "done", template=FORGETFUL)
    assert len(trajectory.segments) == 3
    for segment in trajectory.segments[1:]:
        assert "rewrites what came before" in segment.fork_reason
    assert [s.sampled_ids for s in trajectory.segments] == [
        ids(SUM + END),
        ids(SUM + END),
        ids(f"done{END}"),
    ]


PIECES = st.lists(
    st.one_of(
        st.sampled_from([SUM, call("echo", text="x"), call("no_such_tool"), "<tool_call>{"]),
        st.sampled_from(["<tool_call>", "</tool_call>", "hm ", "\n", "ü", "<|im_start|>"]),
    ),
    max_size=4,
).map("".join)


@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(PIECES, min_size=1, max_size=4),
    template=st.sampled_from([CHATML, STRICT, FORGETFUL]),
    turns=st.integers(1, 4),
    budget=st.integers(1, 200),
    per_turn=st.one_of(st.none(), st.integers(1, 60)),
)
def test_whatever_the_model_writes_every_row_is_exact(texts, template, turns, budget, per_turn):
    limits = ToolLimits(max_turns=turns, max_response_tokens=budget, max_calls_per_turn=2)
    trajectory = asyncio.run(
        play(
            *texts, template=template, tools=[echo], limits=limits,
            sampling={"max_tokens": per_turn} if per_turn else {},
        )
    )  # fmt: skip
    assert trajectory.status == "done", trajectory.traceback
    assert trajectory.num_turns <= turns
    assert trajectory.sampled_tokens <= budget
    assert len(answers(trajectory)) == len(trajectory.tool_calls)
    if template is not FORGETFUL:
        assert len(trajectory.segments) == 1


@settings(max_examples=25, deadline=None)
@given(death=st.integers(1, 120), seed=st.integers(0, 5))
def test_a_replica_that_dies_under_a_rollout_leaves_its_rows_exact(death, seed):
    """Sampled text, not a script: a resume goes on as the undisturbed engine would."""

    class Talk(AgentLoopBase):
        async def run(self, sampling_params, **task):
            prompt = self.renderer.prompt([{"role": "user", "content": task["prompt"]}])
            for _ in range(3):
                output = await self.generate(prompt, sampling_params)
                prompt = [*prompt, *output.token_ids, 1, 2, 3]

    async def play_on(*args):
        async with worker_on(*args) as (worker, pool):
            if len(args) > 1:
                pool.pin("unused", 1)  # the rollout goes where no session is: to replica-0
            async with asyncio.timeout(WAIT_S):
                trajectory = await worker.run(setup(Talk, sampling={"max_tokens": 30}), spec())
            trajectory.check()
            return trajectory

    async def compare():
        healthy = replace(says(), script=(), stop_token=-1, seed=seed)
        calm = await play_on(healthy)
        shaken = await play_on(replace(healthy, die_after_tokens=death), healthy)
        assert shaken.segments == calm.segments
        assert shaken.sampled_tokens == 90
        assert max(turn.attempts for turn in shaken.turns) == (2 if death <= 90 else 1)

    asyncio.run(compare())


# -- failures --------------------------------------------------------------------------------


async def test_a_refused_prompt_is_a_failed_row_that_names_the_field():
    async with worker_on(replace(says("x"), max_model_len=10)) as (worker, _):
        trajectory = await worker.run(setup(), spec("far too long for ten tokens"))
    trajectory.check()
    assert trajectory.status == "failed"
    assert trajectory.error.startswith(f"{RequestError.__name__}: prompt_ids")


async def test_a_template_that_refuses_is_a_failed_row():
    async with worker_on(says("x"), template="{{ raise_exception('no') }}") as (worker, pool):
        trajectory = await worker.run(setup(), spec())
        assert pool.engines[0].asked == []
    trajectory.check()
    assert "the chat template refused" in trajectory.error


def test_verls_names_are_there():
    class Nothing(AgentLoopBase):
        async def run(self, sampling_params, **task):
            pass

    made = Nothing(client="the client", renderer=renderer())
    assert made.client == "the client"
    assert hasattr(made.server_manager, "generate")


# -- loops of one's own ----------------------------------------------------------------------


class Idle(AgentLoopBase):
    async def run(self, sampling_params, **task):
        if task.get("past"):
            await self.client.generate("s", prompt_ids=ids("x"), sampling_params=sampling_params)


@pytest.mark.parametrize("past", [False, True])
async def test_a_rollout_in_which_nothing_was_recorded_is_a_failed_row(past):
    async with worker_on(says("hi")) as (worker, _):
        trajectory = await worker.run(setup(Idle), spec(past=past))
    assert (trajectory.status, trajectory.reward) == ("failed", None)
    assert trajectory.error == "RolloutError: nothing was sampled through self.generate"


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("ended_by", 3, "ended_by: 3 is no text"),
        ("notes", [7], "notes: 7 is no text"),
        ("notes", None, "notes: None is no text"),
        ("messages", None, r"messages\[0\]: None is no message"),
        ("messages", ["s"], r"messages\[0\]: 's' is no message"),
    ],
)
async def test_words_that_no_record_holds_are_a_failed_row_that_can_be_kept(
    name, value, complaint, tmp_path
):
    class Careless(AgentLoopBase):
        async def run(self, sampling_params, **task):
            await self.generate(ids("x"), sampling_params)
            setattr(self.trajectory, name, value)

    async with worker_on(says("hi")) as (worker, _):
        trajectory = await worker.run(setup(Careless), spec())
    assert trajectory.status == "failed"
    assert re.search(complaint, trajectory.error)
    assert trajectory.sampled_tokens
    write_trajectories(tmp_path / "t.jsonl", [trajectory])
    assert trajectory._repr_html_()


@pytest.mark.parametrize(
    "task", [{"prompt": "hi"}, {"prompt": [{"role": "user", "content": "hi"}]}]
)
async def test_a_loop_finds_the_tasks_conversation_as_raw_prompt(task):
    class Asks(AgentLoopBase):
        async def run(self, sampling_params, **fields):
            await self.generate(self.renderer.prompt(fields["raw_prompt"]), sampling_params)

    async with worker_on(says("hi")) as (worker, _):
        trajectory = await worker.run(setup(Asks), spec(**task))
    assert trajectory.status == "done"
    assert trajectory.task == task, "the row has the task as it was given"


def test_registering_names_what_it_cannot_take():
    @register("mine")
    class Mine(Idle):
        pass

    @register("mine")
    class Again(Idle):
        pass

    assert REGISTRY["mine"] is Again
    with pytest.raises(ConfigError, match="'tool' is an agent that comes along"):
        register("tool")(Mine)
    with pytest.raises(ConfigError, match="a subclass of AgentLoopBase"):
        register("dict")(dict)
    with pytest.raises(ConfigError, match=r"@register\('name'\)"):
        register(Mine)
    del REGISTRY["mine"]
