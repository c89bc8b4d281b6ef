"""A tool with a state of its own for each rollout."""

from __future__ import annotations

import asyncio
import functools
import inspect
import re
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from workbench.rollout.tools.base import Tool
from workbench.rollout.tools.functions import spec_of
from workbench.rollout.tools.holding import Held, made_by

if TYPE_CHECKING:
    from collections.abc import Mapping


class StatefulTool(ABC):
    """One state per rollout: made when the rollout begins, released however it ends.

    Each method may be ``async`` or not; those that are not run on threads of their own. The model
    sees :meth:`execute`'s parameters without the state, by their type hints and the docstring's
    ``Args:``. Calls of one turn are executed one after another, in the order they were written.
    """

    name: str = ""
    """What the model calls it; the class's name in snake case unless set."""

    @abstractmethod
    def create(self, task: Mapping[str, Any]) -> Any:
        """The state for a rollout of this task."""

    @abstractmethod
    def execute(self, *args: Any, **kwargs: Any) -> Any:
        """``execute(self, state, …)``: one call; what it returns is what the model reads."""

    def release(self, state: Any) -> Any:  # noqa: B027 - many states need nothing
        """Give the state back. An error here becomes a note in the trajectory."""

    @property
    def tool_name(self) -> str:
        """What the model calls it."""
        return self.name or _snake(type(self).__name__)

    @property
    def spec(self) -> dict[str, Any]:
        """In OpenAI's function form.

        Raises:
            ConfigError: ``execute`` has a parameter without a type hint or a description.
        """
        said = (inspect.getdoc(type(self)) or "").split("\n\n")[0]
        return spec_of(self.execute, name=self.tool_name, description=said, given=1)

    async def open(self, task: Mapping[str, Any]) -> Held:
        """See :class:`ToolSource`."""
        state = await made_by(functools.partial(self.create, task), self.release)
        execute = functools.partial(self.execute, state)
        made = Tool(execute, self.tool_name, self.spec, asyncio.Lock())
        return Held({made.name: made}, state, self.release)


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
