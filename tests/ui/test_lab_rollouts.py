"""Rollouts in JupyterLab: followed while a cell waits for them, and opened to their tokens."""

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
import asyncio
from pathlib import Path

from widgets import RolloutProgress, TrajectoryView
from workbench import AgentLoopBase, Workbench

HERE = Path.cwd()


class Held(AgentLoopBase):
    \"\"\"Says something, then ends when it may.\"\"\"

    requires = ("prompt",)

    async def run(self, sampling_params, *, prompt, **_):
        ids = self.renderer.prompt([{{"role": "user", "content": prompt}}])
        await self.generate(ids, sampling_params)
        while not (HERE / prompt).exists():
            await asyncio.sleep(0.05)


bench = Workbench(name="{name}")
rollout = bench.rollout(
    ["first", "second", "third"],
    Held,
    sampling_params={{"max_tokens": 16, "ignore_eos": True}},
    reward=lambda trajectory: 0.5,
)
"""
BEGUN, PROGRESS, ENDED, RESULT = range(4)
FORMS = {
    "bench": "Replica load",
    "bench.routing": "Session stickiness",
    "bench.replicas[1]": "Replica load",
    "rollout": "Rollout progress",
    "rollout.trajectories()[0]": "Rollout ",
}
"""What stands in a cell's last line, and the title of what it shows."""
TABLE = "Rollouts that ended, the last ones first"


@pytest.fixture(scope="module")
def notebook(lab: Lab, bench: Workbench) -> Iterator[Notebook]:
    """A cell that waits for rollouts, which end when a test says so."""
    path = lab.write(
        "rollouts",
        BEGIN.format(name=bench.config.name),
        "RolloutProgress(bench)",
        "TrajectoryView(rollout)",
        "rollout.result();",
        *FORMS,
    )
    notebook = lab.open(path)
    notebook.run(BEGUN, PROGRESS, ENDED)
    notebook.run(RESULT, wait=False)
    yield notebook
    notebook.close()


def let_end(notebook: Notebook, name: str) -> None:
    (notebook.path.parent / name).touch()


def test_rollouts_are_followed_while_a_cell_waits_for_them(
    notebook: Notebook, screenshots: Path
) -> None:
    progress, ended = notebook.view(PROGRESS), notebook.view(ENDED)
    shows(progress.fact("ended"), "0 of 3")
    shows(ended.table(TABLE), "no rollout ended yet")
    let_end(notebook, "first")
    shows(progress.fact("ended"), "1 of 3")
    shows(progress.fact("mean reward"), "0.500")
    shows(ended.table(TABLE), "done")
    let_end(notebook, "second")
    shows(progress.fact("ended"), "2 of 3")
    expect(ended.rows(TABLE)).to_have_count(2)
    assert notebook.is_running(RESULT)
    notebook.screenshot(screenshots, "progress", PROGRESS)
    let_end(notebook, "third")
    notebook.wait(RESULT)
    shows(progress.fact("ended"), "3 of 3")


def test_a_rollout_is_opened_to_its_tokens_by_a_click(
    notebook: Notebook, screenshots: Path
) -> None:
    view = notebook.view(ENDED)
    expect(view.rows(TABLE)).to_have_count(3)
    view.rows(TABLE).first.get_by_role("button").click()
    shows(view.part("tokens"), "Tokens of segment 1 of 1")
    expect(view.part("tokens").locator("[data-place].sampled")).to_have_count(16)
    shows(view.part("tokens"), re.compile("user.*(first|second|third).*assistant", re.DOTALL))
    shows(view.rows("Turns").first, re.compile("replica-[01]"))
    notebook.screenshot(screenshots, "trajectory", ENDED)
    view.button("next turn").click()
    shows(view.root.locator("h3"), "turn 1 of 1")
    shows(view.fact("sampled tokens"), "16")
    view.button("back").click()
    expect(view.rows(TABLE)).to_have_count(3)


@pytest.mark.parametrize("form", FORMS)
def test_what_stands_in_a_cell_s_last_line_is_shown_live(
    notebook: Notebook, screenshots: Path, form: str
) -> None:
    place = RESULT + 1 + list(FORMS).index(form)
    notebook.run(place)
    view = notebook.view(place)
    shows(view.root.locator("h3"), FORMS[form])
    expect(view.button("back")).to_have_count(0)  # it is all there is
    (saved,) = notebook.outputs(place)
    assert {"text/html", "text/plain"} <= set(saved["data"])
    notebook.screenshot(screenshots, f"form-{place - RESULT}", place)
