"""The examples in docs/ do what they say."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from tests.unit.chat import renderer, says
from tests.unit.inprocess import PROMPT, Step, simulated_pool
from workbench.config import RoutingConfig
from workbench.facade import Stream, Workbench
from workbench.local import LocalPool
from workbench.metrics import streams
from workbench.rollout.manager import AgentLoopManager
from workbench.rollout.worker import AgentLoopWorker
from workbench.stream.rules import StreamRules

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


PYTHON = re.compile(r"^```python\n(.*?)^```", re.M | re.S)


@pytest.mark.parametrize("path", sorted(DOCS.glob("*.md")), ids=lambda path: path.name)
def test_every_python_block_is_python(path: Path) -> None:
    for block in PYTHON.findall(path.read_text()):
        ast.parse(block)


def test_what_is_said_of_a_stream_is_there() -> None:
    text = (DOCS / "streams.md").read_text() + (DOCS / "verl.md").read_text()
    named = set(re.findall(r"\bstream\.(\w+)", text))
    assert len(named) > 15
    assert named <= {name for name in dir(Stream) if not name.startswith("_")}
    arguments = set(inspect.signature(Workbench.stream).parameters)
    kept = {name for name in dir(StreamRules) if not name.startswith("_")}
    rules = re.search(r"^\| setting \|.*?\n\n", text, re.M | re.S)
    assert rules is not None
    settings = set(re.findall(r"^\| `(\w+)`", rules[0], re.M))
    assert {"required_samples", "max_staleness"} < settings <= kept | arguments


def test_the_causes_of_drops_are_all_told() -> None:
    told = set(re.findall(r"^\| `(\w+)` \|", (DOCS / "streams.md").read_text(), re.M))
    source = Path(streams.__file__).read_text()
    cause = source[source.index("cause: str") : source.index("groups: int")]
    known = set(re.findall(r"``(\w+)``", cause))
    assert len(known) > 5
    assert known <= told
