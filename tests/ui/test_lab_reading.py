"""Reading rollouts in JupyterLab, without a pool: a page that nobody trusts, and a live one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import nbformat
import pytest
from playwright.sync_api import expect

from tests.ui.lab import WAIT_MS, copy_of, shows
from tests.unit.showing.rollouts import conversation

if TYPE_CHECKING:
    from pathlib import Path

    from tests.ui.lab import Lab

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

BEGIN = """\
from dataclasses import replace

from tests.unit.showing.rollouts import conversation
from widgets import TrajectoryView

rows = [
    replace(conversation(), rollout_id=f"batch/task-{n // 4}/{n % 4}", group=f"task-{n // 4}",
            index=n % 4, reward=n / 100)
    for n in range(100)
]
"""


def styles(html: str) -> list[str]:
    """Every element's style, however it is spaced."""
    found = re.findall(r'style="([^"]*)"', html)
    return [re.sub(r"\s*([:;,])\s*", r"\1", style).rstrip(";") for style in found]


def test_a_saved_page_loses_nothing_where_it_is_not_trusted(lab: Lab, screenshots: Path) -> None:
    trajectory = conversation()
    html = trajectory._repr_html_()
    canary = "<i data-canary='x'>sanitised</i>"
    path = lab.write("kept", "trajectory")
    notebook = nbformat.read(path, as_version=4)
    data = {"text/html": html + canary, "text/plain": repr(trajectory)}
    notebook.cells[0].outputs = [nbformat.v4.new_output("display_data", data)]
    nbformat.write(notebook, path)
    opened = lab.open(copy_of(path, "kept-elsewhere"), kernel=False)
    shown = opened.output(0)
    shows(shown, "What is two plus two?")
    seen = shown.locator(".jp-RenderedHTMLCommon").first
    kept = seen.evaluate("(root) => root.innerHTML")
    assert "sanitised" in kept
    assert "canary" not in kept, "nothing was taken away: it was trusted"
    for name in ("style", "title", "open"):
        wanted = len(re.findall(rf"<[^>]* {name}\b", html))
        assert len(re.findall(rf"<[^>]* {name}\b", kept)) == wanted, name
    assert styles(kept) == styles(html)
    opened.screenshot(screenshots, "rollout-saved", 0)
    opened.close()


def test_a_live_view_is_searched_and_stepped_through_with_keys(lab: Lab, screenshots: Path) -> None:
    notebook = lab.open(lab.write("reading", BEGIN, "TrajectoryView(rows)", "rows[0]"))
    notebook.run_all()
    view = notebook.view(1)
    title = view.root.locator("h3")
    view.root.get_by_placeholder("search id").press_sequentially("task-7/")
    expect(view.root.locator("tbody tr")).to_have_count(4, timeout=WAIT_MS)
    view.root.get_by_role("columnheader", name="reward").get_by_role("button").click()
    shows(view.root.locator("tbody tr").first, "batch/task-7/3")
    view.button("open batch/task-7/2").click()
    shows(title, "Rollout batch/task-7/2")
    view.button("next turn").click()
    shows(title, "turn 1 of 2")
    view.button("next turn").press("ArrowRight")
    shows(title, "turn 2 of 2")
    notebook.screenshot(screenshots, "reading-turn", 1)
    view.button("next turn").press("Shift+ArrowRight")
    shows(title, "Rollout batch/task-7/1")
    view.button("compare group").click()
    shows(title, "Group task-7")
    notebook.screenshot(screenshots, "reading-group", 1)
    shows(notebook.view(2).root.locator("h3"), "Rollout batch/task-0/0")
    notebook.close()
