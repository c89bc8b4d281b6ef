"""Live widgets in JupyterLab, on real replicas: they move while a cell is running."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.ui.lab import shows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.ui.lab import Lab, Notebook
    from workbench import Workbench

pytestmark = [pytest.mark.ray, pytest.mark.vllm]

BEGIN = """\
from pathlib import Path

from widgets import KVCacheUsage, ReplicaLoad, SessionStickiness
from workbench import Workbench

bench = Workbench(name="{name}")
load = ReplicaLoad(bench)
"""
TALK = """\
turns = 0
while not Path("enough").exists():
    bench.generate("Count.", session=f"talk-{turns % 3}", max_tokens=32, ignore_eos=True)
    turns += 1
"""
BEGUN, LOAD, STICKINESS, CACHE, AGAIN, TALKING = range(6)
WIDGET = "application/vnd.jupyter.widget-view+json"


@pytest.fixture(scope="module")
def notebook(lab: Lab, bench: Workbench) -> Iterator[Notebook]:
    """Widgets above a cell that blocks, asking one question after the other."""
    path = lab.write(
        "widgets",
        BEGIN.format(name=bench.config.name),
        "load",
        "SessionStickiness(bench)",
        "KVCacheUsage(bench)",
        "load",
        TALK,
    )
    notebook = lab.open(path)
    notebook.run(BEGUN, LOAD, STICKINESS, CACHE, AGAIN)
    notebook.run(TALKING, wait=False)
    yield notebook
    (path.parent / "enough").touch()
    notebook.wait(TALKING)
    assert notebook.outputs(TALKING) == []
    notebook.close()


def test_replica_load_moves_while_a_cell_is_running(notebook: Notebook, screenshots: Path) -> None:
    view = notebook.view(LOAD)
    shows(view.status, "live")
    shows(view.fact("in flight"), "1 request")
    shows(view.fact("running"), "1 request")
    shows(view.fact("sampled"), re.compile(r"^[1-9]\d* tokens/s"))
    shows(view.rows("Replicas now").first, "replica-0")
    view.moves("lines")
    view.moves("lines")
    assert notebook.is_running(TALKING)
    notebook.screenshot(screenshots, "load", LOAD)


def test_session_stickiness_moves_while_a_cell_is_running(
    notebook: Notebook, screenshots: Path
) -> None:
    view = notebook.view(STICKINESS)
    shows(view.status, "live")
    shows(view.table("Busiest sessions"), "talk-0")
    shows(view.part("flow"), "talk-0")
    shows(view.fact("turns that stayed, last 5 min"), re.compile(r"^\d+\.\d%"))
    view.moves("flow")
    assert notebook.is_running(TALKING)
    notebook.screenshot(screenshots, "stickiness", STICKINESS)


def test_kv_cache_usage_moves_while_a_cell_is_running(
    notebook: Notebook, screenshots: Path
) -> None:
    view = notebook.view(CACHE)
    shows(view.status, "live")
    shows(view.fact("hit rate, by the engines"), re.compile(r"^\d+\.\d%"))
    shows(view.fact("hit rate, predicted (books)"), re.compile(r"^\d+\.\d%"))
    shows(view.part("bars"), re.compile(r"\d\.\d% ok"))
    view.moves("lines")
    assert notebook.is_running(TALKING)
    notebook.screenshot(screenshots, "cache", CACHE)


def test_one_widget_is_seen_in_two_cells_and_moves_in_both(notebook: Notebook) -> None:
    one, two = notebook.view(LOAD), notebook.view(AGAIN)
    one.moves("lines")
    two.moves("lines")
    two.button("show the last 1 min").click()
    for view in (one, two):
        pressed = view.button("show the last 1 min")
        expect(pressed).to_have_attribute("aria-pressed", "true")
    assert notebook.is_running(TALKING)


def test_a_widget_is_all_that_its_cell_puts_out(notebook: Notebook) -> None:
    for place in (LOAD, STICKINESS, CACHE, AGAIN):
        (saved,) = notebook.outputs(place)
        assert saved["output_type"] == "execute_result"
        assert set(saved["data"]) == {WIDGET, "image/png", "text/plain"}
