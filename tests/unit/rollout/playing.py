"""Rollouts of a scripted model in this process."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

from tests.unit.chat import CHATML, call, renderer, says
from tests.unit.inprocess import WAIT_S, simulated_pool
from workbench.rollout.context import ContextRules
from workbench.rollout.tasks import RolloutSpec
from workbench.rollout.tool_loop import ToolAgentLoop
from workbench.rollout.tools import tool
from workbench.rollout.worker import AgentLoopWorker, RolloutSetup

SUM = call("calculator", expression="1+1")


def echo(text: str) -> str:
    """Say it again.

    Args:
        text: What.
    """
    return text


tool(echo)  # imports what takes seconds, before any test's time begins


def spec(prompt="1+1?", number=0, **task):
    return RolloutSpec(f"task-{number}/0", f"task-{number}", 0, {"prompt": prompt, **task})


def setup(loop=ToolAgentLoop, *, sampling=None, context=None, **loop_args):
    rules = context or ContextRules()
    return RolloutSetup("test", loop, loop_args, sampling or {}, context=rules)


@asynccontextmanager
async def worker_on(*args, template=CHATML):
    async with simulated_pool(*args) as pool:
        yield AgentLoopWorker(pool.client(), renderer(template)), pool


async def play(*texts, template=CHATML, prompt="1+1?", task=None, limit_s=WAIT_S, **options):
    """One rollout of a model that says these texts in turn."""
    played = spec(prompt, **(task or {}))
    async with worker_on(says(*texts), template=template) as (worker, pool):
        async with asyncio.timeout(limit_s):
            trajectory = await worker.run(setup(**options), played)
        trajectory.check()
        assert_exact(trajectory, pool)
    return trajectory


def assert_exact(trajectory, pool):
    """Mask 1 is what the engine sampled, and each turn was sent what the record says."""
    asked = [request for engine in pool.engines for request in engine.asked]
    said = {key: ids for engine in pool.engines for key, ids in engine.said.items()}
    assert len(asked) == trajectory.num_turns
    for request, turn in zip(asked, trajectory.turns, strict=True):
        segment = trajectory.segments[turn.segment]
        assert segment.response_ids[turn.start : turn.end] == said[request.request_id]
        assert segment.prompt_ids + segment.response_ids[: turn.start] == request.prompt_ids
    sampled = [token for request in asked for token in said[request.request_id]]
    assert [token for s in trajectory.segments for token in s.sampled_ids] == sampled


def answers(trajectory):
    return [m["content"] for m in trajectory.messages if m["role"] == "tool"]
