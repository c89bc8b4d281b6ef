"""JupyterLab as its users have it, on this machine only: a server, and notebooks in a browser.

What the browser waits for are conditions, by Playwright. Lab's commands are run as its menus do.
"""

from __future__ import annotations

import json
import math
import os
import re
import secrets
import subprocess
import sys
import threading
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import nbformat
from playwright.sync_api import TimeoutError as Overdue
from playwright.sync_api import expect

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from playwright.sync_api import Locator, Page

START_S = 300
STOP_S = 120
WAIT_MS = 120_000
ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/")
AROUND = 200
"""Pixels that Lab's own bars need above and below a notebook."""
SETTINGS = {
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "docmanager-extension/plugin": {"autosave": False},
}
"""The first would ask other machines."""


@dataclass
class Server:
    """JupyterLab's server."""

    url: str
    token: str
    folder: Path
    """Where its notebooks are; kernels run there."""
    log: list[str]
    """Lines of the server and of its kernels, as they come."""


@contextmanager
def running_lab(folder: Path, environment: Mapping[str, str]) -> Iterator[Server]:
    """JupyterLab with nobody's settings, until the block is left; its kernels end with it."""
    home = folder / "home"
    notebooks = folder / "notebooks"
    notebooks.mkdir(parents=True)
    for name, settings in SETTINGS.items():
        place = home / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(settings))
    token = secrets.token_urlsafe(16)
    process = subprocess.Popen(
        [
            sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root",
            "--ServerApp.ip=127.0.0.1", f"--IdentityProvider.token={token}",
            f"--ServerApp.root_dir={notebooks}", "--expose-app-in-browser",
        ],
        env={**os.environ, **_homes(home), **environment},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    log: list[str] = []
    url: Future[str] = Future()
    reader = threading.Thread(target=_read, args=(process, log, url), daemon=True)
    reader.start()
    try:
        yield Server(url.result(START_S), token, notebooks, log)
    finally:
        process.terminate()  # it shuts its kernels down, and waits for them
        try:
            process.wait(STOP_S)
        finally:
            process.kill()
            reader.join(STOP_S)


def _homes(home: Path) -> dict[str, str]:
    """Nothing of the person who runs the tests is read or written."""
    names = {
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_DATA_DIR": "data",
        "JUPYTER_RUNTIME_DIR": "runtime",
        "JUPYTERLAB_SETTINGS_DIR": "settings",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
        "IPYTHONDIR": "ipython",
    }
    return {name: str(home / folder) for name, folder in names.items()} | {"JUPYTER_PATH": ""}


def _read(process: subprocess.Popen[str], log: list[str], url: Future[str]) -> None:
    assert process.stdout is not None
    with process.stdout as lines:
        for line in lines:
            log.append(line)
            if not url.done() and (found := ADDRESS.search(line)):
                url.set_result(found[0])
    if not url.done():
        url.set_exception(RuntimeError("".join(log)))


# ---------------------------------------------------------------------------- in the browser

START = """async () => {
  await window.jupyterapp.restored;
  window.notebooks = {};
}"""
OPEN = """async (path) => {
  const panel = window.notebooks[path] = await window.jupyterapp.commands.execute(
    "docmanager:open", { path, factory: "Notebook" });
  await panel.context.ready;
  const cells = { states: {} };
  cells.run = async (places) => {
    for (const place of places) cells.states[place] = "waiting";
    for (const place of places) {
      cells.states[place] = "running";
      window.jupyterapp.shell.activateById(panel.id);
      panel.content.activeCellIndex = place;
      await window.jupyterapp.commands.execute("notebook:run-cell");
      cells.states[place] = "ended";
    }
  };
  panel.tested = cells;
  return panel.id;
}"""


CONNECTED = """(path) => {
  const kernel = window.notebooks[path].sessionContext.session?.kernel;
  return kernel?.connectionStatus === "connected" && ["idle", "busy"].includes(kernel.status);
}"""
"""Before that a kernel that is shut down may keep its server from ending."""


class Lab:
    """JupyterLab in a page of the browser."""

    def __init__(self, page: Page, server: Server) -> None:
        self.page = page
        self.server = server
        page.set_default_timeout(WAIT_MS)
        self.load()

    def load(self) -> None:
        """Load the page, as if for the first time."""
        self.page.goto(
            f"{self.server.url}lab?token={self.server.token}", wait_until="domcontentloaded"
        )
        self.page.wait_for_function("() => window.jupyterapp")
        self.page.evaluate(START)

    def write(self, name: str, *cells: str) -> Path:
        """A notebook with these cells and no outputs."""
        notebook = nbformat.v4.new_notebook(
            cells=[nbformat.v4.new_code_cell(source) for source in cells],
            metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}},
        )
        path = self.server.folder / f"{name}.ipynb"
        nbformat.write(notebook, path)
        return path

    def open(self, path: Path, *, kernel: bool = True) -> Notebook:
        """A notebook in a tab of its own; its kernel is started, or declined where Lab asks."""
        notebook = Notebook(self, path)
        if kernel:
            notebook.connected()
        else:
            asked = self.page.locator(".jp-Dialog")
            asked.get_by_role("button", name="No Kernel").click()
        return notebook


class Notebook:
    """A notebook that is open in Lab."""

    def __init__(self, lab: Lab, path: Path) -> None:
        self.lab = lab
        self.page = lab.page
        self.path = path
        panel_id = self.page.evaluate(OPEN, path.name)
        self.root = self.page.locator(f'[id="{panel_id}"]')

    def connected(self) -> None:
        """Wait for its kernel."""
        self.page.wait_for_function(CONNECTED, arg=self.path.name)

    def _ask(self, expression: str, *arguments: Any) -> Any:
        """The value of an expression about ``panel`` and ``given``."""
        function = f"([path, given]) => {{ const panel = window.notebooks[path]; {expression} }}"
        return self.page.evaluate(function, [self.path.name, arguments])

    def run(self, *places: int, wait: bool = True) -> None:
        """Run these cells, one after the other."""
        self._ask("void panel.tested.run(given);", *places)
        if wait:
            self.wait(*places)

    def run_all(self) -> None:
        self.run(*range(self._ask("return panel.content.widgets.length;")))

    def wait(self, *places: int) -> None:
        """Until these cells have ended."""
        ended = """([path, places]) => places.every(
          (place) => window.notebooks[path].tested.states[place] === "ended")"""
        try:
            self.page.wait_for_function(ended, arg=[self.path.name, places])
        except Overdue as error:
            shown = [self.output(place).all_inner_texts() for place in places]
            raise AssertionError(f"cells {places} go on: {shown}") from error

    def is_running(self, place: int) -> bool:
        return bool(self._ask('return panel.tested.states[given[0]] === "running";', place))

    def cell(self, place: int) -> Locator:
        return self.root.locator(".jp-Notebook .jp-Cell").nth(place)

    def output(self, place: int) -> Locator:
        """What a cell shows; locators below it look into shadow roots too."""
        return self.cell(place).locator(".jp-Cell-outputArea")

    def view(self, place: int, which: int = 0) -> View:
        """The picture that a cell shows."""
        return View(self.output(place).locator(".picture").nth(which))

    def outputs(self, place: int) -> list[dict[str, Any]]:
        """A cell's outputs as they would be saved."""
        found: list[dict[str, Any]] = self._ask(
            "return panel.content.widgets[given[0]].model.outputs.toJSON();", place
        )
        return found

    def interrupt(self) -> None:
        self._ask("return panel.sessionContext.session.kernel.interrupt();")

    def restart(self) -> None:
        """A new kernel in the place of this one; outputs stay as they are."""
        self._ask("return panel.sessionContext.restartKernel();")
        self.connected()

    def save(self) -> None:
        self._ask("return panel.context.save();")

    def close(self) -> None:
        """End its kernel, wait for that, and close its tab."""
        self._ask("return panel.sessionContext.shutdown();")
        self._ask("panel.dispose();")

    def screenshot(self, folder: Path, name: str, place: int | None = None) -> None:
        """A picture for people: of one cell, however long it is, or of the page."""
        path = folder / f"lab-{name}.png"
        if place is None:
            self.page.screenshot(path=path)
            return
        known = self.page.viewport_size
        assert known is not None
        box = self.cell(place).bounding_box()
        assert box is not None
        height = max(known["height"], math.ceil(box["height"]) + AROUND)
        self.page.set_viewport_size({"width": known["width"], "height": height})
        self.cell(place).screenshot(path=path)
        self.page.set_viewport_size(known)


def copy_of(path: Path, name: str) -> Path:
    """The same notebook as somebody else's: not signed here, nor is its kernel known here."""
    notebook = nbformat.read(path, as_version=4)
    notebook.metadata = {"kernelspec": {"name": "elsewhere", "display_name": "Elsewhere"}}
    copy = path.with_name(f"{name}.ipynb")
    nbformat.write(notebook, copy)
    return copy


class View:
    """A picture as a browser shows it, in a shadow root of its own."""

    def __init__(self, root: Locator) -> None:
        self.root = root
        self.status = root.locator(".status")
        self.error = root.locator(".error")

    def fact(self, label: str) -> Locator:
        """A figure that is read as text."""
        return self.root.locator(f'.fact:has(dt:text-is("{label}")) dd')

    def table(self, title: str) -> Locator:
        """Its rows."""
        return self.root.locator(f'.part-table:has(.part-title:text-is("{title}")) tbody')

    def rows(self, title: str) -> Locator:
        return self.table(title).locator("tr")

    def part(self, kind: str) -> Locator:
        """The first part of a kind."""
        return self.root.locator(f".part-{kind}").first

    def button(self, name: str) -> Locator:
        return self.root.get_by_role("button", name=name, exact=True)

    def moves(self, kind: str = "") -> None:
        """Wait until it is drawn otherwise than now; ``kind`` of part, or all of it."""
        drawn = self.part(kind) if kind else self.root.locator(".parts")
        before = drawn.inner_html()
        drawn.page.wait_for_function(
            "([element, before]) => element.innerHTML !== before",
            arg=[drawn.element_handle(), before],
        )


def shows(locator: Locator, text: str | re.Pattern[str]) -> None:
    """Wait until it shows this text, in shadow roots too."""
    expect(locator).to_contain_text(text, timeout=WAIT_MS)
