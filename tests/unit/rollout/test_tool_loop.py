"""The tool loop: whatever the model writes, each call is answered and the record is exact."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tests.unit.chat import END, call, ids, renderer, says
from tests.unit.inprocess import WAIT_S, manual_pool, until, virtually
from tests.unit.rollout.playing import SUM, answers, echo, play, setup, spec, worker_on
from workbench.errors import ConfigError, TaskError
from workbench.rollout.context import ContextRules
from workbench.rollout.single_turn import SingleTurnAgentLoop
from workbench.rollout.tool_loop import ToolAgentLoop, ToolLimits
from workbench.rollout.tools import ToolError, calculator, tool
from workbench.rollout.worker import AgentLoopWorker
from workbench.types import FinishReason

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


async def test_an_answer_without_a_call_ends_it():
    assert (await play(SUM, "It is 2.")).ended_by == "answer"


@pytest.mark.parametrize(
    ("limits", "sampling", "ended_by"),
    [
        ({"max_turns": 2}, {}, "max_turns"),
        ({"max_turns": 99, "max_response_tokens": 100}, {}, "max_response_tokens"),
        ({"max_turns": 99}, {"max_tokens": 3}, "max_tokens"),
    ],
)
async def test_the_limit_that_ended_it_is_named(limits, sampling, ended_by):
    trajectory = await play(SUM, limits=ToolLimits(**limits), sampling=sampling)
    assert (trajectory.status, trajectory.ended_by) == ("done", ended_by)


def first_prompt():
    return renderer().prompt([{"role": "user", "content": "1+1?"}], [tool(calculator).spec])


async def test_a_context_without_room_for_another_turn_ends_it():
    question = first_prompt()
    full = ContextRules(max_tokens=len(question) + len(ids(SUM + END)) + 5)
    trajectory = await play(SUM, context=full)
    assert (trajectory.status, trajectory.ended_by, trajectory.num_turns) == ("done", "context", 1)
    assert answers(trajectory) == ["2"]


async def test_a_turn_that_fills_the_context_is_cut_there():
    question = first_prompt()
    trajectory = await play("a long answer", context=ContextRules(max_tokens=len(question) + 4))
    assert (trajectory.sampled_tokens, trajectory.ended_by) == (4, "context")


async def test_a_turn_that_the_engine_gave_up_ends_it():
    async with manual_pool() as pool:
        worker = AgentLoopWorker(pool.client(), renderer())
        playing = asyncio.ensure_future(worker.run(setup(), spec()))
        (engine,) = pool.engines
        await until(lambda: engine.asked)
        engine.say(engine.asked[0], *ids(SUM), finish=FinishReason.ABORT)
        trajectory = await playing
    assert trajectory.ended_by == "abort"
    assert answers(trajectory) == []


@virtually
async def test_a_tool_that_runs_when_the_time_is_over_is_cancelled_and_the_row_stays():
    ended = []

    async def forever() -> None:
        """Go on."""
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    limits = ToolLimits(wall_s=5, tool_timeout_s=100)
    trajectory = await play(call("forever"), tools=[forever], limits=limits, limit_s=50)
    assert (trajectory.status, trajectory.ended_by, trajectory.num_turns) == ("done", "wall_s", 1)
    assert answers(trajectory) == ["error: forever: the rollout's time is over"]
    assert ended == [True]


@virtually
async def test_a_turn_that_is_sampled_when_the_time_is_over_is_given_up_and_the_row_stays():
    async def calculator(expression: str) -> str:  # a thread would take time that nobody counts
        """Calculate.

        Args:
            expression: What.
        """
        return expression

    async with manual_pool() as pool:
        worker = AgentLoopWorker(pool.client(), renderer())
        played = setup(limits=ToolLimits(wall_s=5), tools=[calculator])
        playing = asyncio.ensure_future(worker.run(played, spec()))
        (engine,) = pool.engines
        await until(lambda: engine.asked)
        engine.say(engine.asked[0], *ids(SUM + END), finish=FinishReason.STOP)
        trajectory = await playing
        assert engine.aborted == [engine.asked[1].request_id]
    trajectory.check()
    assert (trajectory.status, trajectory.ended_by, trajectory.num_turns) == ("done", "wall_s", 1)
    assert trajectory.segments[0].sampled_ids == ids(SUM + END)


# -- what a tool says ------------------------------------------------------------------------


async def test_a_tool_says_an_error_in_its_own_words():
    def refuse() -> str:
        """Refuse."""
        raise ToolError("Not today.")

    trajectory = await play(call("refuse"), "Oh.", tools=[refuse])
    (executed,) = trajectory.tool_calls
    assert (executed.result, executed.error) == ("Not today.", "Not today.")


@pytest.mark.parametrize(
    ("cut", "read"),
    [
        ("end", "abcdef[4 characters left out]"),
        ("middle", "abc[4 characters left out]hij"),
        ("start", "[4 characters left out]efghij"),
    ],
)
async def test_a_long_answer_is_cut_where_it_says_so(cut, read):
    limits = ToolLimits(max_result_characters=6, cut=cut)
    trajectory = await play(call("echo", text="abcdefghij"), "ok", tools=[echo], limits=limits)
    (executed,) = trajectory.tool_calls
    assert (executed.result, executed.cut_characters) == (read, 4)
    assert answers(trajectory) == [read]


async def test_a_tool_cannot_rewrite_the_call_that_is_on_record():
    def greedy(items: list[int]) -> int:
        """Take all.

        Args:
            items: What.
        """
        return len([items.pop() for _ in range(len(items))])

    trajectory = await play(call("greedy", items=[1, 2]), "ok", tools=[greedy])
    assert answers(trajectory) == ["2"]
    assert trajectory.tool_calls[0].arguments == {"items": [1, 2]}


# -- which tools -----------------------------------------------------------------------------


async def test_a_task_narrows_the_tools():
    narrowed = {"tools": ["echo"]}
    trajectory = await play(SUM, "Oh.", tools=[calculator, echo], task=narrowed)
    assert answers(trajectory) == ["error: there is no tool 'calculator'; there are: echo"]


async def test_a_task_that_wants_an_unknown_tool_is_a_failed_row_that_names_it():
    trajectory = await play("Oh.", tools=[echo], task={"tools": ["ekko"]})
    assert trajectory.status == "failed"
    assert trajectory.error == "TaskError: tools: there is no tool 'ekko' (allowed: echo)"


@pytest.mark.parametrize("tools", ["echo", [1], 3, float("nan")])
def test_a_task_whose_tools_are_no_names_is_refused(tools):
    with pytest.raises(TaskError) as refused:
        ToolAgentLoop.check_task({"prompt": "1+1?", "tools": tools})
    assert refused.value.field == "tools"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("max_turns", value) for value in (0, -1, 1.5, True, "2")],
        ("max_response_tokens", 0),
        ("max_calls_per_turn", 0),
        ("max_result_characters", 0),
        *[("tool_timeout_s", value) for value in (0, float("nan"), None)],
        ("open_timeout_s", 0),
        ("wall_s", 0),
        ("cut", "left"),
    ],
)
def test_limits_that_are_none_are_refused_by_name(name, value):
    with pytest.raises(ConfigError) as refused:
        ToolLimits(**{name: value})
    assert refused.value.field == name
