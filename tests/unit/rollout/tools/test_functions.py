"""A typed function with a docstring is a tool; what the model could not use is refused."""

from __future__ import annotations

import functools
import gc
import threading
import weakref

import pytest

from workbench.errors import ConfigError
from workbench.rollout.tools import Tool, by_name, calculator, tool


def weather(city: str, days: int = 1) -> str:
    """Tell the weather.

    Args:
        city: Where.
        days: For how long.
    """
    return f"{city} {days}"


def test_the_schema_comes_from_type_hints_and_docstring():
    function = tool(weather).spec["function"]
    assert (function["name"], function["description"]) == ("weather", "Tell the weather.")
    assert function["parameters"]["properties"]["city"] == {
        "type": "string",
        "description": "Where.",
    }
    assert function["parameters"]["required"] == ["city"]
    assert set(function) == {"name", "description", "parameters"}


def test_a_tool_may_return_what_no_schema_describes():
    def look() -> threading.Event:
        """Look."""
        return threading.Event()

    assert tool(look).spec["function"]["parameters"]["properties"] == {}


def untyped(x):
    """Do it.

    Args:
        x: What.
    """


def undescribed(x: int):
    """Do it."""


def undocumented(x: int): ...


def open_ended(*x: int):
    """Do it.

    Args:
        x: What.
    """


def any_names(**x: int):
    """Do it.

    Args:
        x: What.
    """


def by_position(x: int, /):
    """Do it.

    Args:
        x: What.
    """


def unknown(x: Nowhere):  # noqa: F821
    """Do it.

    Args:
        x: What.
    """


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (untyped, "parameter 'x' has no type hint"),
        (undescribed, "'x'"),
        (undocumented, "docstring"),
        (open_ended, "parameter 'x' stands for any number of arguments"),
        (any_names, "parameter 'x' stands for any names"),
        (by_position, "parameter 'x' cannot be given by its name"),
        (unknown, "'Nowhere' is not defined"),
    ],
)
def test_what_the_model_could_not_call_is_refused_by_name(function, problem):
    with pytest.raises(ConfigError, match=problem) as refused:
        tool(function)
    assert refused.value.field == f"tool '{function.__name__}'"


def test_methods_are_tools_without_their_object():
    class Station:
        def measure(self, place: str) -> str:
            """Measure.

            Args:
                place: Where.
            """
            return place

    made = tool(Station().measure)
    assert list(made.spec["function"]["parameters"]["properties"]) == ["place"]
    assert not made.problem_with({"place": "here"})


def test_two_tools_of_one_name_are_refused():
    with pytest.raises(ConfigError, match="'weather'"):
        by_name([weather, tool(weather)])


@pytest.mark.parametrize(
    "tools", ["weather", weather, {"weather": weather}, [3], None, 3, ["weather"]]
)
def test_what_is_no_list_of_functions_is_refused(tools):
    with pytest.raises(ConfigError) as refused:
        by_name(tools)
    assert refused.value.field == "tools"


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
        ({"city": "Bonn", "days": "two"}, "weather: days: 'two' is not of type 'integer'"),
    ],
)
def test_arguments_that_do_not_fit_are_told_with_those_that_would(arguments, problem):
    told = tool(weather).problem_with(arguments)
    assert problem in told
    assert bool(told) == bool(problem)


def test_a_spec_without_parameters_takes_what_the_function_takes():
    made = Tool(weather, "weather", {"function": {"name": "weather"}})
    assert not made.problem_with({"city": "Bonn"})
    assert made.problem_with({}) == (
        "weather: missing a required argument: 'city'; it takes city, days"
    )


def test_a_partial_with_a_docstring_of_its_own_is_a_tool():
    here = functools.partial(weather, "Bonn")
    here.__name__, here.__doc__ = "here", weather.__doc__
    here.__annotations__ = {"days": int}
    made = tool(here)
    assert list(made.spec["function"]["parameters"]["properties"]) == ["days"]


@pytest.mark.parametrize("given", [[int], [3], "echo", 3])
def test_what_is_no_tool_is_refused_with_all_that_can_be_one(given):
    with pytest.raises(ConfigError, match=r"StatefulTools, tools_of\(a class\), McpTools"):
        by_name(given)


def test_an_object_whose_method_is_a_tool_is_kept_by_nobody():
    class Shop:
        def buy(self, what: str) -> str:
            """Buy.

            Args:
                what: What.
            """
            return what

    shop = Shop()
    kept = weakref.ref(shop)
    assert tool(shop.buy).name == "buy"
    del shop
    gc.collect()
    assert kept() is None
