"""Rollout Workbench: rollouts from a pool of vLLM replicas on Ray, notebook first.

Names are loaded when they are first used, so that ``import workbench`` costs next to nothing.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workbench.balancer import GlobalRequestLoadBalancer
    from workbench.client import FullyAsyncLLMServerClient, LLMServerClient
    from workbench.cluster.manager import LLMServerManager
    from workbench.config import RoutingConfig
    from workbench.errors import WorkbenchError
    from workbench.facade import Learner, Reply, Rollout, Stream, Workbench
    from workbench.prometheus import (
        reload_prometheus,
        update_prometheus_config,
        write_config_file,
    )
    from workbench.rollout.batch import RolloutBatch
    from workbench.rollout.loop import AgentLoopBase, register
    from workbench.rollout.manager import AgentLoopManager
    from workbench.rollout.rewards import verified_answer
    from workbench.rollout.single_turn import SingleTurnAgentLoop
    from workbench.rollout.tasks import reasoning_tasks
    from workbench.rollout.tool_loop import ToolAgentLoop, ToolLimits
    from workbench.rollout.tools import McpTools, StatefulTool, calculator, tool
    from workbench.rollout.trajectory import Trajectory
    from workbench.rollout.worker import AgentLoopWorker
    from workbench.stream.manager import FullyAsyncAgentLoopManager
    from workbench.stream.rules import StreamRules
    from workbench.types import FinishReason, TokenOutput, VersionSpan

__version__ = "0.1.0"

_HOMES = {
    "AgentLoopBase": "workbench.rollout.loop",
    "AgentLoopManager": "workbench.rollout.manager",
    "AgentLoopWorker": "workbench.rollout.worker",
    "FinishReason": "workbench.types",
    "FullyAsyncAgentLoopManager": "workbench.stream.manager",
    "FullyAsyncLLMServerClient": "workbench.client",
    "GlobalRequestLoadBalancer": "workbench.balancer",
    "LLMServerClient": "workbench.client",
    "LLMServerManager": "workbench.cluster.manager",
    "Learner": "workbench.facade",
    "McpTools": "workbench.rollout.tools",
    "Reply": "workbench.facade",
    "Rollout": "workbench.facade",
    "RolloutBatch": "workbench.rollout.batch",
    "RoutingConfig": "workbench.config",
    "SingleTurnAgentLoop": "workbench.rollout.single_turn",
    "StatefulTool": "workbench.rollout.tools",
    "Stream": "workbench.facade",
    "StreamRules": "workbench.stream.rules",
    "TokenOutput": "workbench.types",
    "ToolAgentLoop": "workbench.rollout.tool_loop",
    "ToolLimits": "workbench.rollout.tool_loop",
    "Trajectory": "workbench.rollout.trajectory",
    "VersionSpan": "workbench.types",
    "Workbench": "workbench.facade",
    "WorkbenchError": "workbench.errors",
    "calculator": "workbench.rollout.tools",
    "reasoning_tasks": "workbench.rollout.tasks",
    "register": "workbench.rollout.loop",
    "reload_prometheus": "workbench.prometheus",
    "tool": "workbench.rollout.tools",
    "update_prometheus_config": "workbench.prometheus",
    "verified_answer": "workbench.rollout.rewards",
    "write_config_file": "workbench.prometheus",
}

__all__ = [
    "AgentLoopBase",
    "AgentLoopManager",
    "AgentLoopWorker",
    "FinishReason",
    "FullyAsyncAgentLoopManager",
    "FullyAsyncLLMServerClient",
    "GlobalRequestLoadBalancer",
    "LLMServerClient",
    "LLMServerManager",
    "Learner",
    "McpTools",
    "Reply",
    "Rollout",
    "RolloutBatch",
    "RoutingConfig",
    "SingleTurnAgentLoop",
    "StatefulTool",
    "Stream",
    "StreamRules",
    "TokenOutput",
    "ToolAgentLoop",
    "ToolLimits",
    "Trajectory",
    "VersionSpan",
    "Workbench",
    "WorkbenchError",
    "calculator",
    "reasoning_tasks",
    "register",
    "reload_prometheus",
    "tool",
    "update_prometheus_config",
    "verified_answer",
    "write_config_file",
]

logging.getLogger(__name__).addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
