"""Managing a pool in a real browser, on the dashboard and in JupyterLab; it is made by hand."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.ui.lab import shows
from tests.ui.scenes import FRAME
from tests.ui.viewing import WAIT_MS
from tests.unit.widgets.managed import MadeVerbs, ManagedPool
from widgets.dashboard import Dashboard, serve
from workbench.errors import ReplicaStartError
from workbench.types import ReplicaState

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Locator, Page

    from tests.ui.lab import Lab

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
expect.set_options(timeout=WAIT_MS)

DONE = re.compile(r"done \(\d")
BEGIN = """\
from tests.unit.widgets.managed import MadeVerbs
from widgets import PoolControl

verbs = MadeVerbs()
"""
BUSY = """\
import time
from pathlib import Path

print("it has begun", flush=True)
while not Path("managed").exists():
    time.sleep(0.05)
"""


@pytest.fixture
def verbs() -> MadeVerbs:
    return MadeVerbs(ManagedPool())


@pytest.fixture
def dashboard(verbs: MadeVerbs) -> Iterator[Dashboard]:
    with serve(verbs, control=verbs) as dashboard:
        yield dashboard


def press(root: Any, name: str) -> Locator:
    found: Locator = root.get_by_role("button", name=name, exact=True)
    found.click()
    return found


def test_a_pool_is_managed_from_the_dashboard(
    page: Page, verbs: MadeVerbs, dashboard: Dashboard
) -> None:
    page.goto(dashboard.page_url("overview"))
    page.get_by_role("link", name="Control").click()
    lines, asked = page.locator(".done li"), page.locator(".question")
    restart = press(page, "Restart replica-1")
    expect(asked).to_contain_text("Restart replica-1? In flight there: 3.")
    press(asked, "Leave it")
    expect(asked).to_have_count(0)
    # It runs until it has ended; nothing else can be asked of that replica, and no second click.
    with verbs.held("restart"):
        restart.click()
        asked.get_by_role("button", name="Drain first, then restart").dblclick()
        expect(lines.first).to_contain_text("under way")
        expect(restart).to_have_attribute("aria-busy", "true")
        for name in ("Drain replica-1", "Pause replica-1", "Restart replica-1", "Pause all"):
            button = page.get_by_role("button", name=name)
            expect(button).to_have_attribute("aria-disabled", "true")
            expect(button).to_have_attribute("title", re.compile("restart replica-1"))
            button.dispatch_event("click")
        page.get_by_role("button", name="Drain replica-0").dblclick()
        expect(page.get_by_role("button", name="Take back replica-0")).to_be_visible()
    expect(lines.filter(has_text="drain and restart replica-1")).to_contain_text(DONE)
    assert verbs.asked == [("restart", "replica-1", True), ("drain", "replica-0")]
    # What goes wrong is said in words.
    verbs.problem = ReplicaStartError("replica-2", "its engine ended", log_tail="<b>no memory</b>")
    press(page, "Restart replica-2")
    press(asked, "Restart now")
    expect(lines.first).to_contain_text("failed: replica-2 did not start: its engine ended")
    lines.first.locator("summary").click()
    expect(page.get_by_text("<b>no memory</b>")).to_be_visible()
    # More replicas come unasked, fewer do not.
    page.get_by_label("number of replicas").fill("4")
    press(page, "Scale")
    expect(page.get_by_role("button", name="Restart replica-3")).to_be_visible()
    page.get_by_label("number of replicas").fill("2")
    press(page, "Scale")
    expect(asked).to_contain_text("Scale down from 4 to 2?")
    press(asked, "Scale down")
    expect(page.get_by_role("button", name="Restart replica-2")).to_have_count(0)
    # New weights, with all that can be said about them.
    press(page, "Publish weights…")
    page.get_by_label("checkpoint directory").fill("/runs/9")
    page.get_by_label("version").fill("9")
    page.get_by_label("requests").select_option("wait")
    press(page, "Publish")
    press(asked, "Publish")
    expect(lines.first).to_contain_text("version 9 on 2 replicas")
    assert verbs.asked[-1] == ("publish", "/runs/9", 9, "wait", False)
    # A log comes on demand, and again.
    log = press(page, "Log of replica-1")
    expect(page.locator(".log pre:visible")).to_contain_text("read 1")
    press(page, "Refresh")
    expect(page.locator(".log pre:visible")).to_contain_text("read 2")
    log.click()
    expect(page.locator(".log:visible")).to_have_count(0)


def test_it_fits_and_is_photographed(
    page: Page, verbs: MadeVerbs, dashboard: Dashboard, screenshots: Path
) -> None:
    pool = verbs.pool
    pool.ids = [f"replica-{n}" for n in range(5)]
    pool.states = {"replica-3": ReplicaState.UNHEALTHY, "replica-4": ReplicaState.PAUSED}
    pool.notes = {"replica-3": "its engine process ended with signal 9 " * 4}
    pool.step()
    page.goto(dashboard.page_url("control"))
    press(page, "Publish weights…")
    page.get_by_label("checkpoint directory").fill("/runs/tuesday/checkpoint-400")
    press(page, "Log of replica-1")
    expect(page.locator(".log pre:visible")).to_contain_text("read 1")
    press(page, "Restart replica-0")
    for theme in ("light", "dark"):
        for width in (1280, 480):
            page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
            page.set_viewport_size({"width": width, "height": 900})
            page.evaluate(FRAME)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            inside = page.locator("section.control").bounding_box()
            for shown in page.locator("section.control button:visible").all():
                box = shown.bounding_box()
                assert box["x"] + box["width"] <= inside["x"] + inside["width"]
            page.evaluate("scrollTo(0, 0)")
            path = screenshots / f"dashboard-control-{theme}-{width}.png"
            page.screenshot(path=path, full_page=True)


def test_a_pool_is_managed_from_a_cell_while_another_is_running(
    lab: Lab, screenshots: Path
) -> None:
    path = lab.write("control", BEGIN, "PoolControl(verbs)", BUSY, "verbs.asked")
    notebook = lab.open(path)
    notebook.run(0, 1)
    panel = notebook.output(1).locator(".control")
    press(panel, "Restart replica-0")
    press(panel, "Restart now")
    shows(panel.locator(".done li").first, DONE)
    # What is typed is no shortcut of Lab's.
    press(panel, "Publish weights…")
    source = panel.get_by_label("checkpoint directory")
    source.press_sequentially("/a/dd/b")
    expect(source).to_have_value("/a/dd/b")
    press(panel, "Log of replica-1")
    shows(panel.locator(".log pre:visible"), "read 1")
    notebook.screenshot(screenshots, "control", 1)
    notebook.run(2, wait=False)
    shows(notebook.output(2), "it has begun")
    press(panel, "Drain replica-1")
    shows(panel.locator(".done li").first, re.compile(r"drain replica-1\s*done"))
    expect(panel.get_by_role("button", name="Take back replica-1")).to_be_visible()
    assert notebook.is_running(2)
    (path.parent / "managed").touch()
    notebook.wait(2)
    notebook.run(3)
    shows(notebook.output(3), re.compile("restart.*replica-0.*logs.*drain.*replica-1", re.DOTALL))
    (saved,) = notebook.outputs(1)
    assert set(saved["data"]) == {
        "application/vnd.jupyter.widget-view+json", "image/png", "text/plain",
    }  # fmt: skip
    notebook.close()
