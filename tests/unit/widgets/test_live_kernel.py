"""Live widgets in a real kernel: they move while a cell runs, and print nothing into it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from jupyter_client.manager import KernelManager

from widgets.live import live_bundle
from workbench.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jupyter_client.blocking import BlockingKernelClient

ROOT = Path(__file__).resolve().parents[3]
START_S = 120
CELL_S = 120
VIEW_TYPE = "application/vnd.jupyter.widget-view+json"

BEGIN = """
import threading
from tests.unit.widgets.feeds import PoolFeed
from widgets import ReplicaLoad
feed = PoolFeed()
view = ReplicaLoad(feed)
view
"""
BLOCK = """
drawn = threading.Event()
view.observe(lambda change: "34 requests in flight" in change.new and drawn.set(), "picture")
feed.make(in_flight=17)
assert drawn.wait(60)
"""
BREAK = """
failed = threading.Event()
view.observe(lambda change: "no such column" in change.new and failed.set(), "picture")
def broken():
    raise ValueError("no such column")
view._picture = broken
feed.make()
assert failed.wait(60)
"""
SHOW = """
from widgets.live import live_bundle
class Bench:
    feed = feed
    def _repr_mimebundle_(self, include=None, exclude=None):
        return {"text/plain": "a bench"} | live_bundle("pool", self)
bench = Bench()
bench
"""


class Kernel:
    """A kernel and what it said."""

    def __init__(self, client: BlockingKernelClient) -> None:
        self._client = client

    def run(self, source: str) -> list[dict[str, Any]]:
        """All messages up to the end of this cell, those of background threads among them."""
        found: list[dict[str, Any]] = []
        reply = self._client.execute_interactive(
            source, timeout=CELL_S, output_hook=found.append, store_history=False
        )
        assert reply["content"]["status"] == "ok", reply["content"]
        return found


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    manager = KernelManager()
    manager.start_kernel(cwd=str(ROOT))
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=START_S)
        yield Kernel(client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        manager.cleanup_resources()


def pictures(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    states = [message["content"].get("data", {}).get("state", {}) for message in messages
              if message["msg_type"] == "comm_msg"]  # fmt: skip
    return [json.loads(state["picture"]) for state in states if "picture" in state]


def shown(messages: list[dict[str, Any]]) -> dict[str, Any]:
    (result,) = [m["content"]["data"] for m in messages if m["msg_type"] == "execute_result"]
    return result


@pytest.mark.slow
def test_it_moves_while_a_cell_runs_and_prints_nothing_into_it(kernel):
    first = kernel.run(BEGIN)
    assert set(shown(first)) == {VIEW_TYPE, "image/png", "text/plain"}
    assert shown(first)["text/plain"] == "ReplicaLoad('lab', 2 replicas, 6 in flight)"
    # The cell ends once the picture that it waits for was drawn, so that was while it ran.
    during = kernel.run(BLOCK)
    assert any("34 requests in flight" in picture["words"] for picture in pictures(during))
    assert {message["msg_type"] for message in during} <= {"status", "execute_input", "comm_msg"}
    broken = kernel.run(BREAK)
    assert any(picture["error"] == "ValueError: no such column" for picture in pictures(broken))
    assert {message["msg_type"] for message in broken} <= {"status", "execute_input", "comm_msg"}


@pytest.mark.slow
def test_what_is_displayed_twice_is_one_widget(kernel):
    kernel.run(BEGIN)
    one, other = shown(kernel.run(SHOW)), shown(kernel.run("bench"))
    assert one["text/plain"] == "a bench"
    assert one[VIEW_TYPE]["model_id"] == other[VIEW_TYPE]["model_id"]


def test_without_a_kernel_there_is_no_live_side():
    assert live_bundle("pool", object()) is None


def test_other_kinds_are_refused():
    with pytest.raises(ConfigError, match=r"kind: 'trainer' .*pool, routing, replica"):
        live_bundle("trainer", object())
