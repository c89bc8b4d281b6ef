"""Agent loops on the simulated engine: whatever the model writes, the record is exact."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.chat import CHATML, END, FORGETFUL, STRICT, call, ids, renderer, says
from tests.unit.inprocess import WAIT_S, manual_pool, simulated_pool, until
from workbench.errors import ConfigError, RequestError
from workbench.rollout.loop import AgentLoopBase
from workbench.rollout.single_turn import SingleTurnAgentLoop
from workbench.rollout.tasks import RolloutSpec
from workbench.rollout.tool_loop import ToolAgentLoop, ToolLimits
from workbench.rollout.worker import AgentLoopWorker, RolloutSetup
from workbench.types import FinishReason

SUM = call("calculator", expression="1+1")


def echo(text: str) -> str:
    """Say it again.

    Args:
        text: What.
    """
    return text


def spec(prompt="1+1?", number=0, **task):
    return RolloutSpec(f"task-{number}/0", f"task-{number}", 0, {"prompt": prompt, **task})


def setup(loop=ToolAgentLoop, *, sampling=None, timeout_s=None, **loop_args):
    return RolloutSetup("test", loop, loop_args, sampling or {}, None, timeout_s)


@asynccontextmanager
async def worker_on(*args, template=CHATML):
    async with simulated_pool(*args) as pool:
        yield AgentLoopWorker(pool.client(), renderer(template)), pool


async def play(*texts, template=CHATML, prompt="1+1?", messages=None, **options):
    """One rollout of a model that says these texts; with the pool it was played on."""
    task = spec(prompt) if messages is None else spec(messages=messages)
    async with worker_on(says(*texts), template=template) as (worker, pool):
        async with asyncio.timeout(WAIT_S):
            trajectory = await worker.run(setup(**options), task)
        trajectory.check()
        assert_exact(trajectory, pool)
    return trajectory


def assert_exact(trajectory, pool):
    """Mask 1 is what the engine sampled, and each turn was sent what the record says."""
    asked = [request for engine in pool.engines for request in engine.asked]
    said = {key: ids for engine in pool.engines for key, ids in engine.said.items()}
    assert len(asked) == trajectory.num_turns
    for request, turn in zip(asked, trajectory.turns, strict=True):
        segment = trajectory.segments[turn.segment]
        assert segment.response_ids[turn.start : turn.end] == said[request.request_id]
        assert segment.prompt_ids + segment.response_ids[: turn.start] == request.prompt_ids
    sampled = [token for request in asked for token in said[request.request_id]]
    assert [token for s in trajectory.segments for token in s.sampled_ids] == sampled


def answers(trajectory):
    return [m["content"] for m in trajectory.messages if m["role"] == "tool"]


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
    trajectory = await play("d", loop=loop, messages=messages)
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


# -- tools -----------------------------------------------------------------------------------


async def test_a_call_is_executed_and_its_answer_is_read_in_the_same_row():
    trajectory = await play(SUM, "It is 2.")
    (executed,) = trajectory.tool_calls
    assert (executed.turn, executed.name, executed.result) == (0, "calculator", "2")
    assert (executed.well_formed, executed.error) == (True, "")
    (segment,) = trajectory.segments
    assert segment.sampled_ids == ids(f"{SUM}{END}It is 2.{END}")
    told = renderer().decode(
        [t for t, m in zip(segment.response_ids, segment.response_mask, strict=True) if not m]
    )
    assert "<tool_response>2</tool_response>" in told
    assert answers(trajectory) == ["2"]


async def test_the_prompt_of_a_turn_continues_the_last_one_to_the_token():
    trajectory = await play(SUM, SUM, SUM, "done", limits=ToolLimits(max_turns=9))
    assert (len(trajectory.segments), trajectory.num_turns) == (1, 4)


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("<tool_call>1+1</tool_call>", "error: the call is not JSON"),
        ('<tool_call>{"name": "calculator"', "error: the call has no closing </tool_call>"),
        ('<tool_call>{"arguments": {}}</tool_call>', 'error: the call has no "name"'),
        (
            call("calculater", expression="1"),
            "there is no tool 'calculater'; there are: calculator",
        ),
        (call("calculator"), "missing a required argument: 'expression'"),
        (call("calculator", expr="1"), "it takes expression"),
    ],
)
async def test_a_call_that_cannot_be_executed_is_told_why_and_the_loop_goes_on(written, told):
    trajectory = await play(written, SUM, "It is 2.")
    assert (trajectory.status, trajectory.num_turns) == ("done", 3)
    first, second = trajectory.tool_calls
    assert told in first.result
    assert first.result == f"error: {first.error}"
    assert (first.well_formed, second.well_formed) == (False, True)
    assert answers(trajectory) == [first.result, "2"]


async def test_a_tool_that_raises_tells_the_model_and_the_loop_goes_on():
    trajectory = await play(call("calculator", expression="1/0"), "Oh.")
    (executed,) = trajectory.tool_calls
    assert executed.result == "error: ZeroDivisionError: division by zero"
    assert executed.well_formed
    assert trajectory.num_turns == 2


async def test_calls_beyond_the_allowed_number_are_answered():
    calls = "".join(call("echo", text=str(i)) for i in range(4))
    trajectory = await play(calls, "done", tools=[echo], limits=ToolLimits(max_calls_per_turn=2))
    assert answers(trajectory) == [
        "0",
        "1",
        "error: only 2 calls per turn are executed",
        "error: only 2 calls per turn are executed",
    ]
    assert [c.well_formed for c in trajectory.tool_calls] == [True] * 4
    assert trajectory.num_turns == 2


async def test_a_tool_that_hangs_ends_at_its_limit():
    release = threading.Event()

    def hang() -> str:
        """Hang."""
        release.wait(WAIT_S)
        return "late"

    try:
        trajectory = await play(
            call("hang") + call("echo", text="quick"), "done", tools=[hang, echo],
            limits=ToolLimits(tool_timeout_s=1.0),
        )  # fmt: skip
    finally:
        release.set()
    assert answers(trajectory) == ["error: hang took longer than 1 s", "quick"]


async def test_a_slow_tool_of_one_rollout_does_not_hold_up_another():
    """The first one's tool ends only once the second one has come to its end."""
    second_is_done = threading.Event()

    def wait_for_the_other() -> str:
        """Wait."""
        return "met" if second_is_done.wait(WAIT_S) else "never"

    async with worker_on(says(call("wait_for_the_other"), "b", "c")) as (worker, pool):
        slow = asyncio.ensure_future(worker.run(setup(tools=[wait_for_the_other]), spec("slow")))
        await until(lambda: pool.engines[0].figures().finished == 1)
        quick = await worker.run(setup(SingleTurnAgentLoop), spec("quick"))
        assert not slow.done()
        second_is_done.set()
        async with asyncio.timeout(WAIT_S):
            trajectory = await slow
    assert quick.status == "done"
    assert answers(trajectory) == ["met"]


async def test_calls_of_one_turn_run_side_by_side_and_are_answered_in_order():
    barrier = threading.Barrier(2, timeout=WAIT_S)

    def meet(who: str) -> str:
        """Meet.

        Args:
            who: By name.
        """
        barrier.wait()
        return who

    trajectory = await play(call("meet", who="a") + call("meet", who="b"), "ok", tools=[meet])
    assert answers(trajectory) == ["a", "b"]


# -- limits ----------------------------------------------------------------------------------


async def test_the_number_of_turns_is_bounded():
    trajectory = await play(SUM, limits=ToolLimits(max_turns=3))
    assert (trajectory.num_turns, trajectory.status) == (3, "done")
    assert len(answers(trajectory)) == 3, "also the last call is answered"


async def test_the_token_budget_holds_over_the_turns():
    size = len(ids(SUM + END))
    trajectory = await play(SUM, limits=ToolLimits(max_turns=99, max_response_tokens=2 * size + 5))
    assert trajectory.sampled_tokens == 2 * size + 5
    assert trajectory.finish_reason is FinishReason.LENGTH


async def test_a_turn_asks_for_no_more_than_the_callers_own_bound():
    trajectory = await play("a long answer", sampling={"max_tokens": 4})
    assert trajectory.segments[0].sampled_ids == ids("a lo")


@pytest.mark.parametrize("name", ["max_turns", "max_response_tokens", "tool_timeout_s"])
def test_limits_that_are_none_are_refused_by_name(name):
    with pytest.raises(ConfigError) as refused:
        ToolLimits(**{name: 0})
    assert refused.value.field == name


# -- forks -----------------------------------------------------------------------------------


async def test_a_format_that_cannot_be_extended_forks_and_says_so():
    trajectory = await play(SUM, SUM, "done", template=FORGETFUL)
    assert len(trajectory.segments) == 3
    for segment in trajectory.segments[1:]:
        assert "cannot be extended" in segment.fork_reason
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
    assert made.server_manager is made.client == "the client"
