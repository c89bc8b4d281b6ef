"""The dashboard in a real browser. The ``page`` fixture fails whatever leaves this machine."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.ui.scenes import FRAME
from tests.ui.viewing import WAIT_MS, dashboard, picture, pool, proxy
from tests.unit.widgets.dashboard.pools import EVIL, MadePool
from tests.unit.widgets.pictures.scenes import make_stream_run
from widgets.dashboard import Dashboard, serve, site
from widgets.dashboard.pages import PAGES, PLOTS
from widgets.dashboard.plots import Painter
from workbench.metrics.feed import Feed
from workbench.types import EventKind

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from playwright.sync_api import Browser, Page

    from tests.ui.proxy import Proxy

__all__ = ["dashboard", "pool", "proxy"]  # fixtures

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def stream(pool: MadePool, **known: Any) -> None:
    pool.streams = (make_stream_run(**known),)
    pool.step()


NEWS: dict[str, tuple[Callable[[MadePool], Any], str]] = {
    "overview": (lambda pool: pool.step(in_flight=21), "42 requests"),
    "replicas": (lambda pool: pool.step(in_flight=21), "42 requests"),
    "sessions": (lambda pool: (setattr(pool, "known", 777), pool.step()), "1 to 50 of 777"),
    "cache": (lambda pool: pool.step(kv_cache_usage=0.987), "98.7%"),
    "rollouts": (lambda pool: pool.step(done=43), "47 of 64"),
    "streams": (lambda pool: stream(pool, consumed=60), "60 groups in 12 batches"),
    "events": (lambda pool: (pool.happen(EventKind.MOVED, "the-mover"), pool.step()), "the-mover"),
}
"""By page: what happens, and what is read there then."""


def until(page: Page, condition: Callable[[], bool]) -> None:
    """The browser goes on meanwhile."""
    for _ in range(WAIT_MS // 50):
        if condition():
            return
        page.wait_for_timeout(50)
    raise AssertionError("it did not happen")


def tickers() -> int:
    return sum(thread.name == "workbench-ticker" for thread in threading.enumerate())


# -- pages --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [page.name for page in PAGES])
def test_pages_show_the_pool_and_move(
    page: Page, pool: MadePool, dashboard: Dashboard, name: str
) -> None:
    page.goto(dashboard.page_url(name))
    expect(picture(page).first).to_contain_text("lab")
    change, words = NEWS[name]
    expect(page.locator("body")).not_to_contain_text(words)
    change(pool)
    expect(page.get_by_text(words).first).to_be_visible()
    expect(page.locator("nav a[aria-current]")).to_have_attribute("href", f"./{name}")
    assert page.evaluate("window.broken") is None


@pytest.mark.parametrize("name", PLOTS)
def test_plots_stand_alone(page: Page, pool: MadePool, dashboard: Dashboard, name: str) -> None:
    page.goto(dashboard.page_url(f"plot/{name}"))
    expect(picture(page)).to_have_count(1)
    assert page.locator("nav").count() == 0
    assert page.evaluate("window.broken") is None


def test_a_plot_moves_inside_a_page_from_elsewhere(
    page: Page, pool: MadePool, dashboard: Dashboard, proxy: Proxy
) -> None:
    page.goto(f"http://localhost:{proxy.port}/notebook")
    page.set_content(dashboard.show("plot/load")._repr_html_())
    frame = page.frame_locator("iframe")
    expect(frame.get_by_text("6 requests").first).to_be_visible()
    pool.step(in_flight=21)
    expect(frame.get_by_text("42 requests").first).to_be_visible()


def test_pages_lead_to_each_other(page: Page, dashboard: Dashboard) -> None:
    page.goto(dashboard.url)
    for shown in PAGES:
        page.get_by_role("link", name=shown.title, exact=True).click()
        page.wait_for_url(f"**/{shown.name}")
        expect(page).to_have_title(f"{shown.title}: lab")
    page.get_by_role("link", name="Plots").click()
    page.get_by_role("link", name="Replica load").click()
    expect(picture(page, "Replica load")).to_be_visible()


def test_text_from_the_pool_is_shown_as_it_is(
    page: Page, pool: MadePool, dashboard: Dashboard
) -> None:
    for name in ("sessions", "rollouts", "events"):
        page.goto(dashboard.page_url(name))
        expect(page.get_by_text("<img src=x").first).to_be_visible()
        assert page.evaluate("window.broken") is None


# -- asking -------------------------------------------------------------------------------------


def test_windows_and_downloads_go_together(page: Page, dashboard: Dashboard) -> None:
    page.goto(dashboard.page_url("overview"))
    page.get_by_role("button", name="show the last 1 min").click()
    link = page.get_by_role("link", name="history as CSV")
    expect(link).to_have_attribute("href", re.compile(r"^\./download/history\.csv\?length_s=60"))
    with page.expect_download() as download:
        link.click()
    assert download.value.suggested_filename.startswith("lab-history-")


def test_sessions_are_found_sorted_and_turned(
    page: Page, pool: MadePool, dashboard: Dashboard
) -> None:
    pool.known = 100_000
    pool.step()
    page.goto(dashboard.page_url("sessions"))
    rows = picture(page, "^Sessions").locator("tbody tr")
    expect(page.get_by_text("1 to 50 of 100,000").first).to_be_visible()
    expect(rows).to_have_count(50)
    assert max(limit for _, limit in pool.pages) == 50  # never all
    page.get_by_role("button", name="next page").click()
    expect(rows.first).to_contain_text("session-50")
    page.get_by_label("sorted by").select_option("prompt_tokens")
    expect(rows.first).to_contain_text("session-99999")
    expect(page.get_by_text("1 to 50 of 100,000").first).to_be_visible()
    page.get_by_placeholder("search by id").fill("session-77")
    expect(rows.first).to_contain_text("session-77999")
    page.get_by_placeholder("search by id").fill("no such session")
    expect(picture(page, "^Sessions")).to_contain_text("no session here")


def test_events_are_filtered_by_kind(page: Page, dashboard: Dashboard) -> None:
    page.goto(dashboard.page_url("events"))
    expect(picture(page)).to_contain_text(EVIL)
    expect(picture(page)).not_to_contain_text("a-turn")
    page.get_by_role("combobox", name="show").select_option("acquired")
    expect(picture(page)).to_contain_text("a-turn")
    expect(picture(page)).not_to_contain_text(EVIL)


def test_a_click_opens_another_stream(page: Page, pool: MadePool, dashboard: Dashboard) -> None:
    failed = make_stream_run(EVIL, state="failed", error=f"ToolError: {EVIL}")
    pool.streams = (failed, make_stream_run("night"))
    pool.step()
    page.goto(dashboard.page_url("streams"))
    expect(picture(page)).to_contain_text("Stream night (tool)")
    expect(picture(page)).not_to_contain_text("ToolError")
    page.get_by_role("button", name="open <img").click()
    expect(picture(page)).to_contain_text(f"failed: ToolError: {EVIL}")
    assert page.evaluate("window.broken") is None


def test_a_rollout_opens_to_its_tokens_and_closes(page: Page, dashboard: Dashboard) -> None:
    page.goto(dashboard.page_url("rollouts"))
    page.get_by_role("button", name="open <img src=x").first.click()
    opened = picture(page, "^Rollout <img")
    for words in ("ToolTimeout", "search", "Tokens of segment 1"):
        expect(opened).to_contain_text(words)
    assert page.evaluate("window.broken") is None
    page.get_by_role("button", name="back").click()
    expect(picture(page, "^Rollouts")).to_contain_text("batch-1/task-0")


def test_rollouts_are_found_sorted_stepped_through_and_compared(
    page: Page, dashboard: Dashboard
) -> None:
    page.goto(dashboard.page_url("rollouts"))
    ended = picture(page, "^Rollouts")
    rows = ended.locator("tbody tr")
    expect(rows).to_have_count(4)
    ended.get_by_label("status").select_option("done")
    expect(rows).to_have_count(2)
    link = page.get_by_role("link", name="rollouts as CSV")
    expect(link).to_have_attribute("href", re.compile("status=done"))
    ended.get_by_role("columnheader", name="rollout", exact=True).get_by_role("button").click()
    expect(rows.first).to_contain_text("batch-1/task-0")
    page.get_by_role("button", name="open batch-1/task-0").click()
    opened = picture(page, "^Rollout batch")
    opened.get_by_role("button", name="next turn").click()
    expect(opened.locator("h3")).to_have_text("Rollout batch-1/task-0, turn 1 of 2")
    page.keyboard.press("ArrowRight")
    expect(opened.locator("h3")).to_have_text("Rollout batch-1/task-0, turn 2 of 2")
    page.keyboard.press("Shift+ArrowRight")
    expect(opened.locator("h3")).to_have_text("Rollout batch-2/task-0")
    opened.get_by_role("button", name="compare group").click()
    expect(picture(page, "^Group task-0").locator("tbody tr")).to_have_count(2)
    assert page.evaluate("window.broken") is None


# -- who looks, and what it costs -----------------------------------------------------------------


def test_two_viewers_cost_one(
    browser: Browser, page: Page, pool: MadePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    painted: list[str] = []
    paint = Painter.__call__
    monkeypatch.setattr(
        Painter, "__call__", lambda self, asked: (painted.append(asked.plot), paint(self, asked))[1]
    )
    other_context = browser.new_context()
    with serve(pool.feed) as dashboard:
        other = other_context.new_page()
        for viewer in (page, other):
            viewer.goto(dashboard.page_url("overview"))
            expect(viewer.get_by_text("6 requests").first).to_be_visible()
        until(page, lambda: len(dashboard._site.gallery.viewers) == 2)
        assert tickers() == 1
        painted.clear()
        pool.step(in_flight=21)
        for viewer in (page, other):
            expect(viewer.get_by_text("42 requests").first).to_be_visible()
        assert painted == ["overview"]
        other_context.close()
        until(page, lambda: len(dashboard._site.gallery.viewers) == 1)
        page.goto("about:blank")
        until(page, lambda: not dashboard._site.gallery.viewers and not tickers())


def test_who_pauses_or_looks_away_costs_nothing(
    page: Page, pool: MadePool, dashboard: Dashboard
) -> None:
    page.goto(dashboard.page_url("overview"))
    gallery = dashboard._site.gallery
    expect(page.get_by_text("6 requests").first).to_be_visible()
    page.get_by_role("button", name="keep this picture still").click()
    until(page, lambda: not gallery.viewers and not tickers())
    pool.step(in_flight=21)
    page.get_by_role("button", name="follow what happens").click()
    expect(page.get_by_text("42 requests").first).to_be_visible()
    page.evaluate(LOOK, True)
    until(page, lambda: not gallery.viewers and not tickers())
    pool.step(in_flight=30)
    page.evaluate(LOOK, False)
    expect(page.get_by_text("60 requests").first).to_be_visible()


LOOK = """(away) => {
  Object.defineProperty(document, "hidden", { configurable: true, get: () => away });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def test_a_browser_that_takes_its_time_is_served_all_the_same(
    page: Page, pool: MadePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "CHECK_MS", 10)
    monkeypatch.setattr(site, "LINGER_MS", 1)  # its session is forgotten before it connects
    with serve(pool.feed) as dashboard:
        page.goto(dashboard.page_url("replicas"))
        expect(page.get_by_text("6 requests").first).to_be_visible()


# -- when things end ------------------------------------------------------------------------------


def test_a_pool_that_was_closed_says_so_and_stays(
    page: Page, pool: MadePool, dashboard: Dashboard
) -> None:
    page.goto(dashboard.page_url("overview"))
    expect(page.get_by_text("6 requests").first).to_be_visible()
    pool.close()
    expect(page.get_by_text("This pool was closed. The last data are from")).to_be_visible()
    expect(page.get_by_text("6 requests").first).to_be_visible()
    expect(page.get_by_role("button", name="keep this picture still")).to_be_hidden()


def test_a_pool_that_cannot_be_reached_says_so_until_it_can(
    page: Page, pool: MadePool, dashboard: Dashboard
) -> None:
    page.goto(dashboard.page_url("cache"))
    expect(picture(page)).to_contain_text("lab")
    pool.lose("the network is <b>down</b>")
    notice = page.get_by_text("cannot be reached: the network is <b>down</b>")
    expect(notice).to_be_visible()
    pool.find()
    pool.step()
    expect(notice).to_be_hidden()


def test_a_saved_pool_is_shown_as_saved(page: Page, pool: MadePool, tmp_path: Path) -> None:
    pool.feed.save(tmp_path / "saved")
    with serve(Feed.open(tmp_path / "saved")) as dashboard:
        for name in ("overview", "sessions", "events", "rollouts"):
            page.goto(dashboard.page_url(name))
            expect(page.get_by_text("Saved data of a pool")).to_be_visible()
            expect(picture(page).first).to_contain_text("saved")
            expect(page.get_by_role("button", name="keep this picture still")).to_have_count(0)


def test_a_dashboard_that_is_gone_is_missed_and_found_again(page: Page, pool: MadePool) -> None:
    first = serve(pool.feed)
    page.goto(first.page_url("overview"))
    expect(page.get_by_text("6 requests").first).to_be_visible()
    first.close()
    expect(page.get_by_text("No connection since")).to_be_visible()
    pool.step(in_flight=21)
    with serve(pool.feed, port=first.port):
        expect(page.get_by_text("42 requests").first).to_be_visible()
        expect(page.get_by_text("No connection since")).to_be_hidden()


# -- how it looks ---------------------------------------------------------------------------------


def test_light_and_dark_follow_the_system_until_somebody_chooses(
    page: Page, dashboard: Dashboard
) -> None:
    def paper() -> str:
        return page.locator(".top").evaluate("(top) => getComputedStyle(top).backgroundColor")

    page.emulate_media(color_scheme="light")
    page.goto(dashboard.page_url("plots"))
    light = paper()
    page.emulate_media(color_scheme="dark")
    dark = paper()
    assert light != dark
    page.get_by_role("button", name="light or dark").click()
    assert paper() == light
    page.reload()
    assert paper() == light
    page.get_by_role("button", name="light or dark").click()
    assert paper() == dark
    page.emulate_media(color_scheme="light")
    assert paper() == light


@pytest.mark.parametrize("width", [1280, 480])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pages_fit_and_are_photographed(
    page: Page, pool: MadePool, dashboard: Dashboard, screenshots: Path, width: int, theme: Any
) -> None:
    page.emulate_media(color_scheme=theme)
    page.set_viewport_size({"width": width, "height": 900})
    plots = {shown.name: len(shown.plots) for shown in PAGES}
    for name, number in {**plots, "plots": 0, "plot/load": 1}.items():
        page.goto(dashboard.page_url(name))
        expect(page.locator("section.picture:visible")).to_have_count(number)
        page.evaluate(FRAME)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
        path = screenshots / f"dashboard-{name.replace('/', '-')}-{theme}-{width}.png"
        page.screenshot(path=path, full_page=True)
