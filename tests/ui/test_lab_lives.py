"""What happens to live widgets when kernels, pages, pools and replicas come and go."""

from __future__ import annotations

import os
import re
import signal
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.integration.processes import gone
from tests.ui.lab import copy_of, shows
from workbench import Workbench
from workbench.supervision import SupervisionConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.ui.lab import Lab, Notebook

pytestmark = [pytest.mark.ray, pytest.mark.vllm]

ATTACH = """\
from widgets import ReplicaLoad, SessionStickiness
from workbench import Workbench

bench = Workbench(name="{name}")
"""
ATTACHED, LOAD = range(2)
ASK = 'bench.generate("Count.", max_tokens={}, ignore_eos=True)'


@pytest.fixture
def watch(lab: Lab) -> Iterator[Callable[..., Notebook]]:
    """A notebook that is attached to a pool and shows its load, with further cells."""
    opened: list[Notebook] = []

    def open_notebook(pool: Workbench, name: str, *cells: str) -> Notebook:
        attach = ATTACH.format(name=pool.config.name)
        path = lab.write(name, attach, "ReplicaLoad(bench)", *cells)
        notebook = lab.open(path)
        opened.append(notebook)
        notebook.run(ATTACHED, LOAD)
        shows(notebook.view(LOAD).status, "live")
        return notebook

    yield open_notebook
    for notebook in opened:
        notebook.close()


@pytest.fixture
def doomed(bench: Workbench) -> Iterator[Workbench]:
    """A pool that may be broken, in the cluster of the shared one; its engines are simulated."""
    name = f"{bench.config.name}-doomed"
    simulated: dict[str, Any] = {
        "engine": "simulated",
        "engine_args": {"vocab_size": 50_000},
        "supervision": SupervisionConfig(max_restarts=0),  # who dies here stays dead
    }
    with Workbench("smollm2-135m", 2, name=name, workers=0, progress=False, **simulated) as pool:
        yield pool


def test_a_pool_that_closes_while_watched_keeps_its_last_picture(
    watch: Callable[..., Notebook], doomed: Workbench, screenshots: Path
) -> None:
    notebook = watch(doomed, "closed", "bench")
    view = notebook.view(LOAD)
    doomed.generate("Count.", max_tokens=4)
    shows(view.fact("sessions"), "1")
    doomed.close()
    shows(view.status, re.compile(r"^closed, last data \d\d:\d\d:\d\d$"))
    shows(view.fact("sessions"), "1")
    shows(view.rows("Replicas now").nth(1), "replica-1")
    expect(view.error).to_be_hidden()
    expect(view.button("Pause")).to_be_hidden()
    notebook.run(2)
    shows(notebook.output(2), "closed")
    notebook.screenshot(screenshots, "closed", LOAD)


def test_a_replica_that_is_killed_while_watched_has_no_data_and_not_none(
    watch: Callable[..., Notebook], doomed: Workbench, screenshots: Path
) -> None:
    notebook = watch(doomed, "killed")
    view = notebook.view(LOAD)
    shows(view.fact("running"), "0 requests")
    victim = doomed.snapshot().replicas[1].status
    assert victim.pid is not None
    os.kill(victim.pid, signal.SIGKILL)
    row = view.rows("Replicas now").first
    shows(row, victim.replica_id)
    shows(row, re.compile(r"no data since \d\d:\d\d:\d\d"))
    _, _, _, *engine, _ = row.locator("td").all_inner_texts()
    assert set(engine) == {"–"}
    shows(view.fact("running"), "0 requests (1 of 2 report)")
    for _ in range(4):
        doomed.generate("Count.", max_tokens=4)  # some of them find it dead, and go elsewhere
    shows(row, "unhealthy")
    assert len(notebook.outputs(LOAD)) == 1
    assert notebook.outputs(ATTACHED) == []
    notebook.screenshot(screenshots, "killed", LOAD)


def test_a_restarted_kernel_leaves_its_widgets_quiet_and_the_pool_untouched(
    watch: Callable[..., Notebook], bench: Workbench, screenshots: Path
) -> None:
    notebook = watch(bench, "restarted", "import os; print(os.getpid())")
    notebook.run(2)
    (printed,) = notebook.outputs(2)
    notebook.restart()
    assert gone([int(printed["text"])])
    view = notebook.view(LOAD)
    shows(view.status, re.compile(r"^no news since \d\d:\d\d:\d\d$"))
    shows(view.rows("Replicas now").first, "replica-0")
    notebook.screenshot(screenshots, "restarted", LOAD)
    notebook.run(ATTACHED, LOAD)
    shows(notebook.view(LOAD).status, "live")
    notebook.view(LOAD).moves("lines")
    assert bench.generate("Count.", max_tokens=2).output.token_ids


def test_a_page_that_is_loaded_again_finds_its_widgets_moving(
    lab: Lab, watch: Callable[..., Notebook], bench: Workbench
) -> None:
    notebook = watch(bench, "reloaded")
    notebook.save()
    lab.load()
    view = lab.open(notebook.path).view(LOAD)
    shows(view.status, "live")
    view.moves("lines")


def test_a_blocking_call_is_interrupted_and_its_request_ends(
    watch: Callable[..., Notebook], bench: Workbench
) -> None:
    notebook = watch(bench, "interrupted", ASK.format(6000), ASK.format(4))
    view = notebook.view(LOAD)
    notebook.run(2, wait=False)
    shows(view.fact("running"), "1 request")
    notebook.interrupt()
    notebook.wait(2)
    shows(notebook.output(2), "KeyboardInterrupt")
    shows(view.fact("running"), "0 requests")
    notebook.run(3)
    shows(notebook.output(3), "length")


def test_a_saved_notebook_shows_stills_to_whoever_only_reads_it(
    lab: Lab, watch: Callable[..., Notebook], bench: Workbench, screenshots: Path
) -> None:
    notebook = watch(bench, "saved", "SessionStickiness(bench)", "bench", "bench.routing")
    notebook.run(2, 3, 4)
    notebook.save()
    assert notebook.path.stat().st_size < 500_000
    assert '"widgets"' not in notebook.path.read_text()
    copy = lab.open(copy_of(notebook.path, "copied"), kernel=False)
    for place in (LOAD, 2):
        picture = copy.output(place).locator("img")
        expect(picture).to_be_visible()
        assert picture.evaluate("(picture) => picture.naturalWidth") > 400
    shows(copy.output(3), "replica-1")
    shows(copy.output(4), "sticky")
    for place in range(5):
        expect(copy.output(place)).not_to_contain_text(re.compile("widget|Error"))
    copy.screenshot(screenshots, "copied")
    copy.close()
