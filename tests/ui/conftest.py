"""A real browser, which may talk to this machine only.

Its tests come last: while Playwright is there its event loop runs in this thread, and no other can.
"""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

    from tests.ui.lab import Lab

HERE = Path(__file__).parent
BROWSERS = ("chromium", "chromium-browser")
"""Not ``chromium-headless-shell``: with it no pointer ever leaves an element."""
ARGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
TALL = {"width": 1200, "height": 1800}
"""So that a notebook's cells are in sight."""
INSIDE = ("127.0.0.1", "localhost", "[::1]")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: HERE in item.path.parents)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium as this machine has it; Playwright's own is not needed."""
    sync_api = pytest.importorskip("playwright.sync_api")
    found = [path for name in BROWSERS if (path := shutil.which(name))]
    if not found:
        pytest.skip("chromium is not installed")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found[0], args=list(ARGS))
        yield browser
        browser.close()


@contextmanager
def page_of(browser: Browser, **options: Any) -> Iterator[Page]:
    """A page of its own; whatever it asks of another machine is an error when it is left."""
    outside: list[str] = []

    def record(url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"data", "blob", "about"} and parts.hostname not in INSIDE:
            outside.append(url)

    known = {"viewport": {"width": 1200, "height": 900}, "timezone_id": "UTC"}
    context = browser.new_context(**(known | options))
    page = context.new_page()
    page.on("request", lambda request: record(request.url))
    page.on("websocket", lambda socket: record(socket.url))
    yield page
    context.close()
    assert not outside, f"asked other machines: {outside}"


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of its own; whatever it asks of another machine fails the test."""
    with page_of(browser) as page:
        yield page


@pytest.fixture(scope="session")
def screenshots() -> Path:
    """Where pictures for people go."""
    folder = Path(os.environ.get("WORKBENCH_SCREENSHOTS", "build/screenshots"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


# ---------------------------------------------------------------------------- JupyterLab


@pytest.fixture(scope="session")
def lab(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """JupyterLab, its server and a page; notebooks are opened in it one after the other."""
    from tests.integration.processes import MARK, left_behind, new_mark
    from tests.ui.lab import Lab, running_lab

    folder, mark = tmp_path_factory.mktemp("lab"), new_mark()
    with running_lab(folder, {MARK: mark}) as server, page_of(browser, viewport=TALL) as page:
        yield Lab(page, server)
    assert not left_behind(mark)
