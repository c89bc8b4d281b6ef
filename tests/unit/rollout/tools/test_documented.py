"""The examples in docs/tools.md do what they say."""

from __future__ import annotations

import re
from pathlib import Path

from tests.unit.chat import call
from tests.unit.rollout.playing import answers, play
from workbench.rollout.tools import McpTools

TEXT = (Path(__file__).parents[4] / "docs" / "tools.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```", TEXT, re.M | re.S)


async def test_the_documented_tools_work():
    names = {"NOTES": ["rain in Bonn", "sun in Bonn"]}
    for code in EXAMPLES[1:-1]:
        exec(code, names)
    written = call("search", query="sun") + call("counter", step=2) + call("buy", item="tea")
    trajectory = await play(
        written, "ok", tools=[names["search"], names["Counter"], names["shop"]],
        task={"start": 5, "stock": {"tea": 1}},
    )  # fmt: skip
    assert answers(trajectory) == ['["sun in Bonn"]', "7", "bought"]


def test_the_documented_servers_are_servers():
    names = {}
    exec(EXAMPLES[-1], names)
    assert isinstance(names["files"], McpTools)
    assert names["search"].shared
