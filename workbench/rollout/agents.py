"""Agent loops by name: those that come along, and those that were registered."""

from __future__ import annotations

from workbench.errors import ConfigError
from workbench.rollout import single_turn, tool_loop
from workbench.rollout.loop import REGISTRY, AgentLoopBase

UNREWARDED = (single_turn.SingleTurnAgentLoop, tool_loop.ToolAgentLoop)
"""Loops whose rollouts have a reward only where one is asked for. Others may give their own."""


def agent_loop(agent: str | type[AgentLoopBase]) -> tuple[str, type[AgentLoopBase]]:
    """The name and class of an agent loop.

    Raises:
        ConfigError: there is no such agent; lists those there are.
    """
    if isinstance(agent, str):
        if agent not in REGISTRY:
            raise ConfigError("agent", f"unknown agent {agent!r}", allowed=sorted(REGISTRY))
        return agent, REGISTRY[agent]
    if isinstance(agent, type) and issubclass(agent, AgentLoopBase):
        names = [name for name, loop in REGISTRY.items() if loop is agent]
        return (names[0] if names else agent.__name__), agent
    raise ConfigError("agent", f"{agent!r}", allowed="a name or a subclass of AgentLoopBase")
