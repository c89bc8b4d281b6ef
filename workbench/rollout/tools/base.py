"""The words: a tool, and what opens tools for a rollout."""

from __future__ import annotations

import copy
import inspect
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from workbench.aio import in_thread
from workbench.rollout.tools.results import as_text

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call."""

    function: Callable[..., Any]
    name: str
    spec: Mapping[str, Any]
    """In OpenAI's function form."""
    lock: asyncio.Lock | None = None
    """Held while it runs. Tools with one state share it, so that a turn's calls are executed in
    the order in which they were written."""

    @property
    def turn(self) -> AbstractAsyncContextManager[Any]:
        """To be entered around a call: its turn, where it has to wait for others."""
        return self.lock or nullcontext()

    def problem_with(self, arguments: Mapping[str, Any]) -> str:
        """Why these arguments cannot be passed; empty when they can."""
        from jsonschema import Draft202012Validator
        from referencing import Registry

        parameters = self.spec["function"].get("parameters", {})
        signature = inspect.signature(self.function)
        try:
            signature.bind(**arguments)
        except TypeError as error:
            wanted = ", ".join(parameters.get("properties", signature.parameters))
            return f"{self.name}: {error}; it takes {wanted or 'nothing'}"
        # An empty registry: a schema's references are not fetched from anywhere.
        for wrong in Draft202012Validator(parameters, registry=Registry()).iter_errors(arguments):
            where = ".".join(map(str, wrong.path))
            return f"{self.name}: {where + ': ' if where else ''}{wrong.message}"
        return ""

    async def call(self, arguments: Mapping[str, Any]) -> str:
        """Execute it, for as long as it takes; what the model gets to read.

        It gets arguments of its own: what it does to them changes no record.
        """
        given = copy.deepcopy(dict(arguments))
        text: str = await finished(lambda: self.function(**given), self.function, as_text)
        return text


async def finished(
    call: Callable[[], Any], function: Callable[..., Any], then: Callable[[Any], Any]
) -> Any:
    """``then`` of what a call returns; a blocking one runs on a thread of its own.

    Args:
        call: calls ``function``.
        function: says whether the call has to be awaited.
        then: what to make of the result, in the same place.
    """
    if inspect.iscoroutinefunction(function):
        return then(await call())

    def blocking() -> Any:
        result = call()
        return result if inspect.isawaitable(result) else then(result)

    result = await in_thread(blocking)
    return then(await result) if inspect.isawaitable(result) else result


class ToolSession(Protocol):
    """The tools of one rollout."""

    @property
    def tools(self) -> Mapping[str, Tool]:
        """By name."""
        ...

    async def close(self) -> None:
        """Give back what they hold. Called once, however the rollout ended."""
        ...


@runtime_checkable
class ToolSource(Protocol):
    """What is opened once for each rollout."""

    async def open(self, task: Mapping[str, Any]) -> ToolSession:
        """The tools for a rollout of this task.

        When it is cancelled or fails, it leaves nothing behind.
        """
        ...
