"""The examples in docs/ do what they say."""

from __future__ import annotations

import re
from pathlib import Path

from tests.unit.inprocess import PROMPT, Step
from workbench.config import RoutingConfig
from workbench.local import LocalPool

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
