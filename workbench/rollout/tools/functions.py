"""A typed function with a docstring is a tool."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_type_hints

from workbench.errors import ConfigError
from workbench.rollout.tools.base import Tool

_REFUSED = {
    inspect.Parameter.VAR_POSITIONAL: "stands for any number of arguments",
    inspect.Parameter.VAR_KEYWORD: "stands for any names",
    inspect.Parameter.POSITIONAL_ONLY: "cannot be given by its name",
}


def tool(function: Callable[..., Any]) -> Tool:
    """Make a tool of a function.

    The schema that the model sees comes from the type hints and the ``Args:`` of the docstring.

    Raises:
        ConfigError: a parameter has no type hint, no line in the docstring's ``Args:``, or
            cannot be given by its name; names the tool and the parameter.
    """
    # A method would keep its object, which is one rollout's, in the cache.
    made = _made if inspect.isfunction(function) else _made.__wrapped__
    return made(function)


@functools.lru_cache(maxsize=256)
def _made(function: Callable[..., Any]) -> Tool:
    """Once for all rollouts: reading hints and docstring takes as long as a turn."""
    spec = spec_of(function)
    return Tool(function, spec["function"]["name"], spec)


def spec_of(
    function: Callable[..., Any], *, name: str = "", description: str = "", given: int = 0
) -> dict[str, Any]:
    """A function in OpenAI's form.

    Args:
        function: with type hints and a docstring.
        name: instead of its own.
        description: where its own docstring says nothing but the arguments.
        given: how many of its first parameters are not the model's business.

    Raises:
        ConfigError: see :func:`tool`.
    """
    from transformers.utils import get_json_schema

    name = name or getattr(function, "__name__", type(function).__name__)
    field = f"tool {name!r}"
    allowed = "a type hint and a line under Args: in the docstring for each parameter"
    try:
        spec: dict[str, Any] = get_json_schema(_as_described(function, field, name, given))
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(field, str(error), allowed=allowed) from error
    spec["function"]["description"] = spec["function"]["description"] or description
    return spec


def _as_described(
    function: Callable[..., Any], field: str, name: str, given: int
) -> Callable[..., Any]:
    """A stand-in with the parameters that the model has to give, and no return type."""
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())[given:]
    hinted = function if hasattr(function, "__annotations__") else type(function).__call__
    hints = get_type_hints(hinted)
    for parameter in parameters:
        if parameter.kind in _REFUSED:
            raise ConfigError(
                field, f"parameter {parameter.name!r} {_REFUSED[parameter.kind]}",
                allowed="parameters with names",
            )  # fmt: skip
        if parameter.name not in hints:
            raise ConfigError(
                field, f"parameter {parameter.name!r} has no type hint", allowed="a type hint"
            )

    def stand_in() -> None: ...

    stand_in.__name__ = name
    stand_in.__doc__ = inspect.getdoc(function)
    stand_in.__annotations__ = {p.name: hints[p.name] for p in parameters}
    stand_in.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[p.replace(annotation=hints[p.name]) for p in parameters]
    )
    return stand_in


TAKEN = "functions, StatefulTools, tools_of(a class), McpTools"
"""What tools are made of."""


def by_name(tools: Iterable[Tool | Callable[..., Any]]) -> dict[str, Tool]:
    """Tools by their names.

    Raises:
        ConfigError: two have the same name, or one cannot be a tool.
    """
    if not isinstance(tools, Iterable) or isinstance(tools, str | Mapping):
        raise ConfigError("tools", f"{tools!r}", allowed=f"a list of {TAKEN}")
    made = []
    for item in tools:
        if isinstance(item, type) or not (isinstance(item, Tool) or callable(item)):
            raise ConfigError("tools", f"{item!r}", allowed=TAKEN)
        made.append(item if isinstance(item, Tool) else tool(item))
    return merged([{one.name: one} for one in made])


def merged(named: Iterable[Mapping[str, Tool]]) -> dict[str, Tool]:
    """All of them in one.

    Raises:
        ConfigError: two have the same name.
    """
    together: dict[str, Tool] = {}
    for tools in named:
        for name in tools:
            if name in together:
                raise ConfigError("tools", f"two tools are called {name!r}")
        together.update(tools)
    return together
