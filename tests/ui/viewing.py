"""What tests of the dashboard share: a pool, its dashboard, and how to find things in a page."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.ui.proxy import Proxy
from tests.unit.widgets.dashboard.pools import EVIL, MadePool
from widgets.dashboard import Dashboard, serve
from workbench.types import EventKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page

WAIT_MS = 60_000
expect.set_options(timeout=WAIT_MS)


@pytest.fixture
def pool() -> MadePool:
    pool = MadePool()
    pool.happen(EventKind.MOVED, EVIL)
    pool.happen(EventKind.ACQUIRED, "a-turn")
    return pool


@pytest.fixture
def dashboard(pool: MadePool) -> Iterator[Dashboard]:
    with serve(pool.feed) as dashboard:
        yield dashboard


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    proxy = Proxy()
    yield proxy
    proxy.close()


def picture(page: Page, name: str = "") -> Any:
    """A picture that has something in it."""
    return page.locator(
        "section.picture", has=page.locator("h3", has_text=re.compile(name or r"\w"))
    )
