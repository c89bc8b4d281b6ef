"""The examples in docs/ do what they say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.unit.chat import renderer, says
from tests.unit.inprocess import PROMPT, Step, simulated_pool
from workbench.config import RoutingConfig
from workbench.local import LocalPool
from workbench.rollout.manager import AgentLoopManager
from workbench.rollout.worker import AgentLoopWorker

DOCS = Path(__file__).parents[2] / "docs"
OWN_POLICY = re.compile(r"^class \w+:\n(?:(?:    .*)?\n)+", re.MULTILINE)


async def test_a_policy_of_ones_own_takes_less_than_20_lines_and_routes() -> None:
    source = OWN_POLICY.search((DOCS / "routing.md").read_text())
    assert source is not None
    assert len(source[0].strip().splitlines()) < 20
    namespace: dict[str, type] = {}
    exec(source[0], namespace)
    policy = namespace["FewestTokens"]
    async with LocalPool(2, Step, routing=RoutingConfig(policy=policy)) as pool:
        client = pool.client()
        outputs = [
            await client.generate("s", prompt_ids=PROMPT * turn, sampling_params={"max_tokens": 4})
            for turn in (1, 2, 3)
        ]
        assert len({output.replica_id for output in outputs}) == 1
        assert pool.balancer.snapshot().policy == "FewestTokens"


OWN_LOOP = re.compile(r"^```python\n(from workbench import AgentLoopBase.*?)```", re.M | re.S)


async def test_a_loop_of_ones_own_takes_less_than_40_lines_and_plays() -> None:
    source = OWN_LOOP.search((DOCS / "rollouts.md").read_text())
    assert source is not None
    assert len(source[1].splitlines()) < 40
    namespace: dict[str, Any] = {}
    exec(source[1], namespace)
    async with simulated_pool(says("yes", "still yes")) as pool:
        worker = AgentLoopWorker(pool.client(), renderer())
        manager = AgentLoopManager([worker], concurrency=4, pad_id=0)
        (row,) = await manager.start([{"prompt": "Sure?"}], agent="twice")
    row.check()
    assert (row.status, row.num_turns, len(row.segments)) == ("done", 2, 1)
    assert row.messages[-1]["content"] == "still yes"
