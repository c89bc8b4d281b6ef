"""A typed function with a docstring is a tool; whatever it does, the model gets an answer."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tests.unit.inprocess import WAIT_S
from workbench.errors import ConfigError
from workbench.rollout.tools import MAX_EXPRESSION, by_name, calculator, tool


def weather(city: str, days: int = 1) -> str:
    """Tell the weather.

    Args:
        city: Where.
        days: For how long.
    """
    return f"{city} {days}"


def calling(function, arguments, timeout_s=WAIT_S):
    return tool(function).call(arguments, timeout_s)


def test_the_schema_comes_from_type_hints_and_docstring():
    function = tool(weather).spec["function"]
    assert (function["name"], function["description"]) == ("weather", "Tell the weather.")
    assert function["parameters"]["properties"]["city"] == {
        "type": "string",
        "description": "Where.",
    }
    assert function["parameters"]["required"] == ["city"]


def test_a_function_without_type_hints_is_refused_by_name():
    def vague(x):
        """Do something.

        Args:
            x: What.
        """

    with pytest.raises(ConfigError, match="vague"):
        tool(vague)


def test_a_function_without_described_parameters_is_refused():
    def terse(x: int):
        """Do something."""

    with pytest.raises(ConfigError, match="Args:"):
        tool(terse)


def test_two_tools_of_one_name_are_refused():
    with pytest.raises(ConfigError, match="'weather'"):
        by_name([weather, tool(weather)])


def test_tools_are_found_by_name():
    assert list(by_name([calculator, weather])) == ["calculator", "weather"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"city": "Bonn"}, ""),
        ({"city": "Bonn", "days": 2}, ""),
        ({}, "missing a required argument: 'city'"),
        ({"town": "Bonn"}, "it takes city, days"),
        ({"city": "Bonn", "self": 1}, "unexpected keyword argument 'self'"),
    ],
)
def test_arguments_that_do_not_fit_are_told_with_those_that_would(arguments, problem):
    told = tool(weather).problem_with(arguments)
    assert problem in told
    assert bool(told) == bool(problem)


async def test_a_blocking_tool_runs_off_the_loop():
    def where() -> str:
        """Tell the thread."""
        return threading.current_thread().name

    assert await calling(where, {}) != threading.current_thread().name


async def test_an_async_tool_runs_on_the_loop():
    async def where() -> str:
        """Tell the thread."""
        return threading.current_thread().name

    assert await calling(where, {}) == threading.main_thread().name


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("as it is", "as it is"),
        (3, "3"),
        ({"a": [1]}, '{"a": [1]}'),
        (None, "null"),
        ({1}, '"{1}"'),
    ],
)
async def test_results_are_text_or_json(value, read):
    def give() -> object:
        """Give it."""
        return value

    assert await calling(give, {}) == read


async def test_an_async_tool_that_hangs_is_cancelled_at_its_limit():
    ended = asyncio.Event()

    async def hang() -> str:
        """Hang."""
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with pytest.raises(TimeoutError):
        await calling(hang, {}, timeout_s=0.01)
    assert ended.is_set()


async def test_a_blocking_tool_that_hangs_is_not_waited_for():
    release = threading.Event()

    def hang() -> str:
        """Hang."""
        release.wait(WAIT_S)
        return "late"

    try:
        with pytest.raises(TimeoutError):
            await calling(hang, {}, timeout_s=0.01)
    finally:
        release.set()


async def test_slow_tools_leave_the_loop_to_others():
    """Two blocking tools wait for each other: they only end if they run side by side."""
    barrier = threading.Barrier(2, timeout=WAIT_S)

    def meet() -> str:
        """Wait for the other one."""
        barrier.wait()
        return "met"

    async with asyncio.timeout(WAIT_S):
        assert await asyncio.gather(calling(meet, {}), calling(meet, {})) == ["met", "met"]


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("12 + 7", "19"),
        (" 2*(3-5) ", "-4"),
        ("7/2", "3.5"),
        ("6/2", "3"),
        ("7//2", "3"),
        ("-7 % 3", "2"),
        ("+1.50", "1.5"),
        ("--2", "2"),
    ],
)
def test_the_calculator_calculates(expression, value):
    assert calculator(expression) == value


@pytest.mark.parametrize(
    "expression",
    [
        "", "1 +", "a", "2**9", "__import__('os')", "f(1)", "(1).real", "1j", "'a'*3", "[1]",
        "1 < 2", "1/0", "(" * 150 + "1", "1" * (MAX_EXPRESSION + 1), "x := 1", "1; 2",
    ],
)  # fmt: skip
def test_the_calculator_calculates_nothing_else(expression):
    with pytest.raises((ValueError, SyntaxError, ArithmeticError, MemoryError)):
        calculator(expression)


def test_arguments_of_the_wrong_type_are_a_problem_before_the_tool_is_called():
    def add(x: int) -> int:
        """Add.

        Args:
            x: A number.
        """
        return x + 1

    assert tool(add).problem_with({"x": 1}) == ""
    assert tool(add).problem_with({"x": "one"}) == "add: x: 'one' is not of type 'integer'"


@pytest.mark.parametrize("tools", [None, ["calculator"], 3])
def test_what_are_no_tools_are_refused(tools):
    with pytest.raises(ConfigError, match="tools"):
        by_name(tools)
