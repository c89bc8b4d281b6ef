"""What a dashboard's pages cost a browser that shows them, and the way there.

The dashboard is served as anybody serves it, from a process of its own, and Chromium shows one page
after the other. Bytes are what arrives on the page's websocket. A frame is from the moment at which
the browser begins to make it until it has been handed on to be shown: running what was due, style,
layout and paint; frames in which no picture changed do not count.
"""

from __future__ import annotations

import os
import re
import shutil
import statistics
import time
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from playwright.sync_api import sync_playwright

from benchmarks.dashboard_machine import cpu_s
from benchmarks.dashboard_wire import Remote, process, until_closed
from widgets.dashboard import serve
from widgets.dashboard.pages import PAGES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

    from playwright.sync_api import Browser

    from widgets.dashboard.pages import Page

WARM_UP = 4
PATIENCE_S = 60.0
ARGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking")
SIZE = {"width": 1400, "height": 1000}
PICTURE = re.compile(r'{\\"title\\":\\"([^"\\]*)\\",\\"parts\\":')
"""How every picture begins, as it is written in a message; its title."""

WATCH = """() => {
  const seen = window.seen = { frames: [], tasks: [] };
  let changed = false;
  const mutations = new MutationObserver(() => { changed = true; });
  const look = (root) => {
    for (const element of root.querySelectorAll("*")) {
      if (element.shadowRoot === null) continue;
      if (element.shadowRoot.querySelector(".picture")) {
        mutations.observe(element.shadowRoot, {
          subtree: true, childList: true, characterData: true, attributes: true });
      }
      look(element.shadowRoot);
    }
  };
  look(document);
  new PerformanceObserver((list) => {
    for (const task of list.getEntries()) seen.tasks.push(task.duration);
  }).observe({ type: "longtask" });
  const channel = new MessageChannel();
  channel.port2.onmessage = ({ data: began }) => {
    if (changed) seen.frames.push(performance.now() - began);
    changed = false;
  };
  const frame = () => {
    requestAnimationFrame(frame);
    channel.port1.postMessage(performance.now());
  };
  requestAnimationFrame(frame);
}"""
"""A message that is sent while a frame is made is read when it has been made."""


def server_process(pipe: Connection, where: tuple[str, bytes], period_s: float) -> None:
    """For :func:`~benchmarks.dashboard_wire.process`: sends the dashboard's address and its pid."""
    with serve(Remote(where).feed(period_s)) as dashboard:
        pipe.send((dashboard.url, os.getpid()))
        until_closed(pipe)


def browse(where: tuple[str, bytes], period_s: float, updates: int) -> dict[str, Any]:
    """By page; see the module.

    Args:
        where: the pool's address.
        period_s: how often it has news.
        updates: of each page that are measured.
    """
    with process(server_process, where, period_s) as (url, pid), _chromium() as browser:
        pages = {page.name: _show(browser, url, pid, page, updates) for page in PAGES}
        version = browser.version
    heaviest = max(pages, key=lambda name: pages[name]["bytes_per_update"])
    return {
        "bytes_per_update": pages[heaviest]["bytes_per_update"],
        "bytes_page": heaviest,
        **{name: pages["overview"][name] for name in ("frame_ms", "frame_p95_ms")},
        "longest_task_ms": pages["overview"]["longest_task_ms"],
        "shown_pages": pages,
        "chromium": version,
    }


@contextmanager
def _chromium() -> Iterator[Browser]:
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        raise SystemExit("chromium is not installed; see --skip-browser")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(ARGS))
        yield browser
        browser.close()


class Traffic:
    """What came on a page's websocket."""

    def __init__(self) -> None:
        self.bytes = 0
        self.pictures: Counter[str] = Counter()
        """By title. A picture in which nothing changed does not come again."""

    @property
    def updates(self) -> int:
        """Of the picture that changed most often."""
        return max(self.pictures.values(), default=0)

    def hear(self, message: str | bytes) -> None:
        """For Playwright."""
        text = message if isinstance(message, str) else message.decode(errors="replace")
        self.bytes += len(text.encode())
        self.pictures.update(PICTURE.findall(text))


def _show(browser: Browser, url: str, pid: int, page: Page, updates: int) -> dict[str, float]:
    """Open a page, and measure once it goes on by itself."""
    context = browser.new_context(viewport=SIZE)  # type: ignore[arg-type]
    shown = context.new_page()
    traffic = Traffic()
    shown.on("websocket", lambda socket: socket.on("framereceived", traffic.hear))

    def wait(updates: int) -> None:
        until_s = time.monotonic() + PATIENCE_S
        while traffic.updates < updates:
            assert time.monotonic() < until_s, f"page {page.name}: no news"
            shown.wait_for_timeout(50)

    shown.goto(f"{url}{page.name}")
    wait(WARM_UP)
    assert len(traffic.pictures) == len(page.plots)
    shown.evaluate(WATCH)
    traffic.bytes = 0
    traffic.pictures.clear()
    began_s, before_s = time.monotonic(), cpu_s(pid)
    wait(updates)
    took_s, used_s = time.monotonic() - began_s, cpu_s(pid) - before_s
    seen = shown.evaluate("() => window.seen")
    context.close()
    frames = sorted(seen["frames"])
    return {
        "bytes_per_update": round(traffic.bytes / traffic.updates),
        "updates_per_s": round(traffic.updates / took_s, 2),
        "server_cpu_share": round(used_s / took_s, 3),
        "frame_ms": round(statistics.median(frames), 1),
        "frame_p95_ms": round(frames[int(0.95 * (len(frames) - 1))], 1),
        "longest_task_ms": round(max(seen["tasks"], default=0.0), 1),
    }
