"""Every call gets an answer; no tool holds up or takes along anybody else."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tests.unit.inprocess import WAIT_S, virtually
from workbench.rollout.rendering import ParsedCall
from workbench.rollout.tools import DEFAULT_LIMITS, Answering, Tool, ToolLimits, by_name


def answering(*functions, limits=DEFAULT_LIMITS, until=None):
    return Answering(by_name(functions), limits, until)


async def answer_of(function, limits=DEFAULT_LIMITS, **arguments):
    call = ParsedCall(function.__name__, arguments, "")
    async with asyncio.timeout(WAIT_S):
        return await answering(function, limits=limits).answer(call, 0, is_allowed=True)


async def test_a_blocking_tool_runs_off_the_loop():
    def where() -> str:
        """Tell the thread."""
        return threading.current_thread().name

    assert (await answer_of(where)).result != threading.current_thread().name


async def test_an_async_tool_runs_on_the_loop():
    async def where() -> str:
        """Tell the thread."""
        return threading.current_thread().name

    assert (await answer_of(where)).result == threading.current_thread().name


async def test_a_function_that_returns_something_to_await_is_awaited():
    async def later() -> int:
        return 3

    def ask() -> int:
        """Ask."""
        return later()

    assert (await answer_of(ask)).result == "3"


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt, StopIteration])
@pytest.mark.parametrize("kind", ["async", "blocking"])
async def test_whatever_a_tool_raises_is_its_answer(error, kind):
    def fail() -> str:
        """Fail."""
        raise error("no")

    async def fail_later() -> str:
        """Fail."""
        raise error("no")

    told = await answer_of(fail if kind == "blocking" else fail_later)
    assert told.well_formed
    assert error.__name__ in told.error
    assert told.result == f"error: {told.error}"


async def test_a_tool_that_cancels_itself_cancels_nobody_else():
    async def leave() -> str:
        """Leave."""
        raise asyncio.CancelledError

    assert (await answer_of(leave)).result == "error: CancelledError: "


async def test_a_result_that_no_json_describes_is_an_error():
    def ring() -> list:
        """Make a ring."""
        ring: list = []
        ring.append(ring)
        return ring

    assert (await answer_of(ring)).result.startswith("error: ValueError")


@virtually
async def test_an_async_tool_that_hangs_is_cancelled_at_its_limit():
    ended = asyncio.Event()

    async def hang() -> str:
        """Hang."""
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    told = await answer_of(hang, ToolLimits(tool_timeout_s=2))
    assert told.result == "error: hang took longer than 2 s"
    assert ended.is_set()


@virtually
async def test_an_async_tool_that_will_not_be_cancelled_is_left_to_itself():
    release = asyncio.Event()

    async def stay() -> str:
        """Stay."""
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return "late"

    told = await answer_of(stay, ToolLimits(tool_timeout_s=2))
    assert told.result == "error: stay took longer than 2 s"
    release.set()


async def test_a_blocking_tool_that_hangs_is_not_waited_for():
    release = threading.Event()

    def hang() -> str:
        """Hang."""
        release.wait(WAIT_S)
        return "late"

    try:
        told = await answer_of(hang, ToolLimits(tool_timeout_s=0.01))
    finally:
        release.set()
    assert told.result == "error: hang took longer than 0.01 s"


async def test_a_cancelled_rollout_cancels_its_async_tools():
    running, ended = asyncio.Event(), asyncio.Event()

    async def hang() -> str:
        """Hang."""
        running.set()
        try:
            return str(await asyncio.Event().wait())
        finally:
            ended.set()

    asked = asyncio.ensure_future(answer_of(hang))
    await running.wait()
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert ended.is_set()


async def test_a_blocking_tool_uses_none_of_the_loops_own_threads():
    """The default executor is taken up entirely, and still the tool runs."""
    release = threading.Event()
    loop = asyncio.get_running_loop()
    taken = [loop.run_in_executor(None, release.wait, WAIT_S) for _ in range(64)]

    def quick() -> str:
        """Be quick."""
        return "done"

    try:
        assert (await answer_of(quick)).result == "done"
        assert not any(one.done() for one in taken)
    finally:
        release.set()
        await asyncio.gather(*taken)


async def test_calls_with_one_lock_run_in_the_order_in_which_they_were_written():
    order, lock = [], asyncio.Lock()

    async def slow(number: int) -> None:
        for _ in range(5 - number):
            await asyncio.sleep(0)
        order.append(number)

    properties = {"number": {"type": "integer"}}
    spec = {"function": {"parameters": {"type": "object", "properties": properties}}}
    desk = Answering({"slow": Tool(slow, "slow", spec, lock)}, ToolLimits())
    calls = [ParsedCall("slow", {"number": number}, "") for number in range(4)]
    await asyncio.gather(*(desk.answer(call, 0, is_allowed=True) for call in calls))
    assert order == [0, 1, 2, 3]


async def test_a_schema_from_elsewhere_that_is_broken_refuses_the_call_and_nothing_else():
    spec = {"function": {"parameters": {"$ref": "http://127.0.0.1:1/none"}}}
    desk = Answering({"odd": Tool(lambda **_: "", "odd", spec)}, ToolLimits())
    told = await desk.answer(ParsedCall("odd", {"x": 1}, ""), 0, is_allowed=True)
    assert not told.well_formed
    assert told.result.startswith("error: odd: its arguments could not be checked")
