"""Tools: what a model may call, and what it gets to read.

A typed function with a docstring is a tool. What needs more than a function is a *source*, opened
once for each rollout: a :class:`StatefulTool`, an object's methods (:func:`tools_of`), an MCP
server (:class:`McpTools`), or anything else with ``open`` (:class:`ToolSource`). Tools run apart
from everything else: async ones on the loop, others on threads of their own, each with a time
limit, so that a slow one delays nobody.
"""

from workbench.rollout.tools.answering import Answering
from workbench.rollout.tools.base import Tool, ToolSession, ToolSource
from workbench.rollout.tools.calculator import MAX_EXPRESSION, calculator
from workbench.rollout.tools.functions import by_name, tool
from workbench.rollout.tools.limits import DEFAULT_LIMITS, Cut, ToolLimits
from workbench.rollout.tools.mcp import McpTools
from workbench.rollout.tools.objects import tools_of
from workbench.rollout.tools.opening import AnyTool, ToolBox
from workbench.rollout.tools.results import ToolError
from workbench.rollout.tools.stateful import StatefulTool

__all__ = [
    "DEFAULT_LIMITS",
    "MAX_EXPRESSION",
    "Answering",
    "AnyTool",
    "Cut",
    "McpTools",
    "StatefulTool",
    "Tool",
    "ToolBox",
    "ToolError",
    "ToolLimits",
    "ToolSession",
    "ToolSource",
    "by_name",
    "calculator",
    "tool",
    "tools_of",
]
