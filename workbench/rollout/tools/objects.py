"""An object per rollout whose methods are its tools: an environment is a class."""

from __future__ import annotations

import asyncio
import functools
import inspect
from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError
from workbench.rollout.tools.base import Tool, ToolSource
from workbench.rollout.tools.functions import tool
from workbench.rollout.tools.holding import Held, given_back, made_by

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_ENDS = ("aclose", "close")


def tools_of(
    make: Callable[[Mapping[str, Any]], Any],
    *,
    names: Sequence[str] | None = None,
    specs: Mapping[str, Mapping[str, Any]] | None = None,
) -> ToolSource:
    """A source of tools: ``make(task)`` gives one object per rollout, its methods are the tools.

    They are executed one after another, in the order in which the model wrote them. When the
    rollout is over the object's ``aclose`` or ``close`` is called, if it has one.

    Args:
        make: a class or a function, ``async`` or not; it gets the task.
        names: the methods that are tools; by default those of ``specs``, or else all public ones
            with a docstring.
        specs: by method: what the model is shown, in OpenAI's function form, where it should not
            come from type hints and docstring.

    Raises:
        ConfigError: ``make`` cannot be called.
    """
    if not callable(make):
        raise ConfigError("make", f"{make!r}", allowed="a class or a function that takes the task")
    if names is None and specs is not None:
        names = list(specs)
    return _ObjectTools(make, None if names is None else tuple(names), dict(specs or {}))


@dataclass(frozen=True, slots=True)
class _ObjectTools:
    make: Callable[[Mapping[str, Any]], Any]
    names: tuple[str, ...] | None
    specs: Mapping[str, Mapping[str, Any]]

    @property
    def name(self) -> str:
        return getattr(self.make, "__name__", repr(self.make))

    async def open(self, task: Mapping[str, Any]) -> Held:
        made = await made_by(functools.partial(self.make, task), _end)
        try:
            return Held(self._tools(made), made, _end)
        except ConfigError:
            await given_back(made, _end)
            raise

    def _tools(self, made: Any) -> dict[str, Tool]:
        lock = asyncio.Lock()
        names = _public(made) if self.names is None else self.names
        return {name: self._tool(made, name, lock) for name in names}

    def _tool(self, made: Any, name: str, lock: asyncio.Lock) -> Tool:
        method = getattr(made, name, None)
        if not callable(method):
            kind = type(made).__name__
            raise ConfigError(f"tool {name!r}", f"{kind} has no such method", allowed=_public(made))
        if name in self.specs:
            return Tool(method, name, _whole(self.specs[name]), lock)
        return Tool(method, name, tool(method).spec, lock)


def _end(made: Any) -> Any:
    for name in _ENDS:
        end = getattr(made, name, None)
        if callable(end):
            return end()
    return None


def _public(made: Any) -> list[str]:
    """Its methods with a docstring, in the order of their definition."""
    found = dict.fromkeys(
        name
        for kind in reversed(type(made).__mro__)
        for name, value in vars(kind).items()
        if isinstance(value, FunctionType | staticmethod | classmethod)
    )
    return [
        name
        for name in found
        if not name.startswith("_") and name not in _ENDS and inspect.getdoc(getattr(made, name))
    ]


def _whole(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    return spec if "function" in spec else {"type": "function", "function": dict(spec)}
