"""Tools: a typed function with a docstring is one.

The schema that the model sees comes from the type hints and the ``Args:`` of the docstring. Tools
run apart from everything else: async ones on the loop, others on threads of their own, each with a
time limit, so that a slow one delays nobody.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workbench.aio import in_thread
from workbench.errors import ConfigError, DeadlineError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call."""

    function: Callable[..., Any]
    name: str
    spec: Mapping[str, Any]
    """In OpenAI's function form."""

    def problem_with(self, arguments: Mapping[str, Any]) -> str:
        """Why these arguments cannot be passed; empty when they can."""
        from jsonschema import Draft202012Validator

        parameters = self.spec["function"]["parameters"]
        try:
            inspect.signature(self.function).bind(**arguments)
        except TypeError as error:
            wanted = ", ".join(parameters.get("properties", {}))
            return f"{self.name}: {error}; it takes {wanted or 'nothing'}"
        for wrong in Draft202012Validator(parameters).iter_errors(arguments):
            return f"{self.name}: {'.'.join(map(str, wrong.path))}: {wrong.message}"
        return ""

    async def call(self, arguments: Mapping[str, Any], timeout_s: float) -> str:
        """Execute it; what the model gets to read.

        Raises:
            DeadlineError: it took too long. A blocking function's thread ends when it does.
        """
        limit = asyncio.timeout(timeout_s)
        try:
            async with limit:
                if inspect.iscoroutinefunction(self.function):
                    result = await self.function(**arguments)
                else:
                    result = await in_thread(lambda: self.function(**arguments))
        except TimeoutError as error:
            if not limit.expired():
                raise  # the tool's own
            raise DeadlineError(f"{self.name} took longer than {timeout_s:g} s") from error
        return result if isinstance(result, str) else json.dumps(result, default=str)


def tool(function: Callable[..., Any]) -> Tool:
    """Make a tool of a function.

    Raises:
        ConfigError: a parameter has no type hint or no line in the docstring's ``Args:``.
    """
    from transformers.utils import get_json_schema
    from transformers.utils.chat_template_utils import (
        DocstringParsingException,
        TypeHintParsingException,
    )

    try:
        spec = get_json_schema(function)
    except (DocstringParsingException, TypeHintParsingException) as error:
        raise ConfigError(
            f"tool {function.__name__!r}", str(error),
            allowed="a type hint and a line under Args: in the docstring for each parameter",
        ) from error  # fmt: skip
    spec["function"].pop("return", None)  # OpenAI's form has no place for it
    return Tool(function, spec["function"]["name"], spec)


def by_name(tools: Iterable[Tool | Callable[..., Any]]) -> dict[str, Tool]:
    """Tools by their names.

    Raises:
        ConfigError: two have the same name, or one cannot be a tool.
    """
    if not isinstance(tools, Iterable):
        raise ConfigError("tools", f"{tools!r}", allowed="a list of functions")
    named: dict[str, Tool] = {}
    for item in tools:
        if not isinstance(item, Tool) and not callable(item):
            raise ConfigError("tools", f"{item!r}", allowed="functions")
        made = item if isinstance(item, Tool) else tool(item)
        if made.name in named:
            raise ConfigError("tools", f"two tools are called {made.name!r}")
        named[made.name] = made
    return named


_OPERATORS: dict[type, Callable[..., float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}

MAX_EXPRESSION = 200
"""Characters; arithmetic that a task needs is far shorter."""


def calculator(expression: str) -> str:
    """Evaluate an arithmetic expression.

    Args:
        expression: Numbers with + - * / // % and parentheses, such as "12 + 7".
    """
    if len(expression) > MAX_EXPRESSION:
        raise ValueError(f"the expression has more than {MAX_EXPRESSION} characters")
    value = _evaluate(ast.parse(expression.strip(), mode="eval").body)
    return str(int(value) if float(value).is_integer() else value)


def _evaluate(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_evaluate(left), _evaluate(right))
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_evaluate(operand))
    raise ValueError(f"only numbers and + - * / // % ( ) are allowed, not {ast.unparse(node)!r}")
